//go:build failpoint

package fabric_test

import (
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// ADD was killed, and then the virtual interface deleted, while the pod lives: DEL does not wait for it for ever.
func TestDelOfVirtualDeviceDeletedAfterKill(t *testing.T) {
	for _, point := range []string{"before/move-netdev", "after/move-netdev"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			add := n.call("ADD", conf())
			add.env = []string{"FABRIC_FAILPOINT=" + point + ":kill"}
			if a := n.run(t, add); a.ok {
				t.Fatal("ADD was not killed")
			}
			sandbox.Run(t, "ip", "-n", n.far.Name, "link", "del", "v1") // the other end
			n.must(t, n.call("DEL", conf()))
			if files := n.files(t); len(files) > 0 {
				t.Errorf("left on file: %v", files)
			}
		})
	}
}
