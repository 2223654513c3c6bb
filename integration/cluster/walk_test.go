package cluster

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/testkit/page"
	"github.com/fabric-cni/fabric-cni/scripts/image"
	"github.com/fabric-cni/fabric-cni/scripts/image/oci"
)

// Images that the pages name, and what they are here. A walk has no registry.
var pageImages = map[string]string{
	"registry.example.com/fabric-agent:v1": "localhost/fabric-agent:latest",
	"registry.example.com/fabric-agent:v2": "localhost/fabric-agent:latest",
	"registry.example.com/training:v1":     "localhost/box:e2e",
}

// tagged is a script that gives a node's images the names that the pages have for them.
func tagged() string {
	var script strings.Builder
	for name, image := range pageImages {
		script.WriteString("ctr -n k8s.io images tag --force " + image + " " + name + " &&\n")
	}
	return script.String() + "true"
}

// imported gives an image to the node rig.
func imported(t *testing.T, name string, image oci.Image) {
	t.Helper()
	archive, err := current.image(name, image)
	if err != nil {
		t.Fatal(err)
	}
	if err := current.load(archive); err != nil {
		t.Fatal(err)
	}
}

// tag gives an image of the node rig another name.
func tag(t *testing.T, image, name string) {
	t.Helper()
	if _, err := output("ctr", "-n", "k8s.io", "images", "tag", "--force", image, name); err != nil {
		t.Fatal(err)
	}
}

// installed is a script that lists what a node has of this project, or of others in the same directories. kubelet has a
// checkpoint of its own since the first device plugin.
const installed = "find /opt/cni/bin /etc/cni /run/fabric-cni /run/k8s.cni.cncf.io /run/cdi " +
	"/var/lib/kubelet/device-plugins /var/lib/kubelet/plugins /var/lib/kubelet/plugins_registry " +
	"! -type d ! -name kubelet_internal_checkpoint 2>/dev/null | sort"

// Both ways through docs/install.md, on a node without HCAs: they end with the node and the cluster as they were.
func TestWalkInstall(t *testing.T) {
	imported(t, "localhost/fabric-agent:latest", image.Agent("amd64", filepath.Join(current.run, "bin"), "e2e"))
	shell := func(script string) string {
		out, err := outputWith("", "bash", "-c", script)
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return out
	}
	shell(tagged())
	shell("mv /opt/cni/bin/fabric /opt/cni/bin/fabric.of-the-tests")
	t.Cleanup(func() { shell("mv /opt/cni/bin/fabric.of-the-tests /opt/cni/bin/fabric") })
	for _, way := range []string{"helm", "kustomize"} {
		t.Run(way, func(t *testing.T) {
			files, objects := shell(installed), objectsOf(t)
			t.Cleanup(func() {
				if t.Failed() {
					_, _ = outputWith("", "helm", "uninstall", "fabric", "-n", "fabric-system", "--no-hooks")
					removed(t, "namespace", "fabric-system")
					removed(t, "-k", filepath.Join(current.repo, "deployments/crds"))
				}
			})
			walk(t, "docs/install.md", way, nil).run(t)
			want := slices.DeleteFunc(strings.Fields(files), func(file string) bool {
				return strings.HasPrefix(file, journal.DefaultDir+"/") // what earlier tests left goes, too
			})
			if diff := cmp.Diff(want, strings.Fields(shell(installed))); diff != "" {
				t.Errorf("the node (-before +after):\n%s", diff)
			}
			sameObjects(t, objects)
		})
	}
}

// objectsOf are all objects of the cluster but those that come by themselves, once what earlier tests left has ended:
// what is being deleted, what outlives its owner until the garbage collector comes, and ResourceSlices, which kubelet
// deletes 30 s after their driver has gone.
func objectsOf(t *testing.T) (all []string) {
	t.Helper()
	until(t, "nothing is being deleted, and no object without its owner or ResourceSlice is left", func() error {
		objects, err := listObjects()
		if err != nil {
			return err
		}
		alive := map[string]bool{}
		for _, o := range objects {
			alive[o.uid] = true
		}
		for _, o := range objects {
			gone := func(uid string) bool { return !alive[uid] }
			if o.deleted || slices.ContainsFunc(o.owners, gone) || strings.HasPrefix(o.name, "ResourceSlice ") {
				return textError(o.name)
			}
		}
		all = namesOf(objects)
		return nil
	})
	return all
}

func namesOf(objects []object) (all []string) {
	for _, o := range objects {
		all = append(all, o.name)
	}
	return all
}

// object is one of the cluster.
type object struct {
	name, uid string // name: kind, API group and version, namespace if any, and name
	deleted   bool   // being deleted
	owners    []string
}

