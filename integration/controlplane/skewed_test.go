package controlplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/integration/controlplane"
	"github.com/fabric-cni/fabric-cni/internal/agent"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/controller"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// skewed is a cluster whose CRDs are of another version than the programs.
type skewed struct {
	*controlplane.Server
	client.Client

	t *testing.T
}

// tree is a schema, or any object.
type tree = map[string]any

// at goes down in an object.
func at(o tree, path ...string) tree {
	for _, p := range path {
		next, ok := o[p].(tree)
		if !ok {
			panic("the schema has no " + p)
		}
		o = next
	}
	return o
}

// properties are those of a property of a schema.
func properties(schema tree, path ...string) tree {
	for _, p := range path {
		schema = at(schema, "properties", p)
	}
	return at(schema, "properties")
}

var text = tree{"type": "string"}

// newer adds what a next version may add.
func newer(fabric, node tree) {
	spec := properties(fabric, "spec") // status.inForce.spec takes anything
	spec["class"] = text
	at(spec, "network", "properties")["colour"] = text
	attachment := at(spec, "attachment")
	attachment["enum"] = []any{"WholeDevice", "IPoIBChild", "turbo"}
	properties(fabric, "status")["phase"] = text
	properties(node, "spec")["zone"] = text
	properties(node, "status")["phase"] = text
	at(properties(node, "spec"), "ranges", "items", "properties")["weight"] = tree{"type": "integer"}
}

// strict requires a field that agents of this version do not write.
func strict(_, node tree) {
	properties(node, "status")["phase"] = text
	at(node, "properties", "status")["required"] = []any{"phase"}
}

// older lacks what this version has added, which is some of everything.
func older(fabric, node tree) {
	for _, f := range []string{"inventory", "plugin", "rdmaMode"} {
		delete(properties(node, "status"), f)
	}
	delete(at(properties(node, "status"), "fabrics", "items", "properties", "devices", "items", "properties"), "rateGb")
	delete(properties(node, "spec"), "allocator")
	for _, f := range []string{"rate", "published", "addresses"} {
		delete(properties(fabric, "status"), f)
	}
	delete(properties(fabric, "spec"), "health")
}

