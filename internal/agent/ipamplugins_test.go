package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// ipamOf is what an ipamReconciler says of a fabric with this section, after two looks.
func ipamOf(t *testing.T, binDir, hostProc string, section map[string]any, paths ...string) string {
	t.Helper()
	r := ipamReconciler{binDir: binDir, hostProc: hostProc, log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	text := ""
	for i := range 2 {
		v := &view{findings: &condition.Set{},
			assigned: map[string][]survey.Device{"ib": rails(device.PortActive, 1)},
			fabrics:  []fabrics.Fabric{{Name: "ib", Network: map[string]any{"ipam": section}}}}
		missing := r.reconcile(v, paths)
		c, _ := v.findings.Get(condition.IPAMMissing, condition.Fabric("ib"))
		if i == 0 && c.Message != "" {
			t.Errorf("said at the first look: %s", c.Message)
		}
		if text = c.Message; missing["ib"] != (text != "") {
			t.Errorf("missing: %v, %q", missing, text)
		}
	}
	return text
}

// put makes a file of the node: an executable, or a link.
func put(t *testing.T, root, file, link string) {
	t.Helper()
	file = filepath.Join(root, file)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil && link != "" {
		err = os.Symlink(link, file)
	} else if err == nil {
		err = os.WriteFile(file, []byte("#!/bin/sh"), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A plugin is looked for as the node sees its files: links of the plugin directory lead out of what the agent's
// container has of the node (k3s has nothing else there). Nothing is said where that can't be told.
func TestIPAMMissing(t *testing.T) {
	proc := t.TempDir()
	root := filepath.Join(proc, "1", "root")
	const bin = "/var/lib/rancher/k3s/data/cni"
	put(t, root, bin+"/whereabouts", "")
	put(t, root, "/usr/libexec/tools/ipam-a", "")
	put(t, root, bin+"/ipam-a", "/usr/libexec/tools/ipam-a")
	put(t, root, "/var/lib/rancher/k3s/data/abc/bin/cni", "")
	put(t, root, bin+"/dhcp", "../abc/bin/cni")
	put(t, root, bin+"/gone", "/usr/libexec/tools/gone")
	put(t, root, bin+"/loop", "loop")
	put(t, root, "/usr/libexec/cni/ipam-b", "")
	put(t, root, "/srv/cni/ipam-c", "")
	if err := os.Mkdir(filepath.Join(root, bin, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	for typ, want := range map[string]string{
		"whereabouts": "", "ipam-a": "", "dhcp": "", "ipam-b": "", "ipam-c": "", "host-local": "", "static": "",
		"whereabout": `fabric ib: there is no IPAM plugin "whereabout" in ` + bin + " of this node: did you mean " +
			"whereabouts?; install it there, or correct addresses.ipam.type",
		"hostlocal": "did you mean host-local?",
		"ipam-d":    "did you mean ipam-a?", // or any other of its neighbours
		"nv-ipam":   `there is no IPAM plugin "nv-ipam" in ` + bin + " of this node; install it there",
		"gone":      bin + "/gone: it is a link to what is not there: /usr/libexec/tools/gone; install it again",
		"loop":      bin + "/loop: it is a link to what is not there",
		"dir":       bin + "/dir: it is no executable file",
		"../dhcp":   "want the plain file name of a plugin",
		"x\x1b[2J":  "there is no IPAM plugin",
	} {
		got := ipamOf(t, bin, proc, map[string]any{"type": typ}, "/srv/cni:relative:")
		if strings.HasPrefix(typ, "ipam-d") {
			got = strings.Replace(got, "ipam-b?", "ipam-a?", 1)
		}
		if want == "" && got != "" || !strings.Contains(got, want) || strings.Contains(got, "\x1b") {
			t.Errorf("%s: %q, want %q", typ, got, want)
		}
	}
	got := ipamOf(t, bin, proc, map[string]any{"type": "host-local", "exlude": "10.0.0.1"})
	if want := "the built-in host-local does not know the key ipam.exlude"; !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := ipamOf(t, bin, filepath.Join(proc, "none"), map[string]any{"type": "whereabout"}); got != "" {
		t.Errorf("the node's files can't be seen: %q", got)
	}
}

// Without a /proc of the node a link that leads nowhere may lead somewhere on the node.
func TestIPAMUnknown(t *testing.T) {
	bin := t.TempDir()
	put(t, bin, "ipam-a", "/no/such/file")
	put(t, bin, "plain", "")
	for typ, want := range map[string]string{"ipam-a": "", "plain": "", "plian": "did you mean plain?"} {
		got := ipamOf(t, bin, "", map[string]any{"type": typ})
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", typ, got, want)
		}
	}
}
