package fabric_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/calls"
)

// Every call is noted with its verb and its code, and how long it took, what is no verb as "other". VERSION is not.
func TestCallsAreNoted(t *testing.T) {
	n := newNode(t)
	n.must(t, n.call("ADD", conf()))
	n.run(t, n.call("ADD", conf(`"devcie":"x"`)))
	n.run(t, n.call("VERSION", conf()))
	n.run(t, n.call("FLY 0 1\nADD", conf()))
	n.run(t, n.call("STATUS", conf()))
	n.must(t, n.call("DEL", conf()))
	if _, err := calls.Take(n.state); err != nil {
		t.Fatal(err)
	}
	list, err := calls.Take(n.state)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list {
		got = append(got, c.Verb)
		if c.Took <= 0 || c.Took > time.Hour {
			t.Errorf("%s took %s", c.Verb, c.Took)
		}
	}
	if !slices.Equal(got, []string{"ADD", "ADD", calls.Other, "STATUS", "DEL"}) || list[0].Code != 0 ||
		list[1].Code != 7 || list[2].Code == 0 || list[4].Code != 0 {
		t.Errorf("%+v", list)
	}
}

// A call does not care whether it can be noted.
func TestCallsCannotBeNoted(t *testing.T) {
	n := newNode(t)
	if err := os.Mkdir(filepath.Join(n.state, calls.File), 0o700); err != nil {
		t.Fatal(err)
	}
	n.must(t, n.call("ADD", conf()))
	if a := n.must(t, n.call("DEL", conf())); strings.Contains(a.stderr, calls.File) {
		t.Errorf("%s", a.stderr)
	}
	n.same(t, "after DEL")
}