// objectLines prints one line for each object: name, a tab, UID, whether it is being deleted, and its owners' UIDs. The
// name of a pod that a controller makes again elsewhere, when it is evicted, is what all of them have in common.
const objectLines = "{{range .items}}" +
	"{{.kind}} {{.apiVersion}} {{with .metadata.namespace}}{{.}}/{{end}}" +
	`{{if and (eq .kind "Pod") .metadata.generateName}}{{.metadata.generateName}}{{else}}{{.metadata.name}}{{end}}` +
	"\t{{.metadata.uid}} {{if .metadata.deletionTimestamp}}true{{else}}false{{end}}" +
	"{{range .metadata.ownerReferences}} {{.uid}}{{end}}\n{{end}}"

func listObjects() (objects []object, err error) {
	out, err := output("kubectl", "api-resources", "--verbs=list", "-o", "name")
	if err != nil {
		return nil, err
	}
	kinds := slices.DeleteFunc(strings.Fields(out), func(kind string) bool {
		return strings.HasPrefix(kind, "events") || strings.HasPrefix(kind, "leases.") || kind == "componentstatuses"
	})
	out, err = output("kubectl", "get", strings.Join(kinds, ","), "-A", "-o", "go-template="+objectLines)
	for line := range strings.Lines(out) {
		name, rest, _ := strings.Cut(line, "\t")
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			return nil, textError("not an object: " + line)
		}
		objects = append(objects, object{name, fields[0], fields[1] == "true", fields[2:]})
	}
	slices.SortFunc(objects, func(a, b object) int { return strings.Compare(a.name, b.name) })
	return objects, err
}

// sameObjects waits until the cluster has the objects that it had.
func sameObjects(t *testing.T, before []string) {
	t.Helper()
	until(t, "the cluster has the objects that it had", func() error {
		now, err := listObjects()
		if err != nil {
			return err
		}
		if diff := cmp.Diff(before, namesOf(now)); diff != "" {
			return textError("(-before +after):\n" + diff)
		}
		return nil
	})
}

// pageWalk is a walk through a page.
type pageWalk struct {
	page.Walker

	page   string
	blocks []page.Block
	dir    string
	node   func(node, script string) (string, error)
	after  map[string]func() // assertions after a step, by the beginning of its bold words
}

// walk makes one: in a directory with the manifests, as in a clone of the repository.
func walk(t *testing.T, name, way string, names map[string]string) *pageWalk {
	t.Helper()
	blocks, err := page.Parse(read(t, filepath.Join(current.repo, name)), way, "kustomize", "helm")
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	w := &pageWalk{page: name, blocks: blocks, dir: t.TempDir(), after: map[string]func(){}}
	bin := filepath.Join(w.dir, "bin")
	err = errors.Join(
		os.CopyFS(filepath.Join(w.dir, "deployments"), os.DirFS(filepath.Join(current.repo, "deployments"))),
		os.Mkdir(bin, 0o755),
		os.Symlink(filepath.Join(current.run, "bin/fabricctl"), filepath.Join(bin, "kubectl-fabric")))
	if err != nil {
		t.Fatal(err)
	}
	w.Walker = page.Walker{
		Shell: func(node, script string) (string, error) {
			if node != "" {
				return w.node(node, script)
			}
			cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
			cmd.Dir, cmd.Env = w.dir, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			return string(out), err
		},
		Write: func(name, text string) error {
			return os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600)
		},
		Until: func(what string, f func() error) error { return poll(what, patience, soon, f) },
		Log:   t.Logf,
	}
	// The longer of two that begin alike comes first.
	for _, name := range slices.SortedFunc(maps.Keys(names), func(a, b string) int { return len(b) - len(a) }) {
		w.Names = append(w.Names, name, names[name])
	}
	return w
}

// record makes the recording that FABRIC_E2E_CAST names, a path from the root of the repository if it is relative. The
// site plays docs/casts/kubernetes.cast on the page.
func (w *pageWalk) record(t *testing.T) {
	t.Helper()
	path := os.Getenv("FABRIC_E2E_CAST")
	if path == "" {
		return
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(current.repo, path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if w.Cast, err = page.NewCast(f, "fabric-cni: first steps on Kubernetes", time.Now); err != nil {
		t.Fatal(err)
	}
}

// run walks the page from its first block to its last.
func (w *pageWalk) run(t *testing.T) {
	t.Helper()
	for i := range w.blocks {
		b := &w.blocks[i]
		if err := w.Walk(b); err != nil {
			t.Fatalf("%s: %v", w.page, err)
		}
		if i+1 < len(w.blocks) && w.blocks[i+1].Step == b.Step && w.blocks[i+1].Heading == b.Heading {
			continue
		}
		stage(t, w.page+": "+b.Heading+": "+b.Step)
		for step, assert := range w.after {
			if strings.HasPrefix(b.Step, step) {
				assert()
				delete(w.after, step)
			}
		}
	}
	for step := range w.after {
		t.Errorf("%s has no step that begins with %q", w.page, step)
	}
}
