package agent

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"go4.org/netipx"
)

// What pods hold is listed by network, whatever Fabrics there are. What is no address counts for nothing, and so does
// a directory that the agent has not made, however many there are.
func TestHeld(t *testing.T) {
	dir := t.TempDir()
	if h, err := held(filepath.Join(dir, "none")); err != nil || h == nil || len(h.Fabrics) != 0 {
		t.Errorf("no directory: %v, %v", h, err)
	}
	for _, name := range []string{
		"ib/10.0.4.1", "ib/10.0.4.2", "ib/10.0.4.3", "ib/fd00::5", "ib/lock", "ib/last_reserved_ip.0", "ib/ranges",
		"ended/lock", "a/10.1.0.9", "a/ranges", "Not A Fabric/10.9.0.1", "Not A Fabric/ranges", "foreign/10.9.0.1",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("c\r\nnet1"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 * maxHeldFabrics { // not the agent's
		other := filepath.Join(dir, fmt.Sprintf("x%d", i))
		if err := os.Mkdir(other, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(other, "10.8.0.1"), []byte("c\r\nnet1"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := held(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(h.Fabrics); got != "[{a [10.1.0.9/32]} {ib [10.0.4.1/32 10.0.4.2/31 fd00::5/128]}]" {
		t.Error(got)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if h, err := held(filepath.Join(dir, "file")); err == nil || h != nil {
		t.Errorf("what can't be listed is not none: %v", h)
	}
}

// Many addresses are few prefixes, and none of them is left out.
func TestHeldJoined(t *testing.T) {
	var all []netip.Addr
	for a, i := netip.MustParseAddr("10.0.0.0"), 0; i < 2000; i++ {
		all = append(all, a)
		a = a.Next().Next()
	}
	all = append(all, netip.MustParseAddr("fd00::1"))
	out, err := join(all)
	if err != nil || len(out) > maxHeldPrefixes {
		t.Fatal(len(out), err)
	}
	var b netipx.IPSetBuilder
	for _, p := range out {
		b.AddPrefix(p)
	}
	s, err := b.IPSet()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if !s.Contains(a) {
			t.Errorf("%s is missing", a)
		}
	}
}
