package fabric_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// static and host-local are built in: a node needs no plugin for them. A key that the built-in one does not know is for
// the executable.
func TestBuiltinIPAM(t *testing.T) {
	n := newNode(t)
	data := t.TempDir()
	n.policy(t, allowIPAM(data))
	path := []string{"CNI_PATH=/nowhere"}
	for _, ipam := range []string{
		static, fmt.Sprintf(`"ipam":{"type":"host-local","subnet":"10.4.0.0/24","dataDir":%q}`, data),
	} {
		c := n.call("ADD", confOf("1.1.0", `"device":"v0"`, ipam))
		c.env = path
		var r shown
		if err := json.Unmarshal([]byte(n.must(t, c).stdout), &r); err != nil || len(r.IPs) == 0 {
			t.Errorf("result: %+v, %v", r, err)
		}
		c.command = "DEL"
		n.must(t, c)
		n.same(t, "after DEL")
	}
	newer := fmt.Sprintf(`"ipam":{"type":"host-local","subnet":"10.4.0.0/24","dataDir":%q,"lease":"1h"}`, data)
	c := n.call("ADD", confOf("1.1.0", `"device":"v0"`, newer))
	c.env = path
	if a := n.run(t, c); a.ok || a.Code != 7 || !strings.Contains(a.Msg, "does not know the key ipam.lease") {
		t.Errorf("%+v", a)
	}
	c.command = "DEL"
	if a := n.run(t, c); a.ok && len(n.files(t)) > 0 {
		t.Errorf("DEL: %+v, on file: %q", a, n.files(t))
	}
	c = n.call("ADD", confOf("1.1.0", `"device":"v0"`, newer)) // the executable ignores the key
	n.must(t, c)
	c.command = "DEL"
	n.must(t, c)
	n.same(t, "after the executable")
}
