//go:build labguest

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/testkit/walk"
)

// collect is a GC of a network with these attachments valid.
func collect(t *testing.T, conf config, path string, valid ...*attachment) Outcome {
	t.Helper()
	list := []config{}
	for _, a := range valid {
		list = append(list, config{"containerID": a.id, "ifname": a.ifname})
	}
	c := network(conf)
	c["cni.dev/valid-attachments"] = list
	call := Call{Command: "GC", Config: c}
	if path != "" {
		call.Env = []string{"CNI_PATH=" + path}
	}
	if err := walk.Age(journal.DefaultDir); err != nil { // GC is about attachments that are older than the list
		t.Fatal(err)
	}
	return call.Exec(t)
}

// GC returns what stale attachments hold, keeps valid ones, and does not touch other networks.
func TestPluginGC(t *testing.T) {
	S1(t)
	Unchanged(t)
	calls := filepath.Join(t.TempDir(), "calls")
	path := plugins(t, map[string]string{"odd": `echo $CNI_COMMAND $CNI_CONTAINERID >>` + calls + `
[ $CNI_COMMAND = VERSION ] && echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}'
[ $CNI_COMMAND = ADD ] && echo '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.5/24"}]}'
exit 0`})
	add := func(name, ifname string, fields config) *attachment {
		fields["ipam"] = config{"type": "odd"}
		a := interfaceOf(NewPod(t, name), ifname, network(fields))
		a.path = path
		a.add(t)
		return a
	}
	kept := add("kept", "net1", config{"device": "ibs108"})
	stale := add("stale", "net1", config{"device": "ibs110"})
	dead := add("dead", "net1", config{"device": "ibs112"})
	child := add("child", "net1", config{"mode": "ipoib", "master": "ibs114"})
	foreign := add("foreign", "net1", config{"device": "ibs116", "allowDown": true, "name": "other"})
	sameName := add("kept2", "net2", config{"device": "ibs118", "allowDown": true})
	dead.pod.Delete(t)
	if err := os.Truncate(calls, 0); err != nil {
		t.Fatal(err)
	}
	// The same container with another interface name is another attachment.
	wrong := *sameName
	wrong.ifname = "net1"
	out := collect(t, config{"ipam": config{"type": "odd"}}, path, kept, &wrong)
	if out.Failed() {
		t.Errorf("GC: %s", out)
	}
	kept.pod.hasHCA(t, "mlx5_0")
	foreign.pod.hasHCA(t, "mlx5_5")
	for _, a := range []*attachment{stale, child, sameName} {
		a.pod.hasHCA(t)
		if _, err := os.Stat(a.entryFile()); err == nil {
			t.Errorf("%s is still on record", a.id)
		}
	}
	told, err := os.ReadFile(calls)
	for _, want := range []string{"DEL stale\n", "DEL dead\n", "DEL child\n", "DEL kept2\n", "GC\n"} {
		if err != nil || !strings.Contains(string(told), want) {
			t.Errorf("IPAM was told %q, %v, not %q", told, err, want)
		}
	}
	if strings.Contains(string(told), "DEL kept\n") || strings.Contains(string(told), "foreign") {
		t.Errorf("IPAM was told too much: %q", told)
	}
	kept.del(t)
	foreign.del(t)
	for _, a := range []*attachment{stale, dead, child, sameName} {
		a.del(t)
	}
}

// GC goes on past what fails, and reports all of it.
func TestPluginGCReportsAll(t *testing.T) {
	S1(t)
	Unchanged(t)
	broken := filepath.Join(t.TempDir(), "broken")
	path := plugins(
		t,
		map[string]string{
			"odd": `[ -e ` + broken + ` ] && [ $CNI_CONTAINERID != stale1 ] && [ $CNI_COMMAND = DEL ] &&
{ echo "{\"code\":11,\"msg\":\"no luck with $CNI_CONTAINERID\"}"; exit 1; }
[ $CNI_COMMAND = VERSION ] && echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}'
[ $CNI_COMMAND = ADD ] && echo '{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.5/24"}]}'
exit 0`,
		},
	)
	for i, device := range []string{"ibs108", "ibs110", "ibs112"} {
		a := interfaceOf(
			NewPod(t, fmt.Sprintf("stale%d", i)),
			"net1",
			network(config{"device": device, "ipam": config{"type": "odd"}}),
		)
		a.path = path
		a.add(t)

	}
	if err := os.WriteFile(broken, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	corrupt := "/run/fabric-cni/attachments/torn@net1"
	if err := os.WriteFile(corrupt, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := collect(t, config{"ipam": config{"type": "odd"}}, path)
	if out.Err == nil ||
		!containsAll(
			out.Err.Msg,
			"attachment net1 of container stale0",
			"no luck with stale0",
			"attachment net1 of container stale2",
			"no luck with stale2",
		) ||
		strings.Contains(out.Err.Msg, "stale1") || strings.Contains(out.Err.Msg, "torn@net1") {
		t.Errorf("GC: %s", out)
	}
	if err := os.Remove(corrupt); err != nil {
		t.Fatal(err)
	}
	for _, bus := range []string{"fakeib.0", "fakeib.1", "fakeib.2"} {
		comesBack(t, bus)
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	if out := collect(t, config{"ipam": config{"type": "odd"}}, path); out.Failed() {
		t.Errorf("GC with IPAM working again: %s", out)
	}
}

// Without the list nothing is known to be stale, while the pod is there.
func TestPluginGCWithoutList(t *testing.T) {
	S1(t)
	Unchanged(t)
	a := interfaceOf(NewPod(t, "pod"), "net1", network(config{"device": "ibs108"}))
	a.add(t)
	call := Call{Command: "GC", Config: network(nil)}
	if out := call.Exec(t); out.Failed() {
		t.Error(out)
	}
	a.pod.hasHCA(t, "mlx5_0")
	call.Config = network(config{"cni.dev/valid-attachments": "all"})
	wantError(t, call.Exec(t), 7, "cni.dev/valid-attachments")
	a.pod.hasHCA(t, "mlx5_0")
	a.del(t)
}
