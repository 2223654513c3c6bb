package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// onMac runs a command as on a system that is not Linux.
func onMac(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, said bytes.Buffer
	a := &app{
		console: console{
			stdin: strings.NewReader(""), stdout: quote.Printer{W: &out}, stderr: quote.Printer{W: &said},
		},
		machine: machine{goos: "darwin"}, getenv: func(string) string { return "" }, version: "test",
	}
	status = a.run(t.Context(), append([]string{"fabricctl"}, args...))
	return status, out.String(), said.String()
}

// Without Linux, a command that needs it reports that, and one that reads recordings works.
func TestNotLinux(t *testing.T) {
	const (
		here  = " needs a Linux node: run it there\n"
		there = " needs a Linux node: run it there, or give --root RECORDING"
	)
	for command, want := range map[string]string{
		"list": here, "plan --netns x": here, "repair": here, "watch": here,
		"discover": there, "doctor host": there, "doctor pod": there, "nccl-env": there,
		"discover --record x.tar.gz": there, "generate pod": there,
	} {
		status, stdout, stderr := onMac(t, strings.Fields(command)...)
		name, _, _ := strings.Cut(command, " -")
		if status != exitFailed || stdout != "" || !strings.HasPrefix(stderr, "fabricctl: "+name+want) {
			t.Errorf("%s: %d %q %q", command, status, stdout, stderr)
		}
	}
	dir := filepath.Join(t.TempDir(), "h20")
	if err := machines.H20().Plant(dir); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"discover", "doctor host", "nccl-env", "doctor pod"} {
		status, stdout, stderr := onMac(t, append(strings.Fields(command), "--root", dir)...)
		if status != exitOK && status != exitFinding || stdout == "" {
			t.Errorf("%s of a recording: %d %q %q", command, status, stdout, stderr)
		}
	}
	if status, stdout, stderr := onMac(t, "generate", "nad", "--range", "198.18.0.0/18", dir); status != exitOK {
		t.Errorf("generate: %d %q %q", status, stdout, stderr)
	}
}

// In the agent's container the files that doctor host reads, and that a recording has, are the node's.
func TestInContainer(t *testing.T) {
	proc, root := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"usr/lib/modprobe.d/node.conf":              "options ib_core netns_mode=0\n",
		"usr/lib/systemd/system/containerd.service": "[Service]\nLimitMEMLOCK=8M\n",
		"etc/cni/net.d/00-multus.conf":              "{}",
		"opt/cni/bin/bridge":                        "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{
		filepath.Join(root, "etc/modprobe.d"): "/usr/lib/modprobe.d", // from the node's root directory
		filepath.Join(proc, "1"):              "2",
		filepath.Join(proc, "2"):              ".",
		filepath.Join(proc, "root"):           root,
	} {
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	in := func(args ...string) (a *app, status int, stderr string) {
		var out, said bytes.Buffer
		a = &app{
			console: console{
				stdin: strings.NewReader(""), stdout: quote.Printer{W: &out}, stderr: quote.Printer{W: &said},
			},
			machine: machine{hostProc: proc}, getenv: func(string) string { return "" }, version: "test",
		}
		status = a.run(t.Context(), append([]string{"fabricctl"}, args...))
		return a, status, said.String()
	}
	a, _, stderr := in("doctor", "host", "--all")
	if !strings.Contains(stderr, "its node is looked at, through "+proc) {
		t.Errorf("stderr: %s", stderr)
	}
	h, err := a.host()
	if err != nil {
		t.Fatal(err)
	}
	if h.ModeConf != "0" || h.ModeFile != "/etc/modprobe.d/node.conf" || h.Memlock != "8M" || len(h.CNI) != 1 ||
		len(h.Plugins) != 1 || h.Cmdline == "" || h.Node.Name == "recorded" {
		t.Errorf("%+v", h)
	}
	file := filepath.Join(t.TempDir(), "node.tar.gz")
	if _, status, stderr := in("discover", "--record", file); status != exitOK {
		t.Fatal(status, stderr)
	}
	a.root = file
	if h, err = a.host(); err != nil || h.ModeConf != "0" || h.Memlock != "8M" {
		t.Errorf("%+v, %v", h, err)
	}
}
