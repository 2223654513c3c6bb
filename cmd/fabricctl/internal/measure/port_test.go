package measure

import (
	"net/netip"
	"strings"
	"testing"
)

// shared is what script prints in a pod with a macvlan in shared mode: the ports of all pods, each with a net1.
const shared = `partition
port mlx5_0 1
link_layer Ethernet
state 4: ACTIVE
phys_state 5: LinkUp
rate 100 Gb/sec (4X EDR)
gid 0 fe80:0000:0000:0000:0002:c9ff:fefa:0010 eth0 IB/RoCE v1
gid 2 0000:0000:0000:0000:0000:ffff:0a01:0001 net1 IB/RoCE v1
gid 3 0000:0000:0000:0000:0000:ffff:0a01:0001 net1 RoCE v2
port mlx5_1 1
link_layer Ethernet
state 4: ACTIVE
phys_state 5: LinkUp
rate 200 Gb/sec (4X HDR)
gid 4 0000:0000:0000:0000:0000:ffff:0a01:0002 net1 IB/RoCE v1
gid 5 0000:0000:0000:0000:0000:ffff:0a01:0002 net1 RoCE v2
gid 7 0000:0000:0000:0000:0000:ffff:0a01:0001 net7 RoCE v2
port mlx5_2 1
link_layer InfiniBand
state 2: INIT
phys_state 5: LinkUp
rate 10 Gb/sec (4X SDR)
gid 0 fe80:0000:0000:0000:0002:c903:00fa:0010 -
pkey 0 0x7fff
pkey 2 0x0001
pkey 5 0x8001
`

func railOn(name, addr, hwaddr, pkey, text string) rail {
	r := rail{end: "a", name: name, hwaddr: hwaddr, index: -1}
	if addr != "" {
		r.addr = netip.MustParsePrefix(addr)
	}
	partition, ports := parse(text)
	if pkey != "" {
		partition = pkey
	}
	r.take(partition, ports)
	return r
}

const ipoib = "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fa:00:10"

// A rail is on the port that has its GID: the name of its interface may be that of another pod's on another port.
func TestRailOfPort(t *testing.T) {
	for _, c := range []struct {
		rail  rail
		hca   string
		index int
		rate  float64
	}{
		{railOn("net1", "10.1.0.1/24", "02:00:00:00:00:01", "", shared), "mlx5_0", 3, 100},
		{railOn("net1", "10.1.0.2/24", "02:00:00:00:00:02", "", shared), "mlx5_1", 5, 200},
		{railOn("net1", "10.1.0.3/24", "02:00:00:00:00:03", "", shared), "", -1, 0},
		{railOn("eth0", "10.1.0.9/24", "00:02:c9:fa:00:10", "", shared), "", -1, 0},
		{railOn("eth0", "10.1.0.9/24", "00:02:c9:fa:00:10", "", strings.Replace(shared, "_0 1", "_0 1 1", 1)), "mlx5_0",
			-1, 100},
		{railOn("net1", "10.1.0.1/24", ipoib, "0x8001", shared), "mlx5_2", 0, 10},
		{railOn("net1", "10.1.0.1/24", "02:00:00:00:00:01", "", ""), "", -1, 0},
		{railOn("net1", "10.1.0.1/24", "02:00:00:00:00:01", "", "gid 1 2 3\npkey 1 2\nrate 1\nport\n"), "", -1, 0},
	} {
		r := c.rail
		if r.port.hca != c.hca || r.index != c.index || r.port.rateGb != c.rate {
			t.Errorf("%s %s: %+v, want %s, index %d", r.name, r.addr, r.port, c.hca, c.index)
		}
	}
}

