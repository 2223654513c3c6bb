//go:build labguest

package guest

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// railHost is the node S1 reduced to two rails: a snapshot of it is cheap, and all that its first rail can
// lose is there.
func railHost(t testing.TB) {
	t.Helper()
	freshHost(t)
	Fabric{Num: 2}.Load(t)
	commands(t, [][]string{
		{"ip", "link", "set", "ib0", "name", "ibs108"}, {"ip", "link", "set", "ib1", "name", "ibs110"},
	})
	settings(t, map[string]string{
		"/sys/class/net/ibs110/mode":                      "connected",
		"/proc/sys/net/ipv4/conf/ibs108/arp_ignore":       "1",
		"/proc/sys/net/ipv4/conf/ibs108/rp_filter":        "2",
		"/proc/sys/net/ipv6/conf/ibs108/accept_ra":        "0",
		"/proc/sys/net/ipv6/conf/ibs110/use_tempaddr":     "-1",
		"/proc/sys/net/ipv6/conf/ibs110/accept_redirects": "0",
	})
	noDAD(t, "ibs108", "ibs110")
	var list [][]string
	for line := range strings.Lines(s1Commands) {
		fields := strings.Fields(line)
		if strings.Contains(line, "ibs108") || strings.Contains(line, "ibs110") ||
			strings.Contains(line, "10.8.0.1 lookup") {
			list = append(list, fields)
		}
	}
	commands(t, append(list, []string{"ip", "link", "set", "ibs108", "alias", "rail 0, leaf 1 port 12"}))
}

// noDAD switches duplicate address detection off: a settled link-local address would take a second in each cell.
func noDAD(t testing.TB, links ...string) {
	t.Helper()
	for _, l := range links {
		settings(t, map[string]string{"/proc/sys/net/ipv6/conf/" + l + "/accept_dad": "0"})
	}
}

func settings(t testing.TB, values map[string]string) {
	t.Helper()
	for path, value := range values {
		if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// freshHost removes what an earlier mode, or a cell that failed, has left.
func freshHost(t testing.TB) {
	t.Helper()
	forgetS1()
	commands(t, [][]string{
		{"ip", "rule", "flush"}, {"ip", "rule", "add", "table", "main", "priority", "32766"},
		{"ip", "rule", "add", "table", "default", "priority", "32767"},
		{"ip", "-6", "rule", "flush"}, {"ip", "-6", "rule", "add", "table", "main", "priority", "32766"},
	})
	for _, dir := range StateDirs {
		if err := removeBelow(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// bareHost has RDMA devices without a netdev.
func bareHost(t testing.TB) {
	t.Helper()
	freshHost(t)
	Fabric{Num: 2, Bare: true}.Load(t)
}

// chainHost has IPoIB netdevs that another plugin moves.
func chainHost(t testing.TB) {
	t.Helper()
	freshHost(t)
	Fabric{Num: 2}.Load(t)
	noDAD(t, "ib1")
	commands(t, [][]string{{"ip", "link", "set", "ib1", "mtu", "2044"}}) // not what a new one has
}

func plainHost(t testing.TB) {
	t.Helper()
	freshHost(t)
	etherHost(t, "52:54:00:00:01:01", "eno1")
}

// roceHost has its HCA on a card whose netdev sits on the PCI function itself, as those of RDMA cards do.
func roceHost(t testing.TB) {
	t.Helper()
	freshHost(t)
	Unload(t)
	etherHost(t, "52:54:00:00:02:01", "eno2")
	connectionManager(t)
	Fabric{RoCE: []string{"eno2"}, RoCEClass: true}.Load(t)
	setCM(t, "mlx5_0", 106, RoCEv1)
}

// roceHosts is roceHost with an HCA of two ports, each on a card of its own.
func roceHosts(t testing.TB) {
	t.Helper()
	freshHost(t)
	Unload(t)
	etherHost(t, "52:54:00:00:02:00", "eno3")
	etherHost(t, "52:54:00:00:02:01", "eno2")
	connectionManager(t)
	Fabric{RoCE: []string{"eno2+eno3"}}.Load(t)
	setCM(t, "mlx5_0", 106, RoCEv1)
}

// etherHost gives a network card a name and something to lose.
func etherHost(t testing.TB, mac, name string) {
	t.Helper()
	Modprobe(t, "virtio_net")
	Modprobe(t, "e1000e")
	etherNetdev(t, mac, name)
}

// etherNetdev is etherHost for a card whose driver is there.
func etherNetdev(t testing.TB, mac, name string) {
	t.Helper()
	var l netlink.Link
	Until(t, "the card "+mac+" is on the host", func() (err error) { l, err = byMAC(mac); return err })
	a := l.Attrs()
	list := [][]string{{"ip", "link", "set", a.Name, "down"}, {"ip", "address", "flush", "dev", a.Name}}
	for _, alt := range a.AltNames { // the name to be may be among them
		list = append(list, []string{"ip", "link", "property", "del", "dev", a.Name, "altname", alt})
	}
	if a.Name != name {
		list = append(list, []string{"ip", "link", "set", a.Name, "name", name})
	}
	commands(t, list)
	n := strings.TrimPrefix(name, "eno") // a subnet for each: two cards can't have the same route
	// No link-local address: it comes with the carrier, for which an e1000e takes two seconds.
	settings(t, map[string]string{
		"/proc/sys/net/ipv4/conf/" + name + "/arp_ignore":    "1",
		"/proc/sys/net/ipv6/conf/" + name + "/addr_gen_mode": "1",
	})
	commands(t, [][]string{
		{"ip", "link", "property", "add", "dev", name, "altname", name + "np0", "altname", "enx" + name},
		{"ip", "link", "set", name, "alias", "storage network"},
		{"ip", "link", "set", name, "mtu", "1400", "txqueuelen", "500", "up"},
		{"ip", "address", "add", "10.30." + n + ".1/24", "dev", name},
		{"ip", "address", "add", "fd00:30:" + n + "::1/64", "dev", name, "nodad"},
		{"ip", "route", "add", "10.31." + n + ".0/24", "via", "10.30." + n + ".254", "dev", name, "metric", "9"},
	})
}

// byMAC finds a network card on the guest's hub, whatever its name is.
func byMAC(mac string) (netlink.Link, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if l.Attrs().HardwareAddr.String() == mac && l.Type() == "device" {
			return l, nil
		}
	}
	return nil, fs.ErrNotExist
}
