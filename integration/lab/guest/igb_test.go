//go:build labguest

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	igbPF  = "52:54:00:00:03:00"
	macPod = "02:00:00:00:00:01"
)

// igbVFs makes n virtual functions on the Intel card, whose netdev becomes enp, and names theirs env0 and on. The first
// has something to lose, and a RoCE HCA if that is asked for.
func igbVFs(t testing.TB, n int, roce bool) []SRIOVFunction {
	t.Helper()
	freshHost(t)
	forgetTenants(t)
	Unload(t)
	Modprobe(t, "igb")
	var pf string
	Until(t, "the igb card is there", func() error {
		l, err := byMAC(igbPF)
		if err == nil {
			pf = l.Attrs().Name
		}
		return err
	})
	dir, err := filepath.EvalSymlinks("/sys/class/net/" + pf + "/device")
	if err != nil {
		t.Fatal(err)
	}
	shell(t, "ip link set "+pf+" down; ip link set "+pf+" name enp; ip link set enp up; echo 0 >"+dir+"/sriov_numvfs")
	Modprobe(t, "igbvf")
	shell(t, fmt.Sprintf("echo %d >%s/sriov_numvfs", n, dir))
	vfs := make([]SRIOVFunction, n)
	for i := range vfs {
		target, err := os.Readlink(fmt.Sprintf("%s/virtfn%d", dir, i))
		if err != nil {
			t.Fatal(err)
		}
		vfs[i] = SRIOVFunction{PCI: filepath.Base(target), PF: filepath.Base(dir), Index: i}
		Until(t, "VF "+vfs[i].PCI+" has its netdev", func() error {
			if vfs[i].Netdev() == "" {
				return os.ErrNotExist
			}
			return nil
		})
		// An address of its own, which the driver would choose at random.
		shell(
			t,
			fmt.Sprintf(
				"ip link set %s down; ip link set %s name env%d; ip link set env%d address 02:00:00:00:10:%02x",
				vfs[i].Netdev(),
				vfs[i].Netdev(),
				i,
				i,
				i,
			),
		)
	}
	shell(
		t,
		`echo 1 >/proc/sys/net/ipv6/conf/env0/addr_gen_mode
ip link set env0 alias "storage VF" mtu 1400; ip link property add dev env0 altname enp2s0v0
ip link set env0 up; ip address add 10.40.0.1/24 dev env0; ip route add 10.41.0.0/16 via 10.40.0.254 dev env0 metric 9`,
	)
	for _, l := range []string{"enp", "env0"} { // without a carrier IPv6 has no routes yet
		Until(t, l+" has a carrier", func() error {
			if strings.TrimSpace(readFile(t, "/sys/class/net/"+l+"/carrier")) != "1" {
				return os.ErrNotExist
			}
			return nil
		})
	}
	if roce {
		Fabric{RoCE: []string{"env0"}}.Load(t)
	}
	return vfs
}

var igbSettings = config{"mac": macPod, "vlan": 100, "vlanQoS": 3, "max_tx_rate": 100, "spoofchk": "off", "trust": "on"}

// vfPolicy allows these settings, which no node allows unasked.
const vfPolicy = `{"vf": {"trustOn": true, "spoofchkOff": true, "vlans": [100, "7-9"], "vlanQoS": [3], "rates": true}}`

