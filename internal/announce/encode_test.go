package announce

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var (
	etherHW, _    = net.ParseMAC("02:00:5e:10:20:30")
	etherBcast, _ = net.ParseMAC("ff:ff:ff:ff:ff:ff")
	ipoibHW, _    = net.ParseMAC("80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fa:00:10")
	ipoibBcast, _ = net.ParseMAC("00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff")
)

func check(t *testing.T, got []byte, want string) {
	t.Helper()
	if w := strings.Join(strings.Fields(want), ""); hex.EncodeToString(got) != w {
		t.Errorf("got  %x\nwant %s", got, w)
	}
}

func TestARPAnnouncement(t *testing.T) {
	ip := netip.MustParseAddr("10.1.2.3")
	check(t, ARPAnnouncement(1, etherHW, ip), `
		0001 0800 06 04 0001
		02005e102030 0a010203
		000000000000 0a010203`)
	check(t, ARPAnnouncement(32, ipoibHW, ip), `
		0020 0800 14 04 0001
		80000208fe800000000000000002c90300fa0010 0a010203
		0000000000000000000000000000000000000000 0a010203`)
}

func TestNeighbourAdvertisement(t *testing.T) {
	ip := netip.MustParseAddr("fd00:1::3")
	check(t, NeighbourAdvertisement(1, etherHW, ip), `
		88 00 0000 20000000
		fd000001000000000000000000000003
		02 01 02005e102030`)
	check(t, NeighbourAdvertisement(32, ipoibHW, ip), `
		88 00 0000 20000000
		fd000001000000000000000000000003
		02 03 0000 80000208fe800000000000000002c90300fa0010`)
}

// swap gives a 16- or 32-bit field as this machine stores it.
func swap(v uint64, size int) string {
	b := make([]byte, 8)
	binary.NativeEndian.PutUint64(b, v)
	if b[0] == 0 && v != 0 { // big endian
		b = b[8-size:]
	}
	return hex.EncodeToString(b[:size])
}

func TestLinkAddress(t *testing.T) {
	head := swap(unix.AF_PACKET, 2) + "0806" + swap(7, 4)
	// 8 bytes of address at least: the kernel wants sizeof(struct sockaddr_ll).
	check(t, linkAddress(7, unix.ETH_P_ARP, 1, etherBcast), head+swap(1, 2)+"01 06 ffffffffffff 0000")
	check(t, linkAddress(7, unix.ETH_P_ARP, 32, ipoibBcast),
		head+swap(32, 2)+"01 14 00ffffffff12401bffff000000000000ffffffff")
}

func TestNeighUse(t *testing.T) {
	check(t, neighUse(7, netip.MustParseAddr("10.1.2.3")),
		"02 00 0000"+swap(7, 4)+"0000 01 00"+swap(8, 2)+swap(1, 2)+"0a010203")
}

func TestSplit(t *testing.T) {
	var in []netip.Prefix
	for _, s := range []string{
		"10.0.0.1/8", "10.1.0.1/16", "192.168.0.1/24", "192.168.0.2/24", "192.168.1.1/32", "192.168.1.2/32",
		"fd00::1/64", "fd00::2/64",
	} {
		in = append(in, netip.MustParsePrefix(s))
	}
	asked, sent, v6 := split(in)
	for _, c := range []struct {
		name string
		got  []netip.Addr
		want string
	}{
		{"asked", asked, "10.0.0.1 192.168.0.1 192.168.1.1 192.168.1.2"},
		{"sent", sent, "10.1.0.1 192.168.0.2"},
		{"v6", v6, "fd00::1 fd00::2"},
	} {
		var got []string
		for _, a := range c.got {
			got = append(got, a.String())
		}
		if !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
}

func TestBadArguments(t *testing.T) {
	addrs := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}
	if err := Announce(1, unix.ARPHRD_LOOPBACK, nil, nil, addrs); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("loopback: %v", err)
	}
	for name, c := range map[string]struct {
		typ       uint16
		hw, bcast net.HardwareAddr
	}{
		"no address":          {1, nil, etherBcast},
		"no broadcast":        {1, etherHW, nil},
		"IPoIB as Ethernet":   {1, ipoibHW, ipoibBcast},
		"Ethernet as IPoIB":   {32, etherHW, etherBcast},
		"Ethernet broadcast":  {32, ipoibHW, etherBcast},
		"longer than allowed": {32, append(slices.Clone(ipoibHW), 0), ipoibBcast},
	} {
		if err := Announce(
			1,
			c.typ,
			c.hw,
			c.bcast,
			addrs,
		); err == nil ||
			!strings.Contains(err.Error(), "bytes for link type") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
