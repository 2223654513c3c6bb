package link_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func TestRules(t *testing.T) {
	t.Parallel()
	n := sandbox.New(t)
	c := n.Link(t)
	before := n.State(t)
	rules := []device.Rule{
		{Src: prefix("10.1.0.1/32"), Table: 20002, Priority: 20000},
		{Src: prefix("10.2.0.0/16"), Table: 100, Priority: 7},
		{Src: prefix("2001:db8::1/128"), Table: 4000000000, Priority: 20000},
	}
	for _, r := range rules {
		if err := c.AddRule(r); err != nil {
			t.Fatal(err)
		}
		if err := c.AddRule(r); !errors.Is(err, unix.EEXIST) {
			t.Errorf("second time: %v", err)
		}
	}
	if diff := cmp.Diff(
		"7:\tfrom 10.2.0.0/16 lookup 100\n20000:\tfrom 10.1.0.1 lookup 20002\n",
		between(n.IP(t, "-4", "rule")),
	); diff != "" {
		t.Errorf("-want +ip:\n%s", diff)
	}
	if diff := cmp.Diff("20000:\tfrom 2001:db8::1 lookup 4000000000\n", between(n.IP(t, "-6", "rule"))); diff != "" {
		t.Errorf("-want +ip:\n%s", diff)
	}
	// Rules of others: without a source they are not ours to know.
	n.IP(t, "rule", "add", "to", "10.9.0.0/16", "lookup", "9", "pref", "5")
	got, err := c.Rules()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(
		[]device.Rule{rules[1], rules[0], rules[2]},
		got,
		cmp.Comparer(func(a, b device.Rule) bool { return a == b }),
	); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	n.IP(t, "rule", "del", "pref", "5")
	for _, r := range rules {
		if err := c.DelRule(r); err != nil {
			t.Error(err)
		}
		if err := c.DelRule(r); !errors.Is(err, unix.ENOENT) {
			t.Errorf("removed twice: %v", err)
		}
	}
	if diff := cmp.Diff(before, n.State(t)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// between leaves out the rules that every namespace has: the first, and the last one or two.
func between(s string) string {
	out := ""
	for line := range strings.Lines(s) {
		if !strings.HasPrefix(line, "0:") && !strings.HasPrefix(line, "3276") {
			out += line
		}
	}
	return out
}