// Every setting of an Ethernet VF, in the spelling of sriov-cni, is there in the pod and on the PF, and comes back.
func TestIGBSettings(t *testing.T) {
	vfs := igbVFs(t, 2, true)
	policyFile(t, vfPolicy)
	before := Unchanged(t)
	for _, gone := range []bool{false, true} {
		pod := NewPod(t, fmt.Sprintf("pod-%t", gone))
		fields := config{"type": "sriov", "deviceID": vfs[0].PCI, "ipam": static("10.0.0.1/24")}
		for k, v := range igbSettings {
			fields[k] = v
		}
		a := interfaceOf(pod, "net1", network(fields))
		out := a.add(t)
		if mac := pod.link(
			t,
			"net1",
		).Attrs().HardwareAddr.String(); mac != macPod ||
			out.Result.Interfaces[0].Mac != mac {
			t.Errorf("MAC address %s, result %s", mac, out.Stdout)
		}
		s, err := Take()
		if err != nil {
			t.Fatal(err)
		}
		line := ""
		if len(s.VFs["enp"]) > 0 {
			line = s.VFs["enp"][0]
		}
		if !containsAll(line, macPod, "vlan 100, qos 3", "tx rate 100", "spoof checking off", "trust on") {
			t.Errorf("the PF has %s", line)
		}
		if out := pod.sh(
			t,
			"cat /proc/sys/net/ipv4/conf/net1/arp_notify /proc/sys/net/ipv6/conf/net1/ndisc_notify; rdma link",
		); !strings.HasPrefix(out, "1\n1\n") ||
			!containsAll(out, "mlx5_0") {
			t.Errorf("in the pod: %s", out)
		}
		a.call("CHECK").Must(t)
		if gone {
			pod.Delete(t)
		}
		a.del(t)
		Same(t, before)
	}
}

// The MAC address comes from the pod's annotation before CNI_ARGS before the network, and a plain card can have one
// too.
func TestIGBMAC(t *testing.T) {
	vfs := igbVFs(t, 1, false)
	Unchanged(t)
	for i, c := range []struct {
		conf config
		args string
	}{
		{
			config{"deviceID": vfs[0].PCI, "mac": "02:00:00:00:00:03", "runtimeConfig": config{"mac": macPod}},
			"MAC=02:00:00:00:00:02",
		},
		{
			config{"deviceID": vfs[0].PCI, "mac": "02:00:00:00:00:03", "capabilities": config{"mac": true}},
			"MAC=" + macPod,
		},
		{config{"deviceID": vfs[0].PCI, "mac": macPod}, ""},
		{config{"device": "enp", "mac": macPod}, ""},
	} {
		pod := NewPod(t, fmt.Sprintf("pod%d", i))
		a := interfaceOf(pod, "net1", network(c.conf))
		call := a.call("ADD")
		call.Args = c.args
		call.Must(t)
		if mac := pod.link(t, "net1").Attrs().HardwareAddr.String(); mac != macPod {
			t.Errorf("%d: MAC address %s", i, mac)
		}
		a.del(t)
	}
}

// What the driver has no setting for is an error that names it, and nothing is left of it.
func TestIGBRefused(t *testing.T) {
	vfs := igbVFs(t, 1, false)
	policyFile(t, vfPolicy)
	Unchanged(t)
	pod := NewPod(t, "pod")
	for _, c := range []struct {
		fields config
		code   uint
		words  []string
	}{
		{config{"guid": guidA}, 7, []string{"guid", "Ethernet"}},
		{config{"link_state": "enable", "mac": macPod, "vlan": 7}, 105, []string{"state enable", "driver of PF enp"}},
		{config{"vlan": 7, "vlanProto": "802.1ad"}, 105, []string{"vlan 7", "802.1ad"}},
		{config{"mac": macPod, "trust": "on", "min_tx_rate": 10, "max_tx_rate": 100}, 105, []string{"min_tx_rate"}},
	} {
		c.fields["deviceID"] = vfs[0].PCI
		wantError(t, interfaceOf(pod, "net1", network(c.fields)).call("ADD").Exec(t), c.code, c.words...)
	}
}

// A network reaches beyond the segment that the node's owner has given to a VF only where the node policy allows it.
func TestIGBPolicy(t *testing.T) {
	vfs := igbVFs(t, 1, false)
	shell(t, "ip link set enp vf 0 vlan 7 qos 2; ip link set enp vf 0 max_tx_rate 100")
	Unchanged(t)
	pod := NewPod(t, "pod")
	for field, fields := range map[string]config{
		"trust": {"trust": "on"}, "spoofchk": {"spoofchk": "off"}, "vlan": {"vlan": 0},
		"vlanQoS":   {"vlan": 7, "vlanQoS": 5},
		"maxTxRate": {"max_tx_rate": 0}, "minTxRate": {"min_tx_rate": 10},
	} {
		fields["deviceID"] = vfs[0].PCI
		wantError(t, interfaceOf(pod, "net1", network(fields)).call("ADD").Exec(t), 104, `"`+field+`"`, `"vf.`)
	}
	own := config{"deviceID": vfs[0].PCI, "vlan": 7, "vlanQoS": 2, "max_tx_rate": 50, "spoofchk": "on", "trust": "off"}
	a := interfaceOf(pod, "net1", network(own))
	a.add(t)
	a.del(t)
}

