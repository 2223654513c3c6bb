//go:build labguest

package guest

import (
	"fmt"
	"testing"
)

// Before a node goes to exclusive mode preflight names what has queue pairs on its HCAs, and nothing once that has
// ended.
func TestTrafficSharedPreflight(t *testing.T) {
	RequireMode(t, "shared")
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	const idle = "no program and no kernel module has queue pairs on an HCA of the host"
	says := func(want ...string) {
		t.Helper()
		out, status := ctlStatus(t, "preflight", "--local")
		if status != 3 || !containsAll(out, append(want, "shared, wanted is exclusive")...) {
			t.Errorf("status %d, want %q:\n%s", status, want, out)
		}
	}
	says(idle)
	v := openVerbs(t, nil, "mlx5_0")
	v.qp(0, "rc", 0)
	says(fmt.Sprintf("mlx5_0 is in use by process %d (lab-verbs)", v.cmd.Process.Pid))
	v.kill()
	says(idle)
}
