package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// What the agent finds is what the plugin's policy reads. A file that was damaged or removed is written again; one of
// an earlier agent stays while the API server does not answer.
func TestNodeAddresses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	file := filepath.Join(dir, policy.NodeAddressesFile)
	var found []netip.Addr
	var failure error
	asked, now := 0, time.Now()
	start := func() *addressReconciler {
		return &addressReconciler{
			find: func(context.Context) ([]netip.Addr, error) { asked++; return found, failure },
			dir:  dir, log: slog.New(slog.DiscardHandler), now: func() time.Time { return now }, every: time.Minute,
		}
	}
	r := start()
	expect := func(when string, want ...string) {
		t.Helper()
		r.reconcile(t.Context())
		p, err := policy.Load(filepath.Join(dir, "policy.json"), dir)
		if err != nil {
			t.Errorf("%s: %v", when, err)
			return
		}
		var got []string
		for _, a := range p.NodeAddresses {
			got = append(got, a.String())
		}
		if len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	failure = errors.New("no API server")
	expect("nothing is known")
	found = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	expect("a part is known", "192.0.2.1")
	found, failure = append(found, netip.MustParseAddr("2001:db8::1")), nil
	expect("all is known", "192.0.2.1", "2001:db8::1")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := asked
	expect("damaged", "192.0.2.1", "2001:db8::1")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	expect("removed", "192.0.2.1", "2001:db8::1")
	if asked != before {
		t.Error("the API server is asked at each look")
	}
	r, found, failure = start(), found[1:], errors.New("no API server")
	expect("another agent, a part is known", "192.0.2.1", "2001:db8::1")
	failure = nil
	expect("the node has lost an address", "2001:db8::1")
	now = now.Add(time.Hour)
	found = []netip.Addr{netip.MustParseAddr("192.0.2.7")}
	expect("later", "192.0.2.7")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
