//go:build labguest

package guest

import (
	"os"
	"testing"
)

// policyFile writes the node's policy for this test.
func policyFile(t testing.TB, text string) {
	t.Helper()
	const dir = "/etc/cni/fabric.d"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/policy.json", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
}

// allowVirtual is the policy of tests that give a dummy or a veth to the plugin.
func allowVirtual(t *testing.T) {
	t.Helper()
	policyFile(t, `{"allowVirtual": true}`)
}

// readiness is STATUS of a network.
func readiness(t *testing.T, fields config, path string) Outcome {
	t.Helper()
	call := Call{Command: "STATUS", Config: network(fields)}
	if path != "" {
		call.Env = []string{"CNI_PATH=" + path}
	}
	return call.Exec(t)
}

func TestPluginStatus(t *testing.T) {
	S1(t)
	Unchanged(t)
	broken := plugins(
		t,
		map[string]string{
			"odd": `[ $CNI_COMMAND = VERSION ] && echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}' && exit 0
echo '{"code":50,"msg":"pool is empty"}'; exit 1`,
		},
	)
	for name, c := range map[string]struct {
		fields config
		path   string
		code   uint // 0: ready
		words  []string
	}{
		"device":      {config{"device": "ibs108"}, "", 0, nil},
		"no selector": {config{}, "", 0, nil},
		"ipoib":       {config{"mode": "ipoib", "master": "ibs108"}, "", 0, nil},
		"exclusive":   {config{"rdma": "exclusive"}, "", 0, nil},
		"shared on exclusive": {config{"rdma": "shared"}, "", 50, []string{"exclusive", "rdma system set netns " +
			"shared"}},
		"IPAM that is ready":     {config{"ipam": hostLocal("10.0.0.0/24")}, "", 0, nil},
		"IPAM that is not there": {config{"ipam": config{"type": "nowhere"}}, "", 50, []string{`"nowhere"`, BinDir()}},
		"IPAM that is not ready": {
			config{"ipam": config{"type": "odd"}}, broken, 50, []string{`"odd"`, "pool is empty"},
		},
		"bad configuration": {config{"mtu": 5}, "", 7, []string{"mtu", "5", "68 to 65520"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := readiness(t, c.fields, c.path)
			if c.code != 0 {
				wantError(t, out, c.code, c.words...)
			} else if out.Failed() {
				t.Errorf("STATUS: %s", out)
			}
		})
	}
}

// State that can't be written means that devices in pods can't be given back in order: 51.
func TestPluginStatusOfState(t *testing.T) {
	S1(t)
	Unchanged(t)
	if err := os.MkdirAll("/run/fabric-cni", 0o700); err != nil {
		t.Fatal(err)
	}
	shell(t, "mount -t tmpfs -o ro none /run/fabric-cni")
	t.Cleanup(func() { shell(t, "umount /run/fabric-cni") })
	wantError(t, readiness(t, config{"device": "ibs108"}, ""), 51, "/run/fabric-cni", "read-only")
	// ADD reports that before it has changed anything.
	a := interfaceOf(NewPod(t, "pod"), "net1", network(config{"device": "ibs108"}))
	wantError(t, a.call("ADD").Exec(t), 5, "/run/fabric-cni", "read-only")
}

func TestPluginStatusOfPolicy(t *testing.T) {
	S1(t)
	Unchanged(t)
	policyFile(t, "{")
	wantError(t, readiness(t, config{"device": "ibs108"}, ""), 50, "policy.json")
}

// Modules that are not loaded.
func TestPluginStatusOfModules(t *testing.T) {
	Fabric{Num: 1}.Load(t)
	Unload(t)
	shell(t, "rmmod ib_ipoib")
	wantError(t, readiness(t, config{"mode": "ipoib", "master": "ib0"}, ""), 50, "ib_ipoib", "modprobe ib_ipoib")
	Fabric{Num: 1}.Load(t)
	if out := readiness(t, config{"mode": "ipoib", "master": "ib0"}, ""); out.Failed() {
		t.Errorf("STATUS: %s", out)
	}
}

func TestSharedPluginStatus(t *testing.T) {
	Fabric{Num: 1}.Load(t)
	for rdma, code := range map[string]uint{"auto": 0, "shared": 0, "none": 0, "exclusive": 50} {
		out := readiness(t, config{"rdma": rdma}, "")
		if code != 0 {
			wantError(t, out, code, "shared", "rdma system set netns exclusive")
		} else if out.Failed() {
			t.Errorf("STATUS with rdma %s: %s", rdma, out)
		}
	}
}
