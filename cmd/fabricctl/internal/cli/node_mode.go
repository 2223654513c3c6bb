package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/nodemode"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// nodeMode is the flags of the command.
type nodeMode struct {
	*app
	nodemode.Options

	local, cluster, dry, enter bool
	boot                       string // reboot, if the kernel is of this boot
}

func nodeModeCommand(a *app) *cobra.Command {
	m := &nodeMode{app: a}
	c := &cobra.Command{
		Use:   "node-mode MODE [NODE...]",
		Short: "Change the RDMA mode of nodes, one after the other: cordon, drain, reboot, uncordon",
		Long: `node-mode changes the RDMA network namespace mode of nodes to exclusive or shared. Name the nodes, or
choose them with --selector. For each node it

    1. cordons and drains the node, as kubectl drain does
    2. writes ` + nodemode.File + `, and rebuilds the initramfs (update-initramfs, dracut or mkinitcpio)
    3. reboots, and waits until the node is Ready
    4. checks the mode, and uncordons the node unless it was cordoned before

At most --max-unavailable nodes are changed at a time. It stops at the first failure, and leaves that node cordoned. How
far each node is stands in its annotation ` + nodemode.Annotation + `: after a failure, or if node-mode was killed, the
same command continues. To go back, run it with the other mode.

It changes nothing, and names the owner, where the SR-IOV network operator or a MachineConfig sets the mode, where a
driver container loads ib_core, and where the initramfs is part of the image of the system. Steps 2 and 3 are the work
of a privileged pod with the image of fabric-agent, which exists for that time only.

With --local it does step 2 on this machine, as root, and reboots nothing; --dry-run checks only.`,
		Example: `  kubectl fabric preflight
  kubectl fabric node-mode exclusive --selector pool=gpu --dry-run
  kubectl fabric node-mode exclusive --selector pool=gpu --max-unavailable 10%
  kubectl fabric node-mode shared gpu-7`,
		Args: argsBetween(1, 10000),
		RunE: func(cmd *cobra.Command, args []string) error {
			if m.Mode, m.Nodes = args[0], args[1:]; m.local {
				return m.here(cmd)
			}
			if err := m.check(); err != nil {
				return err
			}
			return m.run(cmd.Context())
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return choice(device.NetnsExclusive.String(), device.NetnsShared.String())(c, args, begun)
			}
			return nodeNames(a, &place{cluster: true})(c, nil, begun)
		},
	}
	f := c.Flags()
	f.StringVarP(&m.Selector, "selector", "l", "", "label selector of the nodes")
	f.StringVar(&m.MaxUnavailable, "max-unavailable", "1",
		"nodes to change at a time: a number, or a percentage of them")
	f.BoolVar(&m.dry, "dry-run", false, "list the nodes and the pods that stop, and change nothing")
	f.BoolVar(&m.Force, "force", false, "delete pods that no controller creates again, as kubectl drain does")
	f.BoolVar(&m.DeleteEmptyDir, "delete-emptydir-data", false,
		"delete pods that use emptyDir volumes, as kubectl drain does")
	f.DurationVar(&m.GracePeriod, "grace-period", -1, "time that pods have to end (default: their own)")
	f.DurationVar(&m.Timeout, "timeout", time.Hour, "time that one node may take")
	f.StringVar(&m.Image, "image", "", "image with fabricctl for the pods on the nodes (default: that of fabric-agent)")
	f.StringVar(&m.Namespace, "agent-namespace", agentNamespace, "namespace of fabric-agent, and of these pods")
	f.BoolVar(&m.cluster, "cluster", false, "change nodes of the cluster (the default)")
	f.BoolVar(&m.local, "local", false, "prepare this machine, and reboot nothing")
	f.BoolVar(&m.enter, "enter-node", false, "do it in the mount namespace of the node's first process")
	f.StringVar(&m.boot, "reboot", "", "reboot, unless that has happened since the boot of this ID")
	for _, name := range []string{"enter-node", "reboot"} { // for the pods
		if err := f.MarkHidden(name); err != nil {
			panic(err)
		}
	}
	c.MarkFlagsMutuallyExclusive("cluster", "local")
	return c
}

func (m *nodeMode) checkMode() error {
	return oneOf("mode", &m.Mode, device.NetnsExclusive.String(), device.NetnsShared.String())
}

