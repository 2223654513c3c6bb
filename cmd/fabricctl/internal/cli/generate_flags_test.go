package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// ctl runs the program, as if kubectl were not there.
func ctl(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, diag bytes.Buffer
	a := &app{
		console: console{stdin: strings.NewReader(""), stdout: quote.Printer{W: &out}, stderr: quote.Printer{W: &diag}},
		getenv:  os.Getenv, version: "test",
	}
	status = a.run(t.Context(), append([]string{"fabricctl"}, args...))
	return status, out.String(), diag.String()
}

// planted are directories with machines, by their names.
func planted(t *testing.T, names ...string) map[string]string {
	t.Helper()
	dirs := map[string]string{}
	for _, name := range names {
		dirs[name] = filepath.Join(t.TempDir(), name)
		if err := machines.Named(name).Plant(dirs[name]); err != nil {
			t.Fatal(err)
		}
	}
	return dirs
}

// nonsense are values that no flag may take in silence: KIND, MACHINE, FLAG=VALUE, and what the error says is wanted.
var nonsense = [][4]string{
	{"pod", "h20", "--namespace=Foo", "want small letters"},
	{"fabric", "h20", "--namespace=", "want small letters"},
	{"pod", "h20", "--name=Foo_Bar", "want small letters"},
	{"pod", "h20", "--image=x y", "want an image such as"},
	{"claim", "h20", "--image=example.com/x:1", "--with-pod writes a pod with it"},
	{"pod", "h20", "--fabric=ib-1g", "there are ib-400g"},
	{"pod", "h20", "--resource-prefix=rdma", "want --shared, or the prefix of an SR-IOV network device plugin"},
	{"nad", "h20", "--resource-prefix=rdma", "want --shared"},
	{"nad", "h20", "--resource-prefix=fabric.dev", "its controller makes their networks"},
	{"pod", "h20", "--resource-prefix=node.kubernetes.io", "want a domain such as nvidia.com"},
	{"nad", "h20", "--range=10.20.0.0/16", "overlaps the node's own subnet, 10.20.0.11/24 of bond0 on node h20"},
	{"fabric", "h20", "--range=10.20.0.0/25", "overlaps the node's own subnet, 10.20.0.11/24 of bond0 on node h20"},
	{"nad", "roce", "--range=192.168.0.0/16", "192.168.10.11/24 of xgbe2 on node roce: want another range, or " +
		"--exclude"},
	{"nad", "h20", "--range=192.168.1.0", "want a range of addresses such as 198.18.0.0/16"},
	{"nad", "h20", "--range=192.168.1.0/16", "want 192.168.0.0/16"},
	{"nad", "h20", "--range=224.0.0.0/8", "want unicast addresses"},
	{"nad", "h20", "--exclude=10.0.0.0/8", "want a part of --range, which is missing"},
	{"nad", "h20", "--exclude=192.168.128.1", "want a range of addresses"},
	{"device-plugin", "h20", "--cluster=true", "from recordings"},
	{"nad", "h20", "--nodes=-5", "want 0 to 100000"},
	{"nad", "h20", "--nodes=1000000000", "want 0 to 100000"},
	{"nad", "h20", "--target=openshift", "want one of network-operator"},
	{"deployment", "h20", "--workers=0", "want 1 to 10000"},
	{"pytorchjob", "h20", "--workers=1", "want 2 to 10000"},
	{"perftest-pods", "h20", "--workers=100000000", "want 2 to 10000"},
	{"pod", "h20", "--gpus=99", "want 0 to 8: no node of ib-400g has more GPUs"},
	{"pod", "h20", "--gpus=-2", "want -1 to 1024"},
	{"claim", "h20", "--gpus=1", "a claim has GPUs with --gpu-class"},
	{"pod", "v100-7", "--gpus=1", "no node of ib-100g has a GPU; --gpu-resource names another accelerator"},
	{"pod", "h20", "--gpu-resource=gpu", "want a resource such as nvidia.com/gpu"},
	{"pod", "h20", "--gpu-resource=nvidia.com/a b", "want a resource such as"},
	{"pod", "h20", "--allocation=claims", "want one of device-plugin, dra"},
	{"pod", "h20", "--rails=-1", "want 0 to 32"},
	{"pod", "h20", "--rails=5", "want 1 to 4: a node has 4 of ib-400g"},
	{"pod", "h20", "--rails=99", "want 0 to 32"},
	{"pod", "h20", "--first-rail=1", "is for rails that are planes"},
	{"pod", "roce", "--first-rail=4", "want 0 to 3: a node has 4 rails, 0 to 3"},
	{"pod", "roce", "--first-rail=-1", "want 0 to 31"},
	{"claim", "h20", "--min-rate=-1", "want 0 to 100000"},
	{"claim", "h20", "--min-rate=800", "the rails of ib-400g have 400 Gb/s"},
	{"claim", "h20", "--gpu-class=a b", "want a domain such as"},
}

