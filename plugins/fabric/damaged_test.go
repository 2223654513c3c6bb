package fabric_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// edit changes the fields of an entry of the journal; nil removes one.
func (n *node) edit(t *testing.T, file string, fields map[string]any) {
	t.Helper()
	path := filepath.Join(n.state, "attachments", file)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	for k, v := range fields {
		if all[k] = v; v == nil {
			delete(all, k)
		}
	}
	if b, err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// An entry that is JSON and lacks what it should have: DEL brings the device home all the same. It never takes the lack
// for a sign that there is nothing to bring.
func TestDelDamagedEntry(t *testing.T) {
	for name, tt := range map[string]struct {
		fields map[string]any
		known  bool // what the host had can be known still
	}{
		"no boot ID":           {map[string]any{"bootID": nil}, true},
		"no claim":             {map[string]any{"claim": nil}, true},
		"neither":              {map[string]any{"bootID": nil, "claim": nil}, true},
		"not attached":         {map[string]any{"attached": nil, "nonce": nil}, true},
		"no device":            {map[string]any{"claim": nil, "netdev": nil}, false},
		"claim of another":     {map[string]any{"claim": "pci/0000:00:1f.9"}, false},
		"no network namespace": {map[string]any{"netns": nil, "netnsPath": nil}, false},
		"a child that is none": {map[string]any{"kind": "ipoib"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setup := everything
			if !tt.known {
				setup = []string{"link set v0 down"}
			}
			n := newNode(t, setup...)
			n.must(t, n.call("ADD", conf()))
			n.edit(t, "c1@net1", tt.fields)
			n.must(t, n.call("DEL", conf()))
			if !tt.known {
				n.before = strings.ReplaceAll(n.before, "qdisc noqueue state DOWN", "qdisc noop state DOWN")
			}
			n.same(t, "after DEL")
		})
	}
}

// GC returns everything that it can, whatever is wrong with an entry among them, and says what that is.
func TestGCGoesOn(t *testing.T) {
	t.Parallel()
	n := newNode(t, everything...)
	const total = 4
	calls := make([]call, total)
	for i := range calls {
		dev := fmt.Sprintf("d%d", i)
		n.host.Veth(t, dev, n.far, dev+"far")
		calls[i] = n.call("ADD", confOf("1.1.0", fmt.Sprintf(`"device":%q`, dev),
			fmt.Sprintf(`"ipam":{"type":"static","addresses":[{"address":"192.168.%d.7/24"}]}`, i)))
		calls[i].ifName = fmt.Sprintf("net%d", i)
	}
	n.before = n.host.State(t)
	for _, c := range calls {
		n.must(t, c)
	}
	n.age(t)
	n.edit(t, "c1@net0", map[string]any{"kind": "ipoib"})
	if err := os.WriteFile(filepath.Join(n.state, "attachments", "c0@net1"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(n.state, "attachments", "c0@net2"), 0o700); err != nil {
		t.Fatal(err)
	}
	a := n.run(t, call{command: "GC", conf: confOf("1.1.0", static, `"cni.dev/valid-attachments":[]`)})
	if a.ok || !strings.Contains(a.Msg, "c1@net0") || strings.Contains(a.Msg, "c0@") {
		t.Errorf("GC speaks not of its own damaged attachment, or of others: %+v", a)
	}
	for _, want := range []string{"c0@net1", "c0@net2"} {
		if !strings.Contains(a.stderr, want) {
			t.Errorf("GC does not log %s: %s", want, a.stderr)
		}
	}
	for _, dev := range []string{"d2", "d3"} {
		if !n.host.Has(t, dev) {
			t.Errorf("%s is not home: %s", dev, a.Msg)
		}
	}
	if err := os.Remove(filepath.Join(n.state, "attachments", "c0@net2")); err != nil {
		t.Error(err)
	}
	for i, c := range append(calls, call{id: "c0", ifName: "net1", netns: n.pod.Path, conf: conf()}) {
		c.command = "DEL"
		n.must(t, c)
		if dev := fmt.Sprintf("d%d", i); i < total && !n.host.Has(t, dev) {
			t.Errorf("%s is not home", dev)
		}
	}
	if files := n.files(t); len(files) > 0 {
		t.Errorf("left on file: %v", files)
	}
}
