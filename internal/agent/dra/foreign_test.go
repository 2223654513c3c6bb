package dra

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/agent/dra/cdi"
)

// A foreign or damaged file among what is prepared costs its own claim only, and that one is prepared anew: other
// claims are prepared, devices are offered, and the runtime's files of dead claims go.
func TestForeignPrepared(t *testing.T) {
	n := two(t)
	for file, text := range map[string]string{
		"prepared/lock": "", "prepared/uid-p1/c1": "{", "prepared/uid-p3/c3/lock": "", "prepared/uid-p2": "",
		"attachments/lock": "",
	} {
		path := filepath.Join(n.dir, "state", file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, uid := range []string{"c1", "orphan"} {
		if err := n.CDI.Write(uid, []cdi.Request{{Name: "rails", Files: []string{"/dev/null"}}}); err != nil {
			t.Fatal(err)
		}
	}
	err := n.reconcileFiles()
	if err == nil || !strings.Contains(err.Error(), "prepared/lock") {
		t.Errorf("not named: %v", err)
	}
	files, err := n.CDI.Claims()
	if diff := cmp.Diff([]string{"c1"}, files); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if items, err := n.offered(t.Context()); err != nil || len(items) != 2 {
		t.Errorf("offered: %v, %v", items, err)
	}
	for _, c := range []struct{ uid, pod, device string }{{"c2", "p2", dev0}, {"c1", "p1", dev1}} {
		if _, err := n.claim(t, given(c.uid, c.pod, c.device)); err != nil {
			t.Errorf("%s: %v", c.uid, err)
		}
		if p, err := n.Prepared.Claim(c.uid); err != nil || p.Devices[0].Name != c.device {
			t.Errorf("%s: %v, %v", c.uid, p, err)
		}
	}
	if err := n.forget("c1"); err != nil {
		t.Error(err)
	}
	if _, err := n.claim(t, given("c3", "p3", dev1)); err != nil { // whose name a directory has
		t.Error(err)
	}
}
