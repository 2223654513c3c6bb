package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/manifest"
)

func doctorPodCommand(a *app) *cobra.Command {
	out := findings{console: &a.console}
	pod := podRef{machine: &a.machine}
	manifest := manifestRef{console: &a.console, kube: a.kube}
	c := &cobra.Command{
		Use:   "pod [NAME]",
		Short: "Check a pod: interfaces, verbs devices, memory, GIDs, variables; from inside, or from the host",
		Long: `doctor pod checks the container it runs in, or from the host the container of a process (--pid) or a
network namespace (--netns). For a pod of the cluster, NAME or NAMESPACE/NAME, or its manifest (-f), it finds the
missing step: annotation, network, Multus or count; for ResourceClaims why they are missing or not allocated, and what
the pod's Events mean. Exit status 3 if a check fails.`,
		Example: `  kubectl exec train-0 -- fabricctl doctor pod
  fabricctl doctor pod --pid $(crictl inspect --output go-template --template '{{.info.pid}}' ID)
  fabricctl doctor pod train-0 -n ml
  kubectl get pod train-0 -o json | fabricctl doctor pod -f -
  kubectl get net-attach-def -A -o json >nads.json
  kubectl get pod train-0 -o json | fabricctl doctor pod -f - --nads nads.json
  kubectl get resourceclaims,resourceclaimtemplates,resourceslices,deviceclasses,events -A -o json >claims.json
  kubectl get pod train-0 -o json | fabricctl doctor pod -f - --nads nads.json --claims claims.json`,
		Args:              argsBetween(0, 1),
		ValidArgsFunction: podName(a.kube),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(out.check(), manifest.named(args, &pod)); err != nil {
				return err
			}
			if manifest.file != "" || manifest.pod != "" {
				list, err := manifest.check(cmd.Context())
				if err != nil {
					return err
				}
				return out.print(list)
			}
			p, err := pod.collect()
			if err != nil {
				return err
			}
			return out.print(doctor.CheckPod(p))
		},
	}
	out.flags(c)
	pod.flags(c)
	manifest.flags(c)
	return c
}

// manifestRef names the manifest of a pod: a file, or a pod of the cluster.
type manifestRef struct {
	*console
	kube   *cluster.Cluster
	file   string
	nads   string // file with the networks
	claims string // file with what there is of Dynamic Resource Allocation
	pod    string // NAMESPACE/NAME, or NAME
}

func (m *manifestRef) flags(c *cobra.Command) {
	c.Flags().StringVarP(&m.file, "filename", "f", "",
		"a file with the pod, as YAML or JSON; - for standard input")
	c.Flags().StringVar(&m.nads, "nads", "", "a file with the networks, as kubectl get net-attach-def -A -o json "+
		"prints them, or YAML")
	c.Flags().StringVar(&m.claims, "claims", "", "ResourceClaims, ResourceClaimTemplates, ResourceSlices, "+
		"DeviceClasses and Events, as one kubectl get ... -A -o json prints them")
}

// named takes the name of a pod of the cluster, which is no other pod at the same time.
func (m *manifestRef) named(args []string, other *podRef) error {
	if len(args) == 0 {
		return nil
	}
	m.pod = args[0]
	namespace, name := m.split()
	switch {
	case labelRule.check("", namespace) != nil || domainRule.check("", name) != nil:
		return fmt.Errorf("%w: argument %.300q: must be NAME or NAMESPACE/NAME of a pod", errUsage, m.pod)
	case m.file != "" || other.pid != 0 || other.netns != "" || other.root != "/":
		return fmt.Errorf("%w: argument %q, --filename, --pid, --netns and --root exclude each other", errUsage, m.pod)
	case m.nads != "" || m.claims != "":
		return fmt.Errorf("%w: argument %q: --nads and --claims are for --filename: the cluster has both", errUsage,
			m.pod)
	}
	return nil
}

// split returns the namespace and the name of the pod of the cluster.
func (m *manifestRef) split() (namespace, name string) {
	if namespace, name, ok := strings.Cut(m.pod, "/"); ok {
		return namespace, name
	}
	return m.kube.Namespace(), m.pod
}

// world is a pod, and what it depends on in its cluster. Parts may be nil: not known.
type world struct {
	pod  *doctor.Manifest
	nads *doctor.NADs
	dra  *doctor.DRA
}

// check reads the manifest and checks it.
func (m *manifestRef) check(ctx context.Context) ([]doctor.Finding, error) {
	read := m.fromFiles
	if m.pod != "" {
		namespace, name := m.split()
		read = func() (*world, error) { return podByName(ctx, m.kube, namespace, name) }
	}
	w, err := read()
	if err != nil {
		return nil, err
	}
	list, err := doctor.CheckManifest(w.pod, w.nads)
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", m.file, m.pod, err)
	}
	list = append(list, doctor.CheckContents(w.pod, nil)...)
	return append(list, doctor.CheckClaims(w.pod, w.nads, w.dra)...), nil
}

