//go:build labguest

package guest

import (
	"os"
	"testing"
)

// Without the journal the plugin does not know what a device was like: these hosts have nothing that the device itself
// does not tell.
var (
	simpleIPoIB = mode{
		name: "device-ipoib",
		host: newIPoIBHost,
		conf: conf(map[string]any{"device": "ib1", "ipam": ipv4}),
	}
	simplePlain = mode{name: "device-plain", host: func(t testing.TB) { cardHost(t, "52:54:00:00:01:01", "eno1") },
		conf: conf(map[string]any{"device": "eno1", "ipam": ipv4})}
	simpleRoCE = mode{
		name: "device-roce",
		host: simpleRoCEHost,
		conf: conf(map[string]any{"device": "eno2", "ipam": ipv4}),
	}
)

func newIPoIBHost(t testing.TB) {
	t.Helper()
	freshHost(t)
	Fabric{Num: 2}.Load(t)
}

func cardHost(t testing.TB, mac, name string) {
	t.Helper()
	freshHost(t)
	etherHost(t, mac, name)
	shell(
		t,
		"ip link set "+name+" down; ip address flush dev "+name+"; ip link set "+name+" mtu 1500 txqueuelen 1000 "+
			"alias ''; ip link property del dev "+name+" altname "+name+"np0 altname enx"+name,
	)
	settings(
		t,
		map[string]string{
			"/proc/sys/net/ipv4/conf/" + name + "/arp_ignore":    "0",
			"/proc/sys/net/ipv6/conf/" + name + "/addr_gen_mode": "0",
		},
	)
	shell(t, "ip address flush dev "+name) // the mode has made a link-local one
}

func simpleRoCEHost(t testing.TB) {
	t.Helper()
	Unload(t)
	cardHost(t, "52:54:00:00:02:01", "eno2")
	Fabric{RoCE: []string{"eno2"}}.Load(t)
}

// damages are what a crash, a full disk or a person does to the journal.
var damages = []struct {
	what string
	do   func(t testing.TB, e entry)
}{
	{"truncated", func(t testing.TB, e entry) { e.data = e.data[:len(e.data)/2]; e.write(t) }},
	{"empty", func(t testing.TB, e entry) { e.data = nil; e.write(t) }},
	{"garbage", func(t testing.TB, e entry) { e.data = []byte("\x00\x01{{{"); e.write(t) }},
	{"another JSON value", func(t testing.TB, e entry) { e.data = []byte("[1,2]"); e.write(t) }},
	{"entry lost, claim dangling", func(t testing.TB, e entry) { remove(t, e.path) }},
	{"temporary file left", func(t testing.TB, e entry) {
		e.path = "/run/fabric-cni/attachments/.cell0@net1"
		e.write(t)
		remove(t, e.path)
	}},
	{"directory lost", func(t testing.TB, e entry) { remove(t, "/run/fabric-cni") }},
}

// Nothing is left that knows of the attachment: its device is found in the pod, or not at all.
var lost = damages[len(damages)-1].what

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func TestReturnDamagedIPoIB(t *testing.T) { damaged(t, simpleIPoIB) }
func TestReturnDamagedPlain(t *testing.T) { damaged(t, simplePlain) }
func TestReturnDamagedRoCE(t *testing.T)  { damaged(t, simpleRoCE) }
func TestReturnDamagedChild(t *testing.T) { damaged(t, childExclusive) }

// damaged wants everything back from a journal that is not what it was, with the pod alive and gone.
func damaged(t *testing.T, m mode) {
	r := newRig(t, m)
	for _, gone := range []bool{false, true} {
		state := " pod alive"
		if gone {
			state = " pod gone"
		}
		for _, d := range damages {
			if gone && d.what == lost {
				continue
			}
			ok := t.Run(d.what+state, func(t *testing.T) {
				s := r.sandbox(t)
				s.call("ADD").Must(t)
				d.do(t, s.entry(t))
				if gone {
					s.Delete(t)
				}
				s.call("DEL").Must(t)
				r.back(t, s, gone)
				if t.Failed() {
					return
				}
				// The device can be had again.
				s = r.sandbox(t)
				s.call("ADD").Must(t)
				s.call("DEL").Must(t)
				r.back(t, s, false)
			})
			if !ok {
				r.set(t)
			}
		}
	}
}