func (m *nodeMode) check() error {
	var nodes []error
	for _, name := range m.Nodes {
		nodes = append(nodes, nodeRule.check("NODE", name))
	}
	switch {
	case len(m.Nodes) == 0 && m.Selector == "":
		return fmt.Errorf("%w: name the nodes, or choose them with --selector", errUsage)
	case len(m.Nodes) > 0 && m.Selector != "":
		return fmt.Errorf("%w: nodes are named or chosen with --selector, not both", errUsage)
	case m.Timeout < time.Minute:
		return fmt.Errorf("%w: --timeout %s: must be 1m or more", errUsage, m.Timeout)
	}
	if _, err := nodemode.Most(m.MaxUnavailable, 100); err != nil {
		nodes = append(nodes, fmt.Errorf("%w: %w", errUsage, err))
	}
	if _, err := labels.Parse(m.Selector); err != nil {
		nodes = append(nodes, fmt.Errorf("%w: --selector: %w", errUsage, err))
	}
	if m.Image != "" {
		nodes = append(nodes, imageRule.check("image", m.Image))
	}
	return errors.Join(append(nodes, m.checkMode(), labelRule.check("agent-namespace", m.Namespace))...)
}

// run changes nodes of the cluster.
func (m *nodeMode) run(ctx context.Context) error {
	config, err := m.kube.Config()
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	m.Say = func(node, text string) { m.stdout.Printf("%s: %s\n", node, text) }
	m.List = m.listed
	if err := m.known(ctx); err != nil {
		return err
	}
	r := nodemode.New(kube, m.Options)
	p, err := r.Plan(ctx)
	if p == nil {
		return err
	}
	refused := errors.Join(err, m.refused(ctx, slices.Concat(p.Begun, p.Do)))
	if m.dry {
		return m.list(ctx, r, p, refused)
	}
	if refused != nil {
		return refused
	}
	if len(p.Begun)+len(p.Do) == 0 {
		m.stdout.Printf("all of these %d nodes are in %s mode\n", len(p.Done), m.Mode)
		return nil
	}
	if r.Image == "" {
		if r.Image, r.PullSecrets, err = agentImage(ctx, kube, m.Namespace); err != nil {
			return err
		}
	}
	return m.alone(ctx, kube, func(ctx context.Context) error { return r.Do(ctx, p) })
}

// listed are the Nodes with the labels of --selector.
func (m *nodeMode) listed(ctx context.Context) (out []corev1.Node, err error) {
	err = cluster.Each(ctx, m.kube, cluster.List{Of: cluster.Nodes, Labels: m.Selector},
		func(o *corev1.Node, bad error) {
			if bad != nil {
				m.stderr.Printf("warning: a node is left out, because it can't be read: %v\n", bad)
				return
			}
			out = append(out, *o)
		})
	return out, err
}

// known takes the modes that agents have reported.
func (m *nodeMode) known(ctx context.Context) error {
	nodes, _, err := fabricNodes(ctx, m.kube, "")
	if err != nil && !errors.Is(err, cluster.ErrNotServed) {
		return err
	}
	m.Reported = map[string]string{}
	for i := range nodes {
		if f := &nodes[i]; f.Spec.Gone == nil {
			m.Reported[f.Name] = f.Status.RDMAMode
		}
	}
	return nil
}

// refused says why this is another program's work.
func (m *nodeMode) refused(ctx context.Context, nodes []string) error {
	seen, err := collectPreflight(ctx, m.kube)
	if err != nil {
		return err
	}
	var bad []error
	for _, f := range doctor.ModeOwners(seen, m.Mode, nodes) {
		bad = append(bad, fmt.Errorf("%s: %s", f.Evidence, f.Cure))
	}
	return errors.Join(bad...)
}

