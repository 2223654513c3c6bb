package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
)

// testPods are the pods of verify --deploy, which exist for one measurement.
type testPods struct {
	from      sources
	namespace string
	image     string
	version   string // of this fabricctl
	fabric    string
	prefix    string
	count     int
	sameNode  bool
	replace   bool
	timeout   time.Duration // until they are Ready
	made      bool
}

func (p *testPods) flags(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&p.count, "workers", 2, "--deploy: so many pods: as many as there are nodes measures every pair of nodes")
	f.BoolVar(&p.sameNode, "same-node", false, "--deploy: the pods may be on one node")
	f.BoolVar(&p.replace, "replace", false,
		"--deploy: delete pods that a verify before has left, because it was killed")
	f.DurationVar(&p.timeout, "timeout", 3*time.Minute, "--deploy: how long the pods may take to be Ready")
	p.from.flags(c, "--deploy: rails of the Fabrics of the cluster", "--deploy: rails of recordings or of this machine")
	f.StringVar(&p.prefix, "resource-prefix", "nvidia.com",
		"--deploy: prefix of the resources of these pods; "+generate.AgentPrefix+
			" for those of fabric-agent, as with --cluster")
	f.StringVar(&p.image, "image", "", "--deploy: image of these pods: it needs "+testImage+" (default of a release: "+
		toolsImage+" of its version)")
	f.StringVar(&p.fabric, "fabric", "", "--deploy: fabric of these pods (default: the one with the most bandwidth)")
}

// toolsImage is the image fabric-tools, which a release publishes (.github/workflows/release.yml).
const toolsImage = "ghcr.io/fabric-cni/fabric-tools"

// defaultImage is the fabric-tools that was released with a fabricctl; empty: this one is no release.
func defaultImage(version string) string {
	if !doctor.Released(version) {
		return ""
	}
	return toolsImage + ":" + version
}

// testImage is what the image of the pods needs.
const testImage = "perftest, ibverbs-providers, iproute2, iputils-ping and a shell; better rdmacm-utils too"

// deployFlags mean something with --deploy only.
var deployFlags = []string{"workers", "same-node", "replace", "timeout", "cluster", "local", "resource-prefix", "image",
	"fabric"}

// check checks the flags.
func (p *testPods) check(deploy bool, f *pflag.FlagSet) error {
	if !deploy {
		return onlyWithDeploy(f, deployFlags)
	}
	if p.image == "" {
		p.image = defaultImage(p.version)
	}
	switch {
	case p.image == "":
		return fmt.Errorf("%w: --deploy needs --image, of the pods that it makes: with %s; this fabricctl is no "+
			"release, whose image it would be: make image builds fabric-tools", errUsage, testImage)
	case p.count < 2 || p.count > maxWorkers:
		return fmt.Errorf("%w: --workers %d: want 2 to %d", errUsage, p.count, maxWorkers)
	case p.timeout <= 0:
		return fmt.Errorf("%w: --timeout %v: want more than 0", errUsage, p.timeout)
	}
	return errors.Join(imageRule.check("image", p.image), domainRule.check("resource-prefix", p.prefix))
}

// onlyWithDeploy refuses flags that would mean nothing.
func onlyWithDeploy(f *pflag.FlagSet, flags []string) error {
	for _, name := range flags {
		if f.Changed(name) {
			return fmt.Errorf("%w: --%s is for the pods of --deploy", errUsage, name)
		}
	}
	return nil
}

// testPodName is the name of the pods, without -a, -b, ...
const testPodName = "fabricctl-verify"

func (p *testPods) names() (out []string) {
	for _, side := range generate.Sides(p.count) {
		out = append(out, testPodName+"-"+side)
	}
	return out
}

// options are what the pods, and the job of NCCL, are made of.
func (p *testPods) options(name, image string) generate.Options {
	return generate.Options{
		Namespace: p.namespace, Name: name, Image: image, Fabric: p.fabric, Prefix: p.prefix,
		Range:   netip.MustParsePrefix("198.18.0.0/18"), // for networks: pods have none
		Workers: p.count, SameNode: p.sameNode, GPUs: -1,
	}
}

// deploy creates the pods, and waits until they are Ready.
func (p *testPods) deploy(ctx context.Context) error {
	text, err := p.from.generate(ctx, "verify --deploy", "perftest-pods", p.options(testPodName, p.image))
	if err != nil {
		return err
	}
	if err := p.none(ctx); err != nil {
		return err
	}
	p.made = true
	if err := p.from.kube.Apply(ctx, text); err != nil {
		return fmt.Errorf("verify --deploy: %w", err)
	}
	for _, name := range p.names() {
		if err := p.ready(ctx, name); err != nil {
			return fmt.Errorf("verify --deploy: %w; why: kubectl -n %s describe pod %s | fabricctl doctor explain",
				err, p.namespace, name)
		}
	}
	return nil
}

// ready waits until a pod is.
func (p *testPods) ready(ctx context.Context, name string) error {
	return p.until(ctx, "pod "+name+" is not Ready", func() (bool, error) {
		var pod corev1.Pod
		err := p.from.kube.Get(ctx, cluster.Pods, p.namespace, name, &pod)
		return doctor.PodReady(&pod), err
	})
}

// until asks each second. The error begins with what is not so.
func (p *testPods) until(ctx context.Context, not string, ask func() (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, time.Second, p.timeout, true, func(context.Context) (bool, error) {
		return ask()
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("%s: timed out after %v", not, p.timeout)
	}
	return err
}

// left are the names of the pods of another run.
func (p *testPods) left(ctx context.Context) (out []string, err error) {
	err = cluster.Each(ctx, p.from.kube, cluster.List{
		Of: cluster.Pods, Namespace: p.namespace, Labels: "app=" + testPodName,
	}, func(o *metav1.PartialObjectMetadata, bad error) {
		if bad == nil {
			out = append(out, fmt.Sprintf("%.253s", o.Name))
		}
	})
	return out, err
}

// none looks that there are no such pods yet: those of a run at the same time must not be used, nor deleted.
func (p *testPods) none(ctx context.Context) error {
	names, err := p.left(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("verify --deploy: %w", err)
	case len(names) == 0:
		return nil
	case p.replace:
		return p.clear(ctx, names)
	}
	return fmt.Errorf("verify --deploy: namespace %s has %d pods of another verify (%s): wait until it has ended, "+
		"or if it was killed: --replace", p.namespace, len(names), strings.Join(names[:min(len(names), 3)], ", "))
}

// clear deletes the pods of another run, and waits until they are gone.
func (p *testPods) clear(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := p.from.kube.Delete(ctx, cluster.Pods, p.namespace, name); err != nil {
			return fmt.Errorf("verify --deploy --replace: %w", err)
		}
	}
	err := p.until(ctx, "the pods of another verify are still there", func() (bool, error) {
		names, err := p.left(ctx)
		return len(names) == 0, err
	})
	if err != nil {
		return fmt.Errorf("verify --deploy --replace: %w", err)
	}
	return nil
}

// remove deletes the pods, also if the measurement was interrupted.
func (p *testPods) remove() {
	if !p.made {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// If this fails, nothing more can be done. Pods of Fabrics with allocation DRA have claims.
	_ = p.from.kube.Delete(ctx, cluster.Templates, p.namespace, testPodName)
	for _, name := range p.names() {
		_ = p.from.kube.Delete(ctx, cluster.Pods, p.namespace, name)
	}
}