// The place of a partition counts holes in the table, and full membership comes first.
func TestPartition(t *testing.T) {
	r := railOn("net1", "10.1.0.1/24", ipoib, "0x8001", shared)
	args, err := perftestArgs(&r, 18500, "ib_write_bw", nil)
	if got := strings.Join(args, " "); err != nil || got != "ib_write_bw -d mlx5_2 -i 1 -p 18500 -F --pkey_index=5" {
		t.Errorf("%s, %v", got, err)
	}
	r = railOn("net1", "10.1.0.1/24", ipoib, "0xffff", shared)
	args, err = perftestArgs(&r, 18500, "ib_write_bw", nil)
	if got := strings.Join(args, " "); err != nil || got != "ib_write_bw -d mlx5_2 -i 1 -p 18500 -F" || !r.limited() {
		t.Errorf("%s, %v, limited %t", got, err, r.limited())
	}
	if ok, text := match(&r, &r); ok || !strings.Contains(text, "both ends are limited members") {
		t.Errorf("match: %t, %s", ok, text)
	}
	r = railOn("net1", "10.1.0.1/24", ipoib, "0x8002", shared)
	if _, err := perftestArgs(&r, 18500, "ib_write_bw", nil); err == nil ||
		!strings.Contains(err.Error(), "PKey 0x8002 of net1 is not in the table of mlx5_2:1") {
		t.Errorf("a partition that is gone: %v", err)
	}
}

// A child that was made by netlink has its PKey in the broadcast address alone.
func TestPartitionOfChild(t *testing.T) {
	for broadcast, want := range map[string]string{
		"00:ff:ff:ff:ff:12:40:1b:80:01:00:00:00:00:00:00:ff:ff:ff:ff": "0x8001",
		"ff:ff:ff:ff:ff:ff": "", "": "", "x": "",
	} {
		l := link{Broadcast: broadcast}
		if got := l.partition(); got != want {
			t.Errorf("%s: %s", broadcast, got)
		}
	}
	r := rail{name: "net1", hwaddr: ipoib, index: -1, pkey: "0x8001"}
	_, ports := parse(shared)
	if r.take("", ports); r.pkey != "0x8001" || r.port.hca != "mlx5_2" {
		t.Errorf("%+v", r)
	}
}

func TestMatch(t *testing.T) {
	roce := railOn("net1", "10.1.0.1/24", "02:00:00:00:00:01", "", shared)
	other := railOn("net1", "10.1.0.2/24", "02:00:00:00:00:02", "", shared)
	child := railOn("net1", "10.1.0.1/24", ipoib, "0x8001", shared)
	second := railOn("net1", "10.1.0.1/24", ipoib, "0x8002", shared)
	far := railOn("net1", "10.1.0.1/24", ipoib, "0x8001", strings.ReplaceAll(shared, "gid 0 fe80:", "gid 0 fec0:"))
	for _, c := range []struct {
		a, b *rail
		ok   bool
		text string
	}{
		{&roce, &other, true, "RoCE v2, index 3 and 5"},
		{&roce, &child, false, "one end is Ethernet, the other InfiniBand"},
		{&child, &child, true, "same subnet prefix"},
		{&child, &second, false, "partitions differ: PKey 0x8001 and 0x8002"},
		{&child, &far, false, "subnet prefixes differ: two fabrics"},
	} {
		if ok, text := match(c.a, c.b); ok != c.ok || text != c.text {
			t.Errorf("%t, %s; want %t, %s", ok, text, c.ok, c.text)
		}
	}
	if text := child.down(); !strings.HasPrefix(text, "a: port mlx5_2:1 is Init (LinkUp); log-port-down: ") {
		t.Errorf("down: %s", text)
	}
	if text := roce.down(); text != "" {
		t.Errorf("down: %s", text)
	}
}

// What a failure means is not what perftest prints in any case.
func TestMeaning(t *testing.T) {
	const usual = "Conflicting CPU frequency values detected: 2100.0 != 3700.0. CPU Frequency is not max.\n"
	if got := meaning(usual); got != "" {
		t.Errorf("a good output means %q", got)
	}
	if got := meaning(usual + "Couldn't allocate MR\n"); !strings.HasPrefix(got, "; log-mr: ") {
		t.Errorf("a bad one means %q", got)
	}
}