// startSkewed starts an API server with other CRDs.
func startSkewed(t *testing.T, change func(fabric, node tree)) *skewed {
	t.Helper()
	dir := t.TempDir()
	s, err := controlplane.Start(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	crds, schemas := map[string]tree{}, map[string]tree{}
	for _, name := range []string{"fabrics", "fabricnodes"} {
		b, err := os.ReadFile("../../deployments/helm/fabric-cni/crds/fabric.dev_" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		crd := tree{}
		if err := yaml.Unmarshal(b, &crd); err != nil {
			t.Fatal(err)
		}
		versions, _, err := unstructured.NestedFieldNoCopy(crd, "spec", "versions")
		if err != nil {
			t.Fatal(err)
		}
		list, _ := versions.([]any)
		version, ok := list[0].(tree)
		if !ok {
			t.Fatalf("CRD %s has no version", name)
		}
		delete(version, "additionalPrinterColumns")
		crds[name], schemas[name] = crd, at(version, "schema", "openAPIV3Schema")
	}
	change(schemas["fabrics"], schemas["fabricnodes"])
	for _, crd := range crds {
		b, err := yaml.Marshal(crd)
		if err == nil {
			err = s.ApplyText(t.Context(), b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Apply(t.Context(), s.Manifests()+"/*"); err != nil {
		t.Fatal(err)
	}
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(s.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &skewed{s, c, t}
}

// object is one as the API server has it, with all fields.
func (s *skewed) object(kind, name string) *unstructured.Unstructured {
	s.t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	if err := s.Get(s.t.Context(), client.ObjectKey{Name: name}, o); err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (s *skewed) version(kind, name string) string { return s.object(kind, name).GetResourceVersion() }

// text is a field of an object.
func (s *skewed) text(kind, name string, path ...string) string {
	s.t.Helper()
	v, _, err := unstructured.NestedFieldNoCopy(s.object(kind, name).Object, path...)
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprint(v)
}

// patch changes an object, or its status, as a program of another version does.
func (s *skewed) patch(kind, name, text string, more ...string) {
	s.t.Helper()
	o := s.object(kind, name)
	p := client.RawPatch(types.MergePatchType, []byte(text))
	var err error
	if len(more) > 0 {
		err = s.Status().Patch(s.t.Context(), o, p)
	} else {
		err = s.Patch(s.t.Context(), o, p)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *skewed) apply(name, spec string) {
	s.t.Helper()
	if err := s.ApplyText(s.t.Context(), []byte(testfabrics.Object(name, spec))); err != nil {
		s.t.Fatal(err)
	}
}

// skewedController is a controller whose rounds the test makes, each at another time.
type skewedController struct {
	*controller.Controller

	t   *testing.T
	now time.Time
}

func (s *skewed) controller() *skewedController {
	c := &skewedController{t: s.t, now: time.Now()}
	log := slog.New(slog.NewTextHandler(logs{s.t}, nil))
	ranges := controller.NewRanges(s.Client, s.Client, fmt.Sprint("term ", c.now.UnixNano()), yes, log)
	c.Controller = &controller.Controller{
		Client: s.Client, Ranges: ranges, Events: record.NewFakeRecorder(1000), Log: log,
		Now: func() time.Time { return c.now },
	}
	return c
}

func (c *skewedController) rounds(n int) {
	c.t.Helper()
	for range n {
		c.now = c.now.Add(time.Hour)
		if _, err := c.Round(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
	}
}

const ranged = `match: {linkLayer: InfiniBand}, attachment: WholeDevice, ` +
	`addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/24, perNodePrefixLength: 26}]}}`

// addSkewedNode is a Node and what its agent does.
func (s *skewed) addSkewedNode(name string) {
	s.t.Helper()
	if err := s.Client.Create(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		s.t.Fatal(err)
	}
	addNode(s.t, s.Client, name, "ib")
}

func (s *skewed) condition(name, kind string) string {
	s.t.Helper()
	return conditionOf(s.t, s.Client, name, kind)
}

// runAgent runs a whole agent of a node with one device until the returned function is called.
func (s *skewed) runAgent(node string) (stop func()) {
	s.t.Helper()
	dir := s.t.TempDir()
	kubeconfig := dir + "/kubeconfig"
	b, err := json.Marshal(tree{"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": []tree{{"name": "x", "cluster": tree{"server": s.Config.Host, "insecure-skip-tls-verify": true}}},
		"users":    []tree{{"name": "x", "user": tree{"token": s.Config.BearerToken}}},
		"contexts": []tree{{"name": "x", "context": tree{"cluster": "x", "user": "x"}}}})
	if err == nil {
		err = os.WriteFile(kubeconfig, b, 0o600)
	}
	if err == nil {
		err = os.WriteFile(dir+"/fabric", []byte("the binary"), 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	o := &agent.Options{
		Source: dir + "/fabric", BinDir: dir + "/bin", StateDir: dir + "/state", Policy: dir + "/policy",
		ConfDir: dir + "/conf", Kubeconfig: kubeconfig, Node: node, Interval: time.Second, Grace: time.Minute,
		Survey: func() ([]survey.Device, error) {
			port := device.Port{Number: 1, LinkLayer: device.InfiniBand, State: device.PortActive}
			return []survey.Device{{Location: device.LocationOnPCI("0000:3b:00.0"), NUMA: -1, RateGb: 400,
				Netdev: "ibs1", HCA: device.HCA{Name: "mlx5_0", Ports: []device.Port{port}}}}, nil
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- agent.Run(ctx, o, "v1", slog.New(slog.NewTextHandler(io.Discard, nil))) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	}
}
