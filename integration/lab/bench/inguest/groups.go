package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fabric-cni/fabric-cni/integration/lab/bench/bare"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// groups are all measurements. "previous" takes part where the driver was given another build of the plugin.
func (b *bench) groups() []group {
	netdev := bare.Job{Mode: "netdev", Netns: pod, Host: b.nic, Pod: "net1", Address: "10.9.0.5/24"}
	child := rail(0)
	child.Mode = "child"
	first := rail(0)
	return []group{
		{"version", append(b.versions("fabric", "previous"), b.versions("trivial")...), nil},
		{"ipoib", b.beside(first, first, conf(first), b.hostDevice(first)), b.reset},
		{"steps", []contestant{b.steps("ipoib", first.Pod, conf(first)), b.steps("child", child.Pod, childConf(child))},
			b.reset},
		{"netdev", b.beside(netdev, netdev, conf(netdev), b.hostDevice(netdev)), b.reset},
		{"child", append(b.beside(child, child, childConf(child), ipCommands(child)),
			b.peer(bare.Peer{Job: child}, "ipoib-cni")), b.reset},
		{"journal", b.journal(first), b.reset},
		{"rails", b.several(rail, rails), b.reset},
		{"vf", b.function(), b.reset},
		{"guid", b.functionWithGUID(), b.reset},
		{"guids", b.functionsAtOnce(), b.reset},
		{"tenant", b.tenants(), b.reset},
		{"namespaces", b.crowded(netdev), b.reset},
		{"shared", b.beside(first, shared(first), conf(first), b.hostDevice(first)), b.reset},
		{"veth", append(b.plugins(veth(0), conf(veth(0))), b.floorOnce(veth(0)), b.hostDevice(veth(0))), b.reset},
		{"veths", b.several(veth, veths), b.reset},
	}
}

// function measures a VF as it is.
func (b *bench) function() []contestant {
	j := b.vf(0)
	return append(b.beside(j, j, conf(j), b.hostDevice(j)), b.ibSRIOV(0, false))
}

// functionWithGUID measures a VF with a GUID of the pod's: its driver is bound again in ADD and in DEL.
func (b *bench) functionWithGUID() []contestant {
	var out []contestant
	for _, p := range b.built("fabric", "previous") {
		out = append(out, b.attachment(p, p, "bench-guid-"+p, b.vf(0).Pod, guidConf(b.vf(0), 0)))
	}
	return append(out, b.ibSRIOV(0, true))
}

// tenants measures a VF whose last pod was of the same Kubernetes namespace, and of another one: its driver is bound
// again in ADD.
func (b *bench) tenants() []contestant {
	var out []contestant
	j := b.vf(0)
	for _, last := range []struct{ name, namespace string }{{"same", ""}, {"other", "team-a"}} {
		c := b.attachment(last.name, "fabric", "bench-"+last.name, j.Pod, conf(j))
		c.before = func() error {
			return journal.Store{Dir: journal.DefaultDir}.NoteTenant("pci/"+j.Bus, last.namespace)
		}
		out = append(out, c)
	}
	return out
}

// functionsAtOnce measures all VFs of a PF together, each with a GUID.
func (b *bench) functionsAtOnce() []contestant {
	var out []contestant
	for _, p := range b.built("fabric", "previous") {
		var list []contestant
		for i := range b.vfs {
			list = append(list, b.attachment("", p, "bench-guids-"+p, b.vf(i).Pod, guidConf(b.vf(i), i)))
		}
		out = append(out, parallel(p, list))
	}
	var list []contestant
	for i := range b.vfs {
		list = append(list, b.ibSRIOV(i, true))
	}
	return append(out, parallel("ib-sriov", list))
}

func guidConf(j bare.Job, i int) string {
	c := conf(j)
	return fmt.Sprintf(`%s,"guid":"00:11:22:33:44:55:66:%02x","linkState":"enable"}`, c[:len(c)-1], i)
}

// ibSRIOV is what ib-sriov-cni does for a VF.
func (b *bench) ibSRIOV(i int, withGUID bool) contestant {
	p := bare.Peer{Job: b.vf(i), VF: i, State: fmt.Sprintf("/run/bench-peer-%d", i), Lock: "/run/bench-peer.lock"}
	if withGUID {
		p.PF = pfName
	}
	return b.peer(p, "ib-sriov")
}

// peer is a stand-in for another plugin, see bare.Peer.
func (b *bench) peer(p bare.Peer, name string) contestant {
	call := func(verb string) func() error {
		return func() error {
			job, err := json.Marshal(p)
			if err != nil {
				return fmt.Errorf("encode job: %w", err)
			}
			cmd := exec.Command(filepath.Join(b.bin, "peer"), b.bin, string(job))
			cmd.Env = cniEnv(b.bin, verb, "bench-peer", p.Pod)
			cmd.Stdin = strings.NewReader(conf(p.Job))
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %s: %w: %s", name, verb, err, out)
			}
			return nil
		}
	}
	return contestant{name: name, add: call("ADD"), del: call("DEL")}
}

// beside returns the plugin and everything that it is compared with for one device. least is the kernel's part of it.
func (b *bench) beside(j, least bare.Job, conf string, other contestant) []contestant {
	return append(b.plugins(j, conf), b.floor(least), b.floorOnce(least), b.floorThenIPAM(least), b.ipam(j), other)
}

// shared is a rail of a system whose RDMA devices are in every namespace: only the netdev moves.
func shared(j bare.Job) bare.Job {
	j.Mode = "netdev"
	return j
}

const static = `"ipam":{"type":"static","addresses":[{"address":%q}]}`

func conf(j bare.Job) string {
	return fmt.Sprintf(
		`{"cniVersion":"1.1.0","name":"bench","type":"fabric","device":%q,`+static+`}`,
		j.Host,
		j.Address,
	)
}