// fromFiles reads the pod, and the networks and claims if there are files with them. All may be YAML or JSON.
func (m *manifestRef) fromFiles() (*world, error) {
	if m.file == "-" && m.nads == "-" || m.claims == "-" && (m.file == "-" || m.nads == "-") {
		return nil, fmt.Errorf("%w: standard input is one file only", errUsage)
	}
	w := &world{pod: &doctor.Manifest{}}
	if err := m.decode("filename", m.file, "kubectl get pod NAME -o json", w.one); err != nil {
		return nil, err
	}
	if m.nads != "" {
		w.nads = &doctor.NADs{}
		into := func(list []byte) error { return json.Unmarshal(list, w.nads) }
		if err := m.decode("nads", m.nads, "kubectl get net-attach-def -A -o json", into); err != nil {
			return nil, err
		}
	}
	if m.claims == "" {
		return w, nil
	}
	w.dra = &doctor.DRA{}
	err := m.decode("claims", m.claims, "kubectl get "+draKinds+",events -A -o json", func(list []byte) error {
		return cluster.EachItem(bytes.NewReader(list), into(w.dra, ""))
	})
	return w, err
}

// one takes the only pod of a file.
func (w *world) one(list []byte) error {
	var objects struct{ Items []doctor.Manifest }
	if err := json.Unmarshal(list, &objects); err != nil {
		return err
	}
	kinds := map[string]bool{}
	pods := slices.DeleteFunc(objects.Items, func(m doctor.Manifest) bool {
		kinds[m.Kind] = true
		return m.Kind != "Pod"
	})
	switch {
	case len(pods) == 0 && kinds[""]:
		return errors.New("an object has no kind: want kind: Pod")
	case len(pods) == 0:
		return errors.New("no Pod in it: doctor job -f looks at what makes pods")
	case len(pods) > 1:
		return fmt.Errorf("%d pods in it: doctor job -f looks at all", len(pods))
	}
	w.pod = &pods[0]
	return nil
}

// decode reads the objects in the file of a flag: what a command prints.
func (m *manifestRef) decode(flag, file, command string, take func(list []byte) error) error {
	objects, err := m.manifests(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	var list []byte
	if err == nil {
		list, err = manifest.List(objects)
	}
	if err == nil {
		err = take(list)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("--%s %s: %w", flag, file, err), errors.New("want what "+command+" prints, or "+
			"the same as YAML"))
	}
	return nil
}

// podByName asks for a pod, its Events, the networks, and if it has to do with claims for these. Without the
// right to list the networks, the rest is checked.
func podByName(ctx context.Context, kube *cluster.Cluster, namespace, name string) (*world, error) {
	w := &world{pod: &doctor.Manifest{}, nads: &doctor.NADs{}}
	if err := kube.Get(ctx, cluster.Pods, namespace, name, w.pod); err != nil {
		return nil, fmt.Errorf("doctor pod: %w", err)
	}
	err := cluster.Each(ctx, kube, cluster.List{Of: cluster.Networks}, func(o *doctor.NAD, bad error) {
		if bad == nil {
			w.nads.Items = append(w.nads.Items, *o)
		}
	})
	if err != nil {
		w.nads = nil
	}
	if w.pod.Bare() { // what its resources are for, Fabrics and the node say; without them the manifest has to do
		fabrics, _, _ := listFabrics(ctx, kube)
		nodes, _, _ := fabricNodes(ctx, kube, w.pod.Spec.Node)
		w.pod.Know(fabrics, nodes)
	}
	w.dra = &doctor.DRA{Partial: true}
	if w.pod.Claimed() {
		w.dra.Partial = false
		listDRA(ctx, kube, w.dra, namespace)
		w.dra.FabricNodes, _, _ = fabricNodes(ctx, kube, "") // they only say more of devices that are down
	}
	if w.dra.Partial && len(w.pod.Spec.Claims) == 0 { // its devices are a device plugin's, as far as is known
		w.dra = &doctor.DRA{Partial: true}
	}
	if w.pod.Status.Phase != "Pending" {
		return w, nil
	}
	err = cluster.Each(ctx, kube, cluster.List{
		Of: cluster.Events, Namespace: namespace, Fields: "involvedObject.name=" + name,
	}, into(w.dra, listedKind[cluster.Events]))
	if err != nil {
		w.dra.Missing = append(w.dra.Missing, err.Error())
	}
	return w, nil
}
