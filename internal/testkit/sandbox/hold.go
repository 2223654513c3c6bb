package sandbox

import (
	"os/exec"
	"sync"
	"testing"
)

// Hold starts a command that enters namespaces and then runs what it gets as its last arguments: a shell that says when
// it is there, after the script, and stays until end is called, or the test ends. It returns the process's number.
func Hold(t testing.TB, script string, command ...string) (pid int, end func()) {
	t.Helper()
	args := append(command[1:len(command):len(command)], "sh", "-ec", script+"\necho\ncat")
	cmd := exec.Command(command[0], args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", command, err)
		}
	})
	t.Cleanup(end)
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, end
}
