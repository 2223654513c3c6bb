package device

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]Address{
		"0000:3b:00.2":     {"pci", "0000:3b:00.2"},
		"0000:3B:1F.7":     {"pci", "0000:3b:1f.7"},
		"3b:00.2":          {"pci", "0000:3b:00.2"},
		"10000:01:00.0":    {"pci", "10000:01:00.0"}, // a VMD domain
		"mlx5_core.sf.4":   {"auxiliary", "mlx5_core.sf.4"},
		"virtio/virtio0":   {"virtio", "virtio0"},
		"pci/0000:3B:00.2": {"pci", "0000:3b:00.2"},
		"auxiliary/a.b.1":  {"auxiliary", "a.b.1"},
	} {
		got, err := ParseAddress(in)
		if err != nil || got != want {
			t.Errorf("ParseAddress(%q) = %v, %v; want %v", in, got, err, want)
		}
		if again, err := ParseAddress(got.String()); err != nil || again != got {
			t.Errorf("ParseAddress(%q) = %v, %v; want %v again", got.String(), again, err, got)
		}
	}
	for _, in := range []string{
		"", "3", "eth0", "0000:3b:20.0", "0000:3b:00.8", "0000:3b:00", "000:3b:00.0", "000000000:3b:00.0",
		"0000:3b:0g.0",
		"0000:3b-00.0", "0000:3b:00,0", "a:b", "mlx5_core.sf", "mlx5_core.sf.x", "mlx5_core..4", ".sf.4", "a.b.1.2",
		"../../etc", "pci/..", "pci/../x", "pci/eth0", "/x", "virtio/", "virtio/.x", "virtio/a/b", "vir tio/x",
		"3b:00.2\n",
		"virtio/" + strings.Repeat("x", 200), "0000:3b:00.2 ", "\xff\xfe:00.0",
	} {
		if got, err := ParseAddress(in); err == nil {
			t.Errorf("ParseAddress(%q) = %v; want an error", in, got)
		} else if len(err.Error()) > 400 {
			t.Errorf("ParseAddress of %d bytes: the message has %d", len(in), len(err.Error()))
		}
	}
	if s := (Address{}).String(); s != "" {
		t.Errorf("zero Address: %q", s)
	}
}

func TestParseGUID(t *testing.T) {
	const want GUID = 0x0002c90300fa0010
	for _, in := range []string{
		"00:02:c9:03:00:fa:00:10", "00:02:C9:03:00:FA:00:10", "0002:c903:00fa:0010", "0002c90300fa0010",
		"0x0002c90300fa0010",
	} {
		if got, err := ParseGUID(in); err != nil || got != want {
			t.Errorf("ParseGUID(%q) = %v, %v", in, got, err)
		}
	}
	if want.String() != "00:02:c9:03:00:fa:00:10" {
		t.Errorf("String: %s", want)
	}
	for _, in := range []string{
		"", "0x", "1", "00:02:c9:03:00:fa:00", "00:02:c9:03:00:fa:00:10:11", "0:2:c9:3:0:fa:0:10",
		"zz02c90300fa0010", "00:02:c903:00:fa:00:10", "::::::::",
	} {
		if got, err := ParseGUID(in); err == nil {
			t.Errorf("ParseGUID(%q) = %v; want an error", in, got)
		}
	}
	for _, g := range []GUID{0, 1, want, ^GUID(0)} {
		text, err := g.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		back := GUID(42)
		if err := back.UnmarshalText(text); err != nil || back != g {
			t.Errorf("%s reads back as %s, %v", text, back, err)
		}
		if unset := g == 0 || g == ^GUID(0); g.IsUnset() != unset {
			t.Errorf("%s IsUnset: %v", g, g.IsUnset())
		}
	}
	g := GUID(42)
	if err := g.UnmarshalText([]byte("no")); err == nil || g != 42 {
		t.Errorf("a GUID that cannot be read changed the value to %v, %v", g, err)
	}
}

func TestGUIDOf(t *testing.T) {
	hw, err := net.ParseMAC("80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fa:00:10")
	if err != nil {
		t.Fatal(err)
	}
	if g, ok := GUIDOf(hw); !ok || g != 0x0002c90300fa0010 {
		t.Errorf("GUIDOf = %v, %v", g, ok)
	}
	for _, n := range []int{0, 6, 8, 19, 21} {
		if g, ok := GUIDOf(make([]byte, n)); ok {
			t.Errorf("GUIDOf %d bytes = %v", n, g)
		}
	}
}

func TestParsePKey(t *testing.T) {
	for in, want := range map[string]PKey{
		"0x8001": 0x8001, "0x1": 0x8001, "0X5": 0x8005, "32769": 0x8001, "1": 0x8001,
		"0x7fff": 0xffff, "0xFFFF": 0xffff, "010": 0x800a,
	} {
		got, err := ParsePKey(in)
		if err != nil || got != want {
			t.Errorf("ParsePKey(%q) = %v, %v; want %v", in, got, err, want)
		}
		if again, err := ParsePKey(got.String()); err != nil || again != got {
			t.Errorf("ParsePKey(%q) = %v, %v; want it back", got.String(), again, err)
		}
	}
	for _, in := range []string{
		"", "0", "0x0", "0x8000", "32768", "65536", "0x10001", "-1", "0x", "0b1", "0o7", "0x80_01", "abc", "1.5", "+1 ",
	} {
		if got, err := ParsePKey(in); err == nil {
			t.Errorf("ParsePKey(%q) = %v; want an error", in, got)
		}
	}
}

func TestStateNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{PortActive.String(), "Active"}, {PortInit.String(), "Init"}, {PortState(99).String(), "unknown"},
		{PhysLinkUp.String(), "LinkUp"}, {PhysPolling.String(), "Polling"}, {PhysState(99).String(), "unknown"},
		{NetnsShared.String(), "shared"}, {NetnsExclusive.String(), "exclusive"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// The journal keeps what it means that nothing is set, apart from that nothing was read.
func TestKeptInTheJournal(t *testing.T) {
	for _, want := range []Kept{
		{},
		{Attrs: map[LinkAttr]uint32{}, Queues: map[string]string{}, Sysctls: map[string]string{}},
		{Attrs: map[LinkAttr]uint32{LinkMode: 0}, Features: &Features{Can: []uint32{1}, Wanted: []uint32{0}}},
	} {
		b, err := json.Marshal(Netdev{Kept: want})
		if err != nil {
			t.Fatal(err)
		}
		var n Netdev
		if err := json.Unmarshal(b, &n); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, n.Kept); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}
