package fabric_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/internal/testkit/walk"
)

// age makes the attachments that there are look older than any list of valid ones.
func (n *node) age(t *testing.T) {
	t.Helper()
	if err := walk.Age(n.state); err != nil {
		t.Fatal(err)
	}
}

var dynamic = []string{
	"addr add 10.1.0.1/24 dev v0 valid_lft 3600 preferred_lft 1800",
	"addr add 2001:db8::1/64 dev v0 valid_lft 3600 preferred_lft 1800 noprefixroute",
	"-6 route add 2001:db8::/64 dev v0 proto static metric 100 expires 3000",
}

// The clock of the node is set between ADD and DEL: that of the entry is the wrong one by as much.
func TestDelAfterClockStep(t *testing.T) {
	for name, step := range map[string]time.Duration{"forward": 2 * time.Hour, "back": -2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, dynamic...)
			state := func() string { return remaining.ReplaceAllString(n.host.State(t), "$1 SOME") }
			before := state()
			n.must(t, n.call("ADD", conf()))
			n.edit(t, "c1@net1", map[string]any{"created": time.Now().Add(-step).UTC().Format(time.RFC3339Nano)})
			n.must(t, n.call("DEL", conf()))
			var diff string
			if !sandbox.Soon(func() bool { diff = cmp.Diff(before, state()); return diff == "" }) {
				t.Errorf("-before +after:\n%s", diff)
			}
		})
	}
}

var validFor = regexp.MustCompile(`valid_lft (\d+)sec`)

// DEL comes 3000 seconds later by the clock that nothing sets: that much is taken off. An entry of an older version has
// wall time alone.
func TestDelCountsBootTime(t *testing.T) {
	for name, tt := range map[string]struct {
		fields map[string]any
		most   int
	}{
		"boot time": {nil, 600},
		"an entry of an older version": {map[string]any{
			"bootTime": nil, "created": time.Now().Add(-3200 * time.Second).UTC().Format(time.RFC3339Nano),
		}, 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, dynamic[0])
			n.must(t, n.call("ADD", conf()))
			n.edit(t, "c1@net1", tt.fields)
			later := n.execution(n.call("DEL", conf()))
			cmd := exec.Command("unshare", append([]string{"--time", "--boottime", "3000", "--fork"}, later.Args...)...)
			cmd.Env, cmd.Stdin = later.Env, later.Stdin
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("DEL: %v: %s", err, out)
			}
			found := validFor.FindStringSubmatch(n.host.IP(t, "-4", "addr", "show", "dev", "v0"))
			if found == nil {
				t.Fatal("the address is gone")
			}
			if left, err := strconv.Atoi(found[1]); err != nil || left > tt.most {
				t.Errorf("valid for %s s, want at most %d", found[1], tt.most)
			}
		})
	}
}

// gcScript is an IPAM plugin that keeps what a GC tells it.
const gcScript = `#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}' ;;
ADD) echo '{"cniVersion":"1.1.0","ips":[{"address":"192.168.10.7/24"}]}' ;;
GC) cat >"${0%/*}/gc" ;;
esac
`

// The runtime made its list of valid attachments before the ADD ended, or has lost a pod that still runs: GC takes
// nothing from it, and IPAM is told that it is valid. What is dead is collected, however new.
func TestGCSparesTheLiving(t *testing.T) {
	t.Parallel()
	n := newNode(t, everything...)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "noting"), []byte(gcScript), 0o755); err != nil {
		t.Fatal(err)
	}
	add := n.call("ADD", confOf("1.1.0", `"device":"v0"`, `"ipam":{"type":"noting"}`))
	add.env = []string{"CNI_PATH=" + dir}
	gc := call{command: "GC", env: add.env, conf: confOf("1.1.0", `"ipam":{"type":"noting"}`,
		`"cni.dev/valid-attachments":[]`)}
	told := func() int {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, "gc"))
		var conf struct {
			Valid []any `json:"cni.dev/valid-attachments"`
		}
		if err == nil {
			err = json.Unmarshal(b, &conf)
		}
		if err != nil {
			t.Fatal(err)
		}
		return len(conf.Valid)
	}
	keeps := func(why string) {
		t.Helper()
		n.must(t, gc)
		if !strings.Contains(n.pod.IP(t, "link"), "net1") || told() != 1 {
			t.Errorf("%s: GC has taken the device, or told IPAM of %d valid attachments", why, told())
		}
	}
	n.must(t, add)
	keeps("new")
	inside := exec.Command("ip", "netns", "exec", n.pod.Name, "sh", "-c", "echo; exec cat")
	stdin, err := inside.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := inside.StdoutPipe()
	if err == nil {
		err = inside.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil { // it is in the namespace
		t.Fatal(err)
	}
	n.age(t)
	keeps("with a process in the pod")
	stdin.Close()
	if err := inside.Wait(); err != nil {
		t.Fatal(err)
	}
	n.must(t, gc)
	if told() != 0 {
		t.Errorf("IPAM has been told of %d valid attachments", told())
	}
	n.same(t, "after GC")
}
