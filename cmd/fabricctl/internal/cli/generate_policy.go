package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/podlabel"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// policySource is where generate policy takes the Fabrics from, and what they do not say.
type policySource struct {
	podlabel.Options
	place
	*machine

	files []string
	console
	without []string // fabrics whose devices no resource gives
}

func generatePolicyCommand(a *app) *cobra.Command {
	p := &policySource{console: a.console, machine: &a.machine}
	c := &cobra.Command{
		Use:   "policy {-f FILE... | --cluster}",
		Short: "Write the admission policies that give a pod with one label its rails",
		Long: `generate policy writes a MutatingAdmissionPolicy that adds networks, resources and the capability
IPC_LOCK to pods with the label fabric.dev/rails or rails.fabric.dev/NAME, and a ValidatingAdmissionPolicy that
refuses wrong labels. Generate it again when Fabrics are added, removed or published elsewhere.

The value all means the devices of a node: with --cluster the number that most nodes have, else --devices. Kubernetes
has the API since 1.36, and since 1.34 behind the feature gate MutatingAdmissionPolicy.`,
		Example: `  fabricctl generate policy --cluster | kubectl apply -f -
  fabricctl generate policy -f fabrics.yaml --devices ib-200g=4 --api-version v1beta1`,
		Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := p.policy(cmd.Context())
			if err != nil {
				return err
			}
			return a.stdout.Document([]byte(text))
		},
	}
	f := c.Flags()
	f.StringArrayVarP(&p.files, "filename", "f", nil, "file with Fabrics; -: standard input")
	p.flags(c, "Fabrics, devices and API version of the cluster", "Fabrics of files (-f)")
	f.StringSliceVar(&p.Rails, "fabrics", nil, "fabrics that fabric.dev/rails counts: devices of one, or one of each "+
		"of several (default: those with match.rail, else the only one)")
	f.StringToIntVar(&p.All, "devices", nil, "NAME=N: how many devices of a fabric a node has, which is the value all "+
		"of a label")
	f.StringVar(&p.Version, "api-version", "", "of admissionregistration.k8s.io: v1, or v1beta1 for Kubernetes 1.34 "+
		"and 1.35 (default: v1, with --cluster what the cluster has)")
	return c
}

func (p *policySource) policy(ctx context.Context) (string, error) {
	p.settle(p.machine, len(p.files) > 0)
	if p.cluster == (len(p.files) > 0) {
		return "", fmt.Errorf("%w: want either --filename or --cluster", errUsage)
	}
	if p.Version != "" && !slices.Contains(podlabel.Versions, p.Version) {
		return "", fmt.Errorf("%w: --api-version %q: want v1 or v1beta1", errUsage, p.Version)
	}
	var list []*fabrics.Fabric
	var err error
	if p.cluster {
		list, err = p.ofCluster(ctx)
	} else {
		list, err = p.ofFiles()
	}
	if err != nil {
		return "", fmt.Errorf("generate policy: %w", err)
	}
	p.Version = cmp.Or(p.Version, podlabel.Versions[0])
	text, err := podlabel.Policy(list, p.Options)
	if err != nil {
		return "", fmt.Errorf("generate policy: %w", err)
	}
	if len(p.without) > 0 {
		text = fmt.Sprintf("# Without %s: %s\n# A pod that asks for these is refused. "+
			"fabricctl generate claim writes claims.\n%s", strings.Join(p.without, ", "), noResource, text)
	}
	return text, nil
}

// noResource is why a policy can't give pods the devices of a fabric.
const noResource = "allocation DRA, and its DeviceClass has no extendedResourceName: the API server's feature gate " +
	"DRAExtendedResource is off."