func childConf(j bare.Job) string {
	return fmt.Sprintf(
		`{"cniVersion":"1.1.0","name":"bench","type":"fabric","mode":"ipoib","master":%q,"pkey":"0x8001",`+static+`}`,
		j.Host,
		j.Address,
	)
}

// attachment is one ADD and its DEL, which gets the result of the ADD as a runtime gives it.
func (b *bench) attachment(name, plugin, id, ifname, conf string) contestant {
	again := conf
	return contestant{
		name: name,
		add: func() error {
			out, err := b.call(plugin, "ADD", id, ifname, conf)
			if err == nil && json.Valid(out) {
				again = conf[:len(conf)-1] + `,"prevResult":` + string(out) + "}"
			}
			return err
		},
		del: func() error {
			_, err := b.call(plugin, "DEL", id, ifname, again)
			return err
		},
	}
}

// built leaves out plugins that were not built.
func (b *bench) built(plugins ...string) []string {
	var out []string
	for _, p := range plugins {
		if _, err := os.Stat(filepath.Join(b.bin, p)); err == nil {
			out = append(out, p)
		}
	}
	return out
}

func (b *bench) plugins(j bare.Job, conf string) []contestant {
	var out []contestant
	for _, p := range b.built("fabric", "previous") {
		out = append(out, b.attachment(p, p, "bench-"+p, j.Pod, conf))
	}
	return out
}

func (b *bench) floor(j bare.Job) contestant {
	return contestant{name: "floor", add: j.Add, del: j.Del}
}

func (b *bench) floorOnce(j bare.Job) contestant {
	once := func(verb string) func() error {
		return func() error { return b.floorExec(verb, j) }
	}
	return contestant{name: "floor-once", add: once("add"), del: once("del")}
}

func (b *bench) floorExec(verb string, j bare.Job) error {
	return command(filepath.Join(b.bin, "floor"), verb, j.Mode, j.Netns, j.Host, j.Pod, j.Address, j.Bus, j.HCA)
}

// floorThenIPAM is what a plugin could cost that did nothing by itself and executed its IPAM plugin: timed as one,
// because on a busy machine two short operations lose less than a long one. fabric executes none for static.
func (b *bench) floorThenIPAM(j bare.Job) contestant {
	floor, ipam := b.floorOnce(j), b.ipam(j)
	both := func(first, second func() error) func() error {
		return func() error {
			if err := first(); err != nil {
				return err
			}
			return second()
		}
	}
	return contestant{name: "floor-once-ipam", add: both(floor.add, ipam.add), del: both(floor.del, ipam.del)}
}

func (b *bench) ipam(j bare.Job) contestant {
	return b.attachment("ipam", "static", "bench-ipam", j.Pod, conf(j))
}

func (b *bench) hostDevice(j bare.Job) contestant {
	return b.attachment("host-device", "host-device", "bench-host-device", j.Pod, hostDeviceConf(j))
}

func hostDeviceConf(j bare.Job) string {
	return fmt.Sprintf(
		`{"cniVersion":"1.0.0","name":"bench","type":"host-device","device":%q,`+static+`}`,
		j.Host,
		j.Address,
	)
}

// ipCommands is how a script makes a child, without IPAM.
func ipCommands(j bare.Job) contestant {
	ns := filepath.Base(j.Netns)
	run := func(list ...[]string) func() error {
		return func() error {
			for _, args := range list {
				if err := command("ip", args...); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return contestant{name: "ip", add: run(
		[]string{"link", "add", "link", j.Host, "name", "bench0", "type", "ipoib", "pkey", "0x8001"},
		[]string{"link", "set", "bench0", "netns", ns, "name", j.Pod},
		[]string{"-n", ns, "address", "add", j.Address, "dev", j.Pod},
		[]string{"-n", ns, "link", "set", j.Pod, "up"},
	), del: run([]string{"-n", ns, "link", "delete", j.Pod})}
}

func (b *bench) versions(plugins ...string) []contestant {
	var out []contestant
	for _, p := range b.built(plugins...) {
		out = append(out, contestant{name: p, add: func() error {
			_, err := b.call(p, "VERSION", "", "", `{"cniVersion":"1.1.0"}`)
			return err
		}})
	}
	return out
}

// several adds and returns several devices of one pod, in turn and all at once.
func (b *bench) several(job func(int) bare.Job, count int) []contestant {
	var out []contestant
	for _, p := range b.built("fabric", "previous") {
		var list []contestant
		for i := range count {
			list = append(list, b.attachment("", p, "bench-"+p, job(i).Pod, conf(job(i))))
		}
		out = append(out, sequence(p, list), parallel(p, list))
	}
	var list, once []contestant
	for i := range count {
		list, once = append(list, b.floor(job(i))), append(once, b.floorOnce(job(i)))
	}
	return append(out, sequence("floor", list), sequence("floor-once", once), parallel("floor-once", once))
}

func sequence(name string, list []contestant) contestant {
	all := func(verb func(contestant) func() error) func() error {
		return func() error {
			for _, c := range list {
				if err := verb(c)(); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return contestant{name: name + "-sequence", add: all(contestant.adds), del: all(contestant.dels)}
}

func parallel(name string, list []contestant) contestant {
	all := func(verb func(contestant) func() error) func() error {
		return func() error {
			errs := make(chan error)
			for _, c := range list {
				go func() { errs <- verb(c)() }()
			}
			var err error
			for range list {
				err = errors.Join(err, <-errs)
			}
			return err
		}
	}
	return contestant{name: name + "-parallel", add: all(contestant.adds), del: all(contestant.dels)}
}

func (c contestant) adds() func() error { return c.add }
func (c contestant) dels() func() error { return c.del }