// Each flag of generate has values that mean nothing; the error names the flag, the value, and what is allowed.
func TestGenerateNonsense(t *testing.T) {
	dirs := planted(t, "h20", "roce", "v100-7")
	tested := map[string]bool{}
	for _, c := range nonsense {
		kind, dir, flag, want := c[0], dirs[c[1]], c[2], c[3]
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		tested[name] = true
		status, out, diag := ctl(t, "generate", kind, "--root", dir, flag)
		if name == "fabric" { // which of them there are is no matter of the command line
			if status != exitFailed {
				t.Errorf("generate %s %s: exit status %d", kind, flag, status)
			}
		} else if status != exitUsage {
			t.Errorf("generate %s %s: exit status %d: %s%s", kind, flag, status, out, diag)
		}
		if !strings.Contains(diag, want) || !strings.Contains(diag, name) || out != "" ||
			!strings.Contains(diag, value) && value != "true" {
			t.Errorf("generate %s %s: want %q, and flag and value, in %q", kind, flag, want, diag)
		}
	}
	for _, kind := range generate.Kinds {
		generateKindCommand(&app{}, kind).Flags().VisitAll(func(f *pflag.Flag) {
			if !tested[f.Name] && f.Value.Type() != "bool" {
				t.Errorf("--%s has no value here that is refused", f.Name)
			}
		})
	}
}

// A flag of one kind is unknown to the kinds that have no use for it.
func TestGenerateForeignFlags(t *testing.T) {
	for kind, flags := range map[string]string{
		"fabric":        "name image resource-prefix target workers gpus vfs shared with-pod rails gpu-class",
		"nad":           "name image cluster local workers gpus gpu-resource allocation with-pod rails",
		"pod":           "range exclude nodes target workers same-node with-pod",
		"claim":         "range resource-prefix vfs shared allocation workers same-node",
		"device-plugin": "image range exclude target allocation rails",
		"perftest-pods": "gpus gpu-resource with-pod",
	} {
		for name := range strings.FieldsSeq(flags) {
			status, out, diag := ctl(t, "generate", kind, "--"+name+"=1")
			if status != exitUsage || out != "" || !strings.Contains(diag, "unknown flag: --"+name+"; see") {
				t.Errorf("generate %s --%s: exit status %d: %s%s", kind, name, status, out, diag)
			}
		}
	}
}

// Every flag means something to every kind that it is accepted for: it is refused, or the output is another one.
func TestGenerateIgnoresNoFlag(t *testing.T) {
	dirs := planted(t, "v100", "roce")
	values := map[string]string{
		"namespace": "ml", "name": "train", "image": "example.com/other:2", "fabric": "ib-100g",
		"resource-prefix": "example.com",
		"range":           "10.99.0.0/16", "exclude": "198.18.0.0/28", "nodes": "5000", "workers": "3", "gpus": "1",
		"gpu-resource": "nvidia.com/v100", "vfs": "true", "target": "network-operator", "same-node": "true",
		"allocation": "dra", "with-pod": "true",
		"rails":      "1",
		"first-rail": "1", "per-rail": "true", "min-rate": "1", "gpu-class": "gpu.nvidia.com", "shared": "true",
	}
	for _, kind := range generate.Kinds {
		plain, args := map[string]string{}, []string{"generate", kind}
		if kind == "fabric" || kind == "nad" {
			args = append(args, "--range", "198.18.0.0/18")
		}
		for name, dir := range dirs {
			_, plain[name], _ = ctl(t, append(slices.Clone(args), "--root", dir)...)
		}
		generateKindCommand(&app{}, kind).Flags().VisitAll(func(f *pflag.Flag) {
			value, ok := values[f.Name]
			if !ok && !slices.Contains([]string{"help", "cluster", "local"}, f.Name) {
				t.Errorf("--%s: no value", f.Name)
			}
			if !ok || f.Name == "fabric" { // which the machines have one of
				return
			}
			same := 0
			for name, dir := range dirs {
				with := append(slices.Clone(args), "--root", dir, fmt.Sprintf("--%s=%s", f.Name, value))
				status, out, diag := ctl(t, with...)
				if status == exitOK && out == plain[name] {
					same++
				}
				if status == exitOK && diag != "" {
					t.Errorf("generate %s --%s: %s", kind, f.Name, diag)
				}
			}
			if same == len(dirs) {
				t.Errorf("generate %s --%s=%s writes the same as without it", kind, f.Name, value)
			}
		})
	}
}
