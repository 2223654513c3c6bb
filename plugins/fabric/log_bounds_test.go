package fabric_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/plugins/fabric"
)

// A network whose ADD is refused, and repeated without end, does not fill the disk: neither with thousands of fields
// that mean nothing, nor with long ones, nor with time.
func TestLogFileBounds(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if err := os.MkdirAll("/var/log/fabric-cni", 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("/var/log/fabric-cni", filepath.Base(n.host.Name)+"-bounds")
	t.Cleanup(func() { os.Remove(file) })
	fields := []string{`"device":"nosuch"`, `"logLevel":"debug"`, fmt.Sprintf(`"logFile":%q`, file), static}
	for i := range 900 {
		name := []byte("publishpfguid") // in any case
		for bit := range name {
			if i>>bit&1 != 0 {
				name[bit] -= 'a' - 'A'
			}
		}
		fields = append(fields, fmt.Sprintf(`%q:true`, name))
	}
	c := n.call("ADD", confOf("1.1.0", fields...))
	if a := n.run(t, c); a.ok {
		t.Fatal("an ADD of a device that is not there")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) == 0 || len(b) > 8<<10 || !strings.Contains(string(b), `"more":890`) {
		t.Errorf("%d bytes for one call: %.4000s", len(b), b)
	}
	if err := os.Truncate(file, 10<<20); err != nil {
		t.Fatal(err)
	}
	a := n.run(t, c)
	st, err := os.Stat(file)
	if err != nil || st.Size() != 10<<20 {
		t.Errorf("the file has grown: %v, %v", st, err)
	}
	if !strings.Contains(a.stderr, "rotate it") {
		t.Errorf("stderr: %.2000s", a.stderr)
	}
}

// kubelet makes the state directory for the agent's pod, for all to read.
func TestStateIsPrivate(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if err := os.Chmod(n.state, 0o755); err != nil {
		t.Fatal(err)
	}
	n.must(t, n.call("ADD", conf()))
	if st, err := os.Stat(n.state); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	n.must(t, n.call("DEL", conf()))
}

// Each step is logged as a command, and with the trace of the runtime's call; the journal has that for the agent. What
// is no trace is left out.
func TestTrace(t *testing.T) {
	t.Parallel()
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for parent, want := range map[string]bool{
		"00-" + id + "-00f067aa0ba902b7-01": true, "01-" + id + "-00f067aa0ba902b7-01-later": true,
		id: false, "ff-" + id + "-00f067aa0ba902b7-01": false, "00-" + id[1:] + "\n-00f067aa0ba902b7-01": false,
		"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01": false, "": false,
	} {
		if got := fabric.TraceID(parent); (got == id) != want || got != "" && !want {
			t.Errorf("trace of %q: %q", parent, got)
		}
	}
	n := newNode(t)
	c := n.call("ADD", conf(`"logLevel":"debug"`))
	c.env = []string{"TRACEPARENT=00-" + id + "-00f067aa0ba902b7-01"}
	moved := regexp.MustCompile(`"msg":"move-netdev",.*"trace":"` + id + `","command":"ip link set \$DEV netns \$POD ` +
		`name net1 up"`)
	if a := n.run(t, c); !a.ok || !moved.MatchString(a.stderr) {
		t.Errorf("ADD: %s%s", a.stdout, a.stderr)
	}
	list, err := journal.Store{Dir: n.state}.List()
	if err != nil || len(list) != 1 || list[0].Trace != id {
		t.Errorf("journal: %+v, %v", list, err)
	}
	n.run(t, n.call("DEL", conf()))
}
