//go:build labguest

package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ib-sriov-cni and host-device leave the device in the pod when IPAM fails; none of the peers calls IPAM DEL then.
func TestPeerIPAMFailureLeavesNothing(t *testing.T) {
	calls := filepath.Join(t.TempDir(), "calls")
	record := "echo $CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME >>" + calls + "\n"
	refusal := `echo '{"cniVersion":"1.1.0","code":11,"msg":"no address left","details":"in 10.0.0.0/24"}'; exit 1`
	for name, script := range map[string]string{
		"refuses":      `[ $CNI_COMMAND = DEL ] && exit 0; ` + refusal,
		"refuses late": `[ $CNI_COMMAND = DEL ] && exit 0; /run/busybox sleep 0.5; ` + refusal,
		"says nothing": `[ $CNI_COMMAND = DEL ] && exit 0; exit 3`,
		"is killed":    `[ $CNI_COMMAND = DEL ] && exit 0; kill -9 $$`,
		"garbage":      `[ $CNI_COMMAND = DEL ] && exit 0; echo '{"ips": [{"address": "10.0.0"}]}'`,
		"no address":   `[ $CNI_COMMAND = DEL ] && exit 0; echo '{"cniVersion":"1.1.0"}'`,
		"bad gateway": `[ $CNI_COMMAND = DEL ] && exit 0; echo ` +
			`'{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.5/24"}],"routes":[{"dst":"10.9.0.0/16",` +
			`"gw":"172.16.0.1"}]}'`,
	} {
		for _, mode := range []config{{"device": "ibs108"}, {"mode": "ipoib", "master": "ibs112"}} {
			t.Run(name, func(t *testing.T) {
				S1(t)
				Unchanged(t)
				os.Remove(calls)
				mode["ipam"] = config{"type": "odd"}
				a := interfaceOf(NewPod(t, "pod"), "net1", network(mode))
				a.path = plugins(t, map[string]string{"odd": record + script})
				out := a.call("ADD").Exec(t)
				if !out.Failed() || out.Err == nil {
					t.Fatalf("ADD: %s", out)
				}
				if strings.HasSuffix(script, refusal) {
					wantError(t, out, out.Err.Code, "no address left", `"odd"`)
				}
				got, err := os.ReadFile(calls)
				if err != nil || string(got) != "ADD pod net1\nDEL pod net1\n" {
					t.Errorf("IPAM was called: %q, %v", got, err)
				}
				out = a.call("DEL").Exec(t)
				if out.Failed() {
					t.Errorf("DEL after a failed ADD: %s", out)
				}
			})
		}
	}
}

// An IPAM plugin whose DEL fails keeps the attachment on record, the device is home all the same, and the next DEL
// finishes.
func TestPeerIPAMDelFails(t *testing.T) {
	S1(t)
	Unchanged(t)
	broken := filepath.Join(t.TempDir(), "broken")
	a := interfaceOf(NewPod(t, "pod"), "net1", network(config{"device": "ibs108", "ipam": config{"type": "odd"}}))
	a.path = plugins(
		t,
		map[string]string{
			"odd": `[ $CNI_COMMAND = DEL ] && [ -e ` + broken + ` ] &&
{ echo '{"code":11,"msg":"database away"}'; exit 1; }
echo '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.5/24"}]}'`,
		},
	)
	a.add(t)
	if err := os.WriteFile(broken, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out := a.call("DEL").Exec(t)
	if !out.Failed() || !strings.Contains(out.String(), "database away") {
		t.Errorf("DEL: %s", out)
	}
	if name := comesBack(t, "fakeib.0").Name; name != "ibs108" {
		t.Errorf("the device is home as %s", name)
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	a.del(t)
}

func containsAll(s string, words ...string) bool {
	for _, w := range words {
		if !strings.Contains(s, w) {
			return false
		}
	}
	return true
}
