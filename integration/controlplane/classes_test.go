package controlplane_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// classes are the DeviceClasses by name, each as "expression; resource; owners".
func classes(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(fabrics.Classes)
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for i := range list.Items {
		u := &list.Items[i]
		var owners []string
		for _, r := range u.GetOwnerReferences() {
			owners = append(owners, r.Name)
		}
		selectors, _, _ := unstructured.NestedSlice(u.Object, "spec", "selectors")
		resource, _, _ := unstructured.NestedString(u.Object, "spec", fabrics.ExtendedResource)
		text := ""
		if len(selectors) == 1 {
			text = fmt.Sprint(selectors[0])
		}
		out[u.GetName()] = fmt.Sprintf("%s; %s; %s", text, resource, strings.Join(owners, " "))
	}
	return out
}

func classOf(name, resource string) string {
	return fmt.Sprintf(`map[cel:map[expression:device.driver == "fabric.dev" && `+
		`device.attributes["fabric.dev"].fabric == %q]]; %s; %s`, name, resource, name)
}

func allClass(owners string) string {
	return `map[cel:map[expression:device.driver == "fabric.dev"]]; ; ` + owners
}

func untilClasses(t *testing.T, c client.Client, want map[string]string) {
	t.Helper()
	until(t, func() string {
		if got := classes(t, c); !maps.Equal(got, want) {
			return fmt.Sprintf("DeviceClasses %q, want %q", got, want)
		}
		return ""
	})
}

// versions are the resource versions of all DeviceClasses.
func versions(t *testing.T, c client.Client) (out []string) {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(fabrics.Classes)
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		out = append(out, list.Items[i].GetName()+" "+list.Items[i].GetResourceVersion())
	}
	return out
}

// A controller with the permissions of the manifests makes the classes of the Fabrics with allocation DRA, and removes
// them with the Fabrics, and when kubelet gets the devices again. This API server has no extended resources by DRA.
func TestDeviceClasses(t *testing.T) {
	freshWith(t, []string{oldest}, append(everything, server.Manifests()+"/*")...)
	c := whole(t)
	defer removeFabrics(t, c)
	defer control(t)()
	apply(t, testfabrics.Object("plain", `{}`))
	apply(t, testfabrics.Object("ra", `{allocation: DRA}`))
	apply(t, testfabrics.Object("rb", `{allocation: DRA, attachment: IPoIBChild}`))
	untilClasses(t, c, map[string]string{
		"fabric.dev": allClass("ra rb"), "ra.fabric.dev": classOf("ra", ""), "rb.fabric.dev": classOf("rb", ""),
	})
	untilCondition(t, c, "ra", v1alpha1.FabricPublished, "True Published")
	nad := definition("ra")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(nad), nad); err != nil {
		t.Fatal(err)
	}
	config, _, _ := unstructured.NestedString(nad.Object, "spec", "config")
	if !strings.Contains(config, `"allocation": "DRA"`) ||
		nad.GetAnnotations()[fabrics.ResourceAnnotation] != "fabric.dev/ra" {
		t.Errorf("%s %q", config, nad.GetAnnotations())
	}
	apply(t, testfabrics.Object("rb", `{allocation: DevicePlugin, attachment: IPoIBChild}`))
	untilClasses(t, c, map[string]string{"fabric.dev": allClass("ra"), "ra.fabric.dev": classOf("ra", "")})

	// A Fabric that pods use stays, and no further pod gets a device of it.
	createNode(t, c, "classes")
	addNode(t, c, "classes", "ra")
	defer removeNodes(t, c)
	use(t, c, "classes", "team/a")
	untilHeld(t, c, "ra")
	if err := c.Delete(t.Context(), &v1alpha1.Fabric{ObjectMeta: metav1.ObjectMeta{Name: "ra"}}); err != nil {
		t.Fatal(err)
	}
	untilCondition(t, c, "ra", v1alpha1.FabricReady, "False InUse")
	untilClasses(t, c, map[string]string{})
}

// foreignClass is mine.fabric.dev of another owner, as classes has it: theirClass.
const (
	foreignClass = `{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: mine.fabric.dev},
  spec: {selectors: [{cel: {expression: 'device.driver == "moon.example.com"'}}]}}`
	theirClass = `map[cel:map[expression:device.driver == "moon.example.com"]]; ; `
)

