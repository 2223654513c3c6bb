package generate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
)

// templates are the pods of an object that have devices, wherever they are in it: the launcher of an MPIJob has none.
func templates(v any) (out []map[string]any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			out = append(out, templates(e)...)
		}
	case map[string]any:
		spec, _ := v["spec"].(map[string]any)
		if list, ok := spec["containers"].([]any); ok && len(list) > 0 {
			if c, _ := list[0].(map[string]any); c["resources"] != nil {
				return []map[string]any{v}
			}
		}
		for _, k := range []string{"spec", "template", "mpiReplicaSpecs", "pytorchReplicaSpecs", "Worker", "Master",
			"Launcher", "tasks"} {
			out = append(out, templates(v[k])...)
		}
	}
	return out
}

// as decodes what was generated as another type.
func as(t *testing.T, from, into any) {
	t.Helper()
	b, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// hasShm reports whether the pod has a /dev/shm that is memory, with a limit.
func hasShm(pod map[string]any) bool {
	var p struct {
		Spec struct {
			Containers []struct {
				VolumeMounts []struct{ Name, MountPath string }
			}
			Volumes []struct {
				Name     string
				EmptyDir struct{ Medium, SizeLimit string }
			}
		}
	}
	b, err := json.Marshal(pod)
	if err != nil || json.Unmarshal(b, &p) != nil || len(p.Spec.Containers) == 0 {
		return false
	}
	for _, m := range p.Spec.Containers[0].VolumeMounts {
		for _, v := range p.Spec.Volumes {
			if m.MountPath == "/dev/shm" && m.Name == v.Name && v.EmptyDir.Medium == "Memory" &&
				v.EmptyDir.SizeLimit != "" {
				return true
			}
		}
	}
	return false
}

// What doctor pod demands of a pod's manifest, every generated workload has: with the networks that are generated
// beside it, and without knowing them.
func TestDoctorIsContent(t *testing.T) {
	variants := map[string]func(o *Options){
		"whole": func(*Options) {}, "two rails": func(o *Options) { o.Rails = 2 },
		"shared": func(o *Options) { o.Shared, o.Prefix = true, SharedPrefix },
		"VFs":    func(o *Options) { o.VFs = true },
	}
	for _, kind := range []string{"pod", "deployment", "pytorchjob", "mpijob", "volcano", "perftest-pods"} {
		for _, machine := range []string{"h20", "roce", "v100", "gb200", "rack1"} {
			for name, change := range variants {
				if name == "two rails" && machine == "v100" || machine == "rack1" && name == "VFs" {
					continue
				}
				what := fmt.Sprintf("%s of %s, %s", kind, machine, name)
				o := options()
				change(&o)
				text, err := Generate(kind, open(t, machine), o)
				if err != nil {
					t.Errorf("%s: %v", what, err)
					continue
				}
				o.Rails = 0
				networks, err := Generate("nad", open(t, machine), o)
				if err != nil {
					t.Fatal(err)
				}
				nads := &doctor.NADs{}
				as(t, map[string]any{"items": documents(t, networks)}, nads)
				var pods []map[string]any
				for _, d := range documents(t, text) {
					pods = append(pods, templates(d)...)
				}
				if len(pods) == 0 {
					t.Errorf("%s: no pod", what)
				}
				for _, pod := range pods {
					if !hasShm(pod) {
						t.Errorf("%s: no /dev/shm", what)
					}
					content(t, what, pod, nads)
					content(t, what, pod, nil)
				}
			}
		}
	}
}

// content wants no finding but OK of a pod that has been created and has no node yet.
func content(t *testing.T, what string, pod map[string]any, nads *doctor.NADs) {
	t.Helper()
	m := &doctor.Manifest{}
	as(t, pod, m)
	m.Kind, m.Metadata.Namespace, m.Status.Phase = "Pod", options().Namespace, "Pending"
	found, err := doctor.CheckManifest(m, nads)
	if err != nil || len(found) == 0 {
		t.Errorf("%s: %v, %v", what, found, err)
	}
	if i := slices.IndexFunc(found, func(f doctor.Finding) bool { return f.Status != doctor.OK }); i >= 0 {
		t.Errorf("%s: %+v", what, found[i])
	}
}

// So have the examples.
func TestDoctorIsContentWithExamples(t *testing.T) {
	files, err := filepath.Glob("../../../../deployments/examples/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	pods := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents(t, string(b)) {
			for _, pod := range templates(d) {
				pods++
				if !hasShm(pod) {
					t.Errorf("%s: no /dev/shm", file)
				}
				content(t, file, pod, nil)
			}
		}
	}
	if pods < len(files) {
		t.Errorf("%d pods in %d files", pods, len(files))
	}
}