// What a pod has put on its VF, and left in a network namespace that only a descriptor on its way holds, no search
// finds: as a macvlan in passthru mode it takes all frames. The next pod of the same namespace has it on the VF still,
// the first one of another does not.
func TestIGBTenant(t *testing.T) {
	vfs := igbVFs(t, 1, false)
	before := Unchanged(t)
	add := func(name, namespace string) *attachment {
		a := interfaceOf(NewPod(t, name), "net1", network(config{"deviceID": vfs[0].PCI}))
		a.args = "K8S_POD_NAMESPACE=" + namespace
		a.add(t)
		return a
	}
	a := add("first", "team-a")
	x := newThird(t, "third", "in flight")
	a.pod.sh(t, "ip link add link net1 name stray type macvlan mode passthru; ip link set stray netns third")
	x.sh(t, "ip link set stray up")
	x.hide(t, "in flight")
	a.del(t)
	for i, namespace := range []string{"team-a", "team-b"} {
		a := add(namespace, namespace)
		out := a.pod.sh(t, "ip -d link show net1")
		if want := fmt.Sprint("promiscuity ", 1-i); !containsAll(out, want, "mtu 1400", "02:00:00:00:10:00") {
			t.Errorf("the pod in %s, want %s: %s", namespace, want, out)
		}
		a.del(t)
	}
	x.end()
	Same(t, before)
}

// The card resets a VF between tenants.
func TestIGBReset(t *testing.T) {
	vfs := igbVFs(t, 1, false)
	vfs[0].resetsFor(t, func(namespace string, number int) *attachment {
		a := interfaceOf(NewPod(t, fmt.Sprint("pod", number)), "net1", network(config{"deviceID": vfs[0].PCI}))
		a.args = "K8S_POD_NAMESPACE=" + namespace
		return a
	})
}

var igbDevice = mode{
	name: "device-vf-ether",
	host: func(t testing.TB) { t.Helper(); igbVFs(t, 1, true); policyFile(t, vfPolicy) },
	conf: conf(map[string]any{
		"device":      "env0",
		"mac":         macPod,
		"vlan":        100,
		"max_tx_rate": 100,
		"spoofchk":    "off",
		"trust":       "on",
		"ipam":        ipv4,
	}),
}

// What the pod of a PF has changed of the VFs is not there afterwards.
func TestIGBPF(t *testing.T) {
	vfs := igbVFs(t, 2, false)
	shell(t, "ip link set enp vf 1 vlan 7 qos 2; ip link set enp vf 1 mac 02:00:00:00:20:01 spoofchk off trust on")
	before := Unchanged(t)
	pf := interfaceOf(NewPod(t, "has-pf"), "net1", network(config{"device": "enp"}))
	vf := interfaceOf(NewPod(t, "has-vf"), "net1", network(config{"deviceID": vfs[1].PCI}))
	pf.add(t)
	wantError(t, vf.call("ADD").Exec(t), 101, "PF "+vfs[1].PF, "has-pf")
	pf.pod.sh(t, "until ip -o link show net1 | grep -q LOWER_UP; do sleep .1; done; "+
		"ip link set net1 vf 0 vlan 9; ip link set net1 vf 0 trust on; ip link set net1 vf 0 max_tx_rate 50; "+
		"ip link set net1 vf 1 vlan 0; ip link set net1 vf 1 mac 02:00:00:00:20:99; ip link set net1 vf 1 spoofchk on")
	pf.del(t)
	Same(t, before)
}

func TestMatrixIGBAdd(t *testing.T)  { runMatrix(t, igbDevice, opAdd) }
func TestMatrixIGBDel(t *testing.T)  { runMatrix(t, igbDevice, opDel) }
func TestMatrixIGBGone(t *testing.T) { runMatrix(t, igbDevice, opGone) }