// withResource leaves out the fabrics whose devices pods do not get by a resource, which is all that a policy can add.
func (p *policySource) withResource(ctx context.Context, list []*fabrics.Fabric) ([]*fabrics.Fabric, error) {
	dra := func(f *fabrics.Fabric) bool { return f.Allocation == v1alpha1.DRA }
	if !slices.ContainsFunc(list, dra) {
		return list, nil
	}
	given := map[string]string{}
	err := cluster.Each(ctx, p.kube, cluster.List{Of: cluster.Classes}, func(c *resourcev1.DeviceClass, bad error) {
		if bad == nil && c.Spec.ExtendedResourceName != nil {
			given[c.Name] = *c.Spec.ExtendedResourceName
		}
	})
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(f *fabrics.Fabric) bool {
		out := dra(f) && given[f.DeviceClass()] != f.Resource()
		if out {
			p.without = append(p.without, f.Name)
		}
		return out
	})
	if len(list) == 0 {
		return nil, fmt.Errorf("fabrics %s: %s Write claims instead: fabricctl generate claim",
			strings.Join(p.without, ", "), noResource)
	}
	return list, nil
}

// ofFiles reads Fabrics, also those of a List as kubectl get -o yaml prints it.
func (p *policySource) ofFiles() (out []*fabrics.Fabric, err error) {
	for _, name := range p.files {
		objects, err := p.manifests(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, raw := range objects {
			f, err := readFabric(raw)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			out = append(out, f)
		}
	}
	return out, nil
}

func readFabric(raw []byte) (*fabrics.Fabric, error) {
	var head metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, err
	}
	if head.Kind != "Fabric" {
		return nil, fmt.Errorf("%.100s %.100q: want Fabrics only", head.Kind, head.Name)
	}
	o := &v1alpha1.Fabric{}
	if err := yaml.UnmarshalStrict(raw, o); err != nil {
		return nil, err
	}
	return inForce(o)
}

// inForce is the spec that the controller has accepted, or what is to be applied.
func inForce(o *v1alpha1.Fabric) (*fabrics.Fabric, error) {
	if o.Status.InForce != nil {
		o.Spec = o.Status.InForce.Spec
	}
	f, err := fabrics.Parse(o)
	if err != nil {
		return nil, fmt.Errorf("fabric %.100q: %w", o.Name, err)
	}
	return f, nil
}

func (p *policySource) ofCluster(ctx context.Context) (out []*fabrics.Fabric, err error) {
	list, bad, err := listFabrics(ctx, p.kube)
	if err = errors.Join(append(bad, err)...); err != nil {
		return nil, err
	}
	nodes, _, err := fabricNodes(ctx, p.kube, "") // inventories do not matter here
	if err != nil {
		return nil, err
	}
	usual := generate.UsualDevices(nodes)
	for i := range list {
		f, err := inForce(&list[i])
		if err != nil {
			return nil, err
		}
		out = append(out, f)
		if n := usual[f.Name]; p.All[f.Name] == 0 && n > 0 && f.Attachment == v1alpha1.WholeDevice {
			if p.All == nil {
				p.All = map[string]int{}
			}
			p.All[f.Name] = min(n, podlabel.MostRails)
		}
	}
	if p.Version == "" {
		if p.Version, err = servedVersion(ctx, p.kube); err != nil {
			return nil, err
		}
	}
	return p.withResource(ctx, out)
}

// servedVersion is the version of the policy that the API server has.
func servedVersion(ctx context.Context, kube *cluster.Cluster) (string, error) {
	const group = "admissionregistration.k8s.io"
	served, err := kube.Versions(ctx, group)
	if err != nil {
		return "", err
	}
	for _, v := range podlabel.Versions {
		if !slices.Contains(served, v) {
			continue
		}
		list, err := kube.Resources(ctx, group, v)
		if err != nil {
			return "", err
		}
		for _, r := range list {
			if r.Name == "mutatingadmissionpolicies" {
				return v, nil
			}
		}
	}
	return "", errors.New("the API server does not serve MutatingAdmissionPolicy: Kubernetes does since 1.36, and " +
		"since 1.34 with --feature-gates=MutatingAdmissionPolicy=true and " +
		"--runtime-config=admissionregistration.k8s.io/v1beta1=true; --api-version writes the policies nevertheless")
}