// Another owner's class is left alone, and what a user has changed of ours is as it was within a minute. A round that
// finds all in order writes nothing, also where the API server drops the name of the resource.
func TestForeignDeviceClass(t *testing.T) {
	freshWith(t, []string{oldest}, append(everything, server.Manifests()+"/*")...)
	c := whole(t)
	defer removeFabrics(t, c)
	apply(t, foreignClass)
	s := newStepper(t, c)
	apply(t, testfabrics.Object("mine", `{allocation: DRA}`))
	apply(t, testfabrics.Object("ra", `{allocation: DRA}`))
	s.becomes("mine", v1alpha1.FabricPublished,
		"False DeviceClassConflict: another owner's DeviceClass mine.fabric.dev is left as it is: remove or rename it")
	s.becomes("ra", v1alpha1.FabricPublished, "True Published")
	untilDefined(t, c, "mine", "default")
	theirs := &unstructured.Unstructured{}
	theirs.SetGroupVersionKind(fabrics.Classes)
	theirs.SetName("mine.fabric.dev")
	if got := classes(t, c)["mine.fabric.dev"]; got != theirClass {
		t.Error(got)
	}
	if err := c.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	s.becomes("mine", v1alpha1.FabricPublished, "True Published")
	want := map[string]string{
		"fabric.dev": allClass("mine ra"), "mine.fabric.dev": classOf("mine", ""), "ra.fabric.dev": classOf("ra", ""),
	}
	untilClasses(t, c, want)

	ours := theirs.DeepCopy()
	ours.SetName("ra.fabric.dev")
	patch := `{"spec": {"selectors": [{"cel": {"expression": "true"}}]}}`
	if err := c.Patch(t.Context(), ours, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
	s.round(time.Minute)
	untilClasses(t, c, want)
	before := versions(t, c)
	for range 30 {
		s.round(time.Minute)
	}
	if after := versions(t, c); !slices.Equal(before, after) {
		t.Errorf("%q became %q although all was in order", before, after)
	}
	removeFabrics(t, c)
	s.round(0)
	untilClasses(t, c, map[string]string{})
}

// A cluster without DRA keeps what is in force, and says what is missing. The update of the cluster is noticed, and so
// is the feature gate by which the resource gives pods the same devices.
func TestDRALater(t *testing.T) {
	freshWith(t, []string{"--runtime-config=resource.k8s.io/v1=false"}, append(everything, server.Manifests()+"/*")...)
	c := whole(t)
	plain := slices.DeleteFunc(slices.Clone(server.Flags), func(f string) bool {
		return strings.HasPrefix(f, "--runtime-config=")
	})
	restart := func(flags ...string) {
		t.Helper()
		server.StopAPI()
		server.Flags = append(slices.Clip(plain), flags...)
		if err := server.StartAPI(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s := newStepper(t, c)
	apply(t, testfabrics.Object("late", `{}`))
	s.becomes("late", v1alpha1.FabricAccepted, "True Accepted")
	apply(t, testfabrics.Object("late", `{allocation: DRA}`))
	apply(t, testfabrics.Object("new", `{allocation: DRA}`))
	const missing = "the API server does not serve DeviceClasses of resource.k8s.io/v1: it needs Kubernetes 1.34; "
	s.becomes("late", v1alpha1.FabricAccepted, "False DRANotServed: generation 1 stays in force: allocation DRA: "+
		missing+"update the cluster, or write allocation: DevicePlugin")
	s.becomes("new", v1alpha1.FabricReady, "False DRANotServed: no generation was ever accepted: allocation DRA: "+
		missing)
	// The cluster could do it once.
	apply(t, testfabrics.Object("once", `{allocation: DRA}`))
	once := &v1alpha1.Fabric{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "once"}, once); err != nil {
		t.Fatal(err)
	}
	once.Status.InForce = &v1alpha1.FabricInForce{Generation: once.Generation, Spec: once.Spec}
	if err := c.Status().Update(t.Context(), once); err != nil {
		t.Fatal(err)
	}
	s.becomes("once", v1alpha1.FabricReady, "False DRANotServed: allocation DRA: "+missing)
	if err := c.Delete(t.Context(), once); err != nil {
		t.Fatal(err)
	}

	restart(oldest)
	s.becomes("late", v1alpha1.FabricAccepted, "True Accepted")
	s.becomes("new", v1alpha1.FabricAccepted, "True Accepted")
	untilClasses(t, c, map[string]string{
		"fabric.dev": allClass("late new"), "late.fabric.dev": classOf("late", ""),
		"new.fabric.dev": classOf("new", ""),
	})
	restart("--feature-gates=DRAExtendedResource=true")
	s.round(11 * time.Minute)
	untilClasses(t, c, map[string]string{
		"fabric.dev": allClass("late new"), "late.fabric.dev": classOf("late", "fabric.dev/late"),
		"new.fabric.dev": classOf("new", "fabric.dev/new"),
	})
}

// The API server accepts the examples for DRA, the objects in their page, and pods of the template of a PyTorchJob.
func TestClaimExamples(t *testing.T) {
	c := whole(t)
	create(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "default"}})
	files, err := filepath.Glob(manifests + "examples/dra-*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%q, %v", files, err)
	}
	page, err := os.ReadFile("../../docs/dra.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(apiVersion.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) < 2 {
		t.Fatal("docs/dra.md has no objects")
	}
	var texts [][]byte
	for _, m := range blocks {
		texts = append(texts, m[1])
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, b)
	}
	for _, b := range texts {
		var list []string
		for _, o := range objects(t, string(b)) {
			u := unstructured.Unstructured{Object: o}
			if u.GetKind() == "PyTorchJob" {
				u.Object, _, _ = unstructured.NestedMap(o, "spec", "pytorchReplicaSpecs", "Worker", "template")
				u.SetAPIVersion("v1")
				u.SetKind("Pod")
				u.SetName("worker")
			}
			text, err := u.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, string(text))
		}
		accepted(t, strings.Join(list, "\n---\n"))
	}
}