// list prints what would be done. What can't be done makes the exit status 3.
func (m *nodeMode) list(ctx context.Context, r *nodemode.Run, p *nodemode.Plan, refused error) error {
	t := newTable("NODE", "MODE", "WHAT", "PODS THAT STOP")
	t.share = []string{"PODS THAT STOP"}
	var bad []string
	if refused != nil {
		bad = strings.Split(refused.Error(), "\n")
	}
	for _, name := range slices.Sorted(slices.Values(slices.Concat(p.Begun, p.Do, p.Done))) {
		mode := m.Reported[name]
		if mode == "" {
			mode = "-"
		}
		if slices.Contains(p.Done, name) {
			t.add(name, mode, "nothing", "")
			continue
		}
		pods, errs := r.Pods(ctx, name)
		for _, err := range errs {
			bad = append(bad, name+": "+err.Error())
		}
		var names []string
		if pods != nil {
			for _, pod := range pods.Pods() {
				names = append(names, pod.Namespace+"/"+pod.Name)
			}
		}
		slices.Sort(names)
		what := "reboot"
		if slices.Contains(p.Begun, name) {
			what = "continue"
		}
		t.add(name, mode, what, strings.Join(names, ", "))
	}
	t.print(&m.console)
	m.stdout.Printf("\n%d of %d nodes would be set to %s mode, at most %d at a time\n", len(p.Begun)+len(p.Do),
		len(p.Begun)+len(p.Do)+len(p.Done), m.Mode, p.Most)
	for _, text := range bad {
		m.stdout.Println("refused:", text)
	}
	if len(bad) > 0 {
		return errFinding
	}
	return nil
}

// agentImage is the image of the agents, which has fabricctl, and what it is pulled with.
func agentImage(ctx context.Context, kube kubernetes.Interface, namespace string) (string,
	[]corev1.LocalObjectReference, error,
) {
	sets, err := kube.AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: appLabel + "fabric-agent",
	})
	if err != nil {
		return "", nil, err
	}
	if len(sets.Items) != 1 || len(sets.Items[0].Spec.Template.Spec.Containers) == 0 {
		return "", nil, fmt.Errorf("namespace %s has %d DaemonSets of fabric-agent, whose image would be taken: "+
			"install fabric-cni first, or name an image with fabricctl with --image", namespace, len(sets.Items))
	}
	spec := &sets.Items[0].Spec.Template.Spec
	return spec.Containers[0].Image, spec.ImagePullSecrets, nil
}

// Times of the Lease of a run: another may begin so long after a run was killed.
const (
	leaseTime   = 15 * time.Second
	renewWithin = 10 * time.Second
	renewEach   = 2 * time.Second
)

// errLease ends a run that can't tell any more that it is the only one.
var errLease = errors.New("the API server was away for too long, and another run may have begun; the same command " +
	"continues")

// modeLock ends the wait for a Lease that can't be had.
type modeLock struct {
	resourcelock.Interface

	stop func()
	err  error
}

// Get reads the Lease.
func (l *modeLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, b, err := l.Interface.Get(ctx)
	if !apierrors.IsNotFound(err) {
		l.judge("read", err)
	}
	return r, b, err
}

// Create creates it.
func (l *modeLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, r)
	l.judge("create", err)
	return err
}

func (l *modeLock) judge(what string, err error) {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		l.err = fmt.Errorf("%s the Lease %s: %w: the namespace must be there (--agent-namespace)", what,
			l.Describe(), err)
		l.stop()
	}
}

// alone runs f while no other run of the cluster does.
func (m *nodeMode) alone(ctx context.Context, kube kubernetes.Interface, f func(context.Context) error) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	me := fmt.Sprintf("%s-%d-%d", host, os.Getpid(), time.Now().UnixNano())
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	leads, over := make(chan context.Context, 1), make(chan struct{})
	lock := &modeLock{stop: cancel, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: m.Namespace, Name: "fabric-node-mode"},
		Client:     kube.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: me},
	}}
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: leaseTime, RenewDeadline: renewWithin, RetryPeriod: renewEach, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leads <- ctx },
			OnStoppedLeading: func() {},
			OnNewLeader: func(who string) {
				if who != me {
					m.stderr.Printf("wait until the run of %s has ended, or %v after it was killed\n", who, leaseTime)
				}
			},
		},
	})
	if err != nil {
		return err
	}
	go func() {
		defer close(over)
		e.Run(within)
	}()
	select {
	case <-over:
		if lock.err != nil {
			return lock.err
		}
		return fmt.Errorf("interrupted: %w", ctx.Err())
	case lead := <-leads:
		err := f(lead)
		lost := lead.Err() != nil && ctx.Err() == nil
		cancel()
		<-over
		if lost {
			return errors.Join(errLease, err)
		}
		return err
	}
}
