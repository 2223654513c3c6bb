//go:build failpoint

package fabric_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A veth stands in for a device here: the lab has the rest of the matrix. Whatever ADD or DEL is stopped at, and
// however, the host is what it was: at once after an ADD that could still clean up behind itself, else after the next
// DEL.
func TestMatrix(t *testing.T) { matrix(t, everything, conf(), "error", "kill") }

// The same with the addresses, routes and rules of the host.
func TestMatrixHostAddresses(t *testing.T) {
	matrix(t, append(everything[:len(everything):len(everything)], "rule add from 10.1.0.1 lookup 200 pref 300",
		"route add default via 10.1.0.9 table 200"), keepsHost(), "kill")
}

func matrix(t *testing.T, host []string, conf string, faults ...string) {
	for _, command := range []string{"ADD", "DEL"} {
		for _, point := range points(t, command, host, conf) {
			for _, fault := range faults {
				t.Run(command+" "+strings.ReplaceAll(point, "/", " ")+" "+fault, func(t *testing.T) {
					t.Parallel()
					n := newNode(t, host...)
					add, del := n.call("ADD", conf), n.call("DEL", conf)
					c := add
					if command == "DEL" {
						n.must(t, add)
						c = del
					}
					c.env = []string{"FABRIC_FAILPOINT=" + point + ":" + fault}
					a := n.run(t, c)
					if a.ok && command == "ADD" && strings.HasPrefix(point, "before/") && point != "before/announce" {
						t.Error("the fault went unnoticed")
					}
					if command == "ADD" && fault == "error" && !a.ok {
						n.same(t, "after a failed ADD")
					}
					for range 2 {
						n.must(t, del)
						n.same(t, "after DEL")
					}
				})
			}
		}
	}
}

// points are those that a call of the usual attachment passes, in its order.
func points(t *testing.T, command string, host []string, conf string) []string {
	t.Helper()
	n := newNode(t, host...)
	trace := filepath.Join(t.TempDir(), "trace")
	for _, c := range []string{"ADD", "DEL"} {
		call := n.call(c, conf)
		if c == command {
			call.env = []string{"FABRIC_FAILPOINT_TRACE=" + trace}
		}
		n.must(t, call)
	}
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	found := strings.Fields(string(b))
	if len(found) < 8 {
		t.Fatalf("%s passes only %v", command, found)
	}
	return found
}

// A DEL that is killed, of an interface that the pod has disguised and put others upon: the next one finds it all the
// same.
func TestMatrixDisguised(t *testing.T) {
	setup := func(t *testing.T) *node {
		n := newNode(t, everything...)
		n.must(t, n.call("ADD", conf()))
		for _, c := range []string{
			"link set net1 down address 02:00:00:00:00:99", "link property del dev net1 altname v0",
			"link set net1 name other", "link set other up", "link add link other upper type macvlan",
		} {
			n.pod.IP(t, strings.Fields(c)...)
		}
		return n
	}
	n := setup(t)
	trace := filepath.Join(t.TempDir(), "trace")
	del := n.call("DEL", conf())
	del.env = []string{"FABRIC_FAILPOINT_TRACE=" + trace}
	n.must(t, del)
	n.same(t, "after DEL")
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), "before/delete-upper") {
		t.Errorf("DEL passes only %s", b)
	}
	for _, point := range strings.Fields(string(b)) {
		for _, fault := range []string{"error", "kill"} {
			t.Run(strings.ReplaceAll(point, "/", " ")+" "+fault, func(t *testing.T) {
				t.Parallel()
				n := setup(t)
				c := n.call("DEL", conf())
				c.env = []string{"FABRIC_FAILPOINT=" + point + ":" + fault}
				n.run(t, c)
				c.env = nil
				n.must(t, c)
				n.same(t, "after DEL")
				if out := n.pod.IP(t, "-o", "link"); strings.Contains(out, "upper") {
					t.Errorf("left in the pod: %s", out)
				}
			})
		}
	}
}
