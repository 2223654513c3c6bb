package cli

import (
	"bytes"
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
	status = a.run(t.Context(), append([]string{"kubectl-fabric"}, args...))
	return status, out.String(), said.String()
}

// Where there is no Linux, what needs it says so, and what reads recordings works.
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
		if name == "generate pod" {
			name = "generate"
		}
		if status != exitFailed || stdout != "" || !strings.HasPrefix(stderr, "kubectl fabric: "+name+want) {
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
	if status, stdout, stderr := onMac(t, "generate", "nad", dir); status != exitOK {
		t.Errorf("generate: %d %q %q", status, stdout, stderr)
	}
}
