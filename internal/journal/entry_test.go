package journal

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

var compare = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.IgnoreUnexported(Entry{})}

func entry(k Key) *Entry {
	return &Entry{
		Version:   Version,
		Key:       k,
		Network:   "ib",
		Kind:      KindDevice,
		Created:   time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC),
		BootID:    "boot",
		NetnsPath: "/run/netns/pod",
		Netns:     netns.ID{Dev: 4, Ino: 4026532000},
		DeviceKey: "pci/0000:3b:00.0",
		Address:   device.Address{Bus: "pci", Name: "0000:3b:00.0"},
		PCI:       "0000:3b:00.0",
		MoveRDMA:  true,
		HCA: &device.HCA{
			Index:    1,
			Name:     "mlx5_0",
			NodeGUID: 0x0002c90300fa0010,
			Ports:    []device.Port{{Number: 1, State: device.PortActive}},
		},
		Netdev: &device.Netdev{
			Index:    4,
			Name:     "ibs108",
			AltNames: []string{"ibp59s0"},
			HWAddr:   []byte{1, 2, 3},
			MTU:      4092,
			IPoIB:    &device.IPoIB{PKey: 0xffff},
			IPv4Conf: []uint32{
				1,
				2,
			},
			Addrs:  []device.Addr{{Prefix: netip.MustParsePrefix("10.0.0.1/24"), Valid: ^uint32(0)}},
			Routes: []device.Route{{Dst: netip.MustParsePrefix("10.1.0.0/16"), Raw: []byte{2, 16}}},
		},
		Child:    &Child{PKey: 0x8001, Group: 1 << 30},
		Conf:     json.RawMessage(`{"name":"ib"}`),
		Attached: true,
		Tries:    1,
	}
}

func TestRoundTrip(t *testing.T) {
	want := entry(Key{"c1", "net1"})
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if strings.Contains(string(b), `"child":null`) || strings.Contains(string(b), "invalid") {
		t.Errorf("encoded: %s", b)
	}
}

// An entry of a newer version is read, changed and written by this one without losing what only the newer one knows.
func TestNewerVersion(t *testing.T) {
	e := entry(Key{"c1", "net1"})
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	all["version"] = 2
	all["added"] = map[string]any{"deep": []any{1.0, "two"}}
	all["number"] = json.Number("12345678901234567890")
	netdev, ok := all["netdev"].(map[string]any)
	if !ok {
		t.Fatalf("netdev is %T", all["netdev"])
	}
	netdev["vf"] = map[string]any{"trust": true}
	ipoib, ok := netdev["ipoib"].(map[string]any)
	if !ok {
		t.Fatalf("ipoib is %T", netdev["ipoib"])
	}
	ipoib["newer"] = "x"
	all["child"] = map[string]any{"pkey": 5, "newer": "x"}
	newer, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}

	s := Store{t.TempDir()}
	read, err := Decode(newer)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // twice: the first rewrite must not turn it into one of this version
		read.Tries, read.MoveRDMA, read.Netdev.Name, read.Netdev.Alias, read.Child = i+5, false, "other", "set", nil
		if err := s.Save(read); err != nil {
			t.Fatal(err)
		}
		if read, err = s.Load(e.Key); err != nil {
			t.Fatal(err)
		}
	}
	written, err := read.Encode()
	if err != nil {
		t.Fatal(err)
	}
	delete(all, "moveRDMA") // a known field that was cleared does not come back, nor what was in it
	delete(all, "child")
	all["tries"] = 6
	netdev["name"], netdev["alias"] = "other", "set"
	want, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(indent(t, want), indent(t, written)); diff != "" {
		t.Errorf("-want +written:\n%s", diff)
	}
}

func indent(t *testing.T, b []byte) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestDecodeFails(t *testing.T) {
	for name, in := range map[string]string{
		"empty":        ``,
		"cut off":      `{"version":1,"containerID":"c1","ifNa`,
		"null":         `null`,
		"no id":        `{"version":1,"ifName":"net1","kind":"device"}`,
		"no interface": `{"version":1,"containerID":"c1","kind":"device"}`,
		"no kind":      `{"version":1,"containerID":"c1","ifName":"net1"}`,
		"wrong type":   `{"version":1,"containerID":"c1","ifName":"net1","kind":"device","netdev":[]}`,
		"wrong type deep": `{"version":1,"containerID":"c1","ifName":"net1","kind":"device",` +
			`"netdev":{"addrs":[{"prefix":"x"}]}}`,
		"zeros": strings.Repeat("\x00", 512),
	} {
		if e, err := Decode([]byte(in)); err == nil {
			t.Errorf("%s: decoded to %+v", name, e)
		}
	}
}

// Whatever is in the file: an error or an entry that can be written and read again, never a panic.
func FuzzDecode(f *testing.F) {
	b, err := entry(Key{"c1", "net1"}).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(strings.Replace(string(b), `"version":1`, `"version":2,"x":{"y":[1]}`, 1)))
	f.Add([]byte(`{"version":7,"containerID":"c","ifName":"i","kind":"k","child":{"new":{}},"Child":null}`))
	f.Add([]byte(`{"containerID":"../..","ifName":"/","kind":"device","conf":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Decode(b)
		if err != nil {
			return
		}
		first, err := e.Encode()
		if err != nil {
			t.Fatalf("read, but not written: %v", err)
		}
		again, err := Decode(first)
		if err != nil {
			t.Fatalf("not read again: %v\n%s", err, first)
		}
		if again.Key != e.Key || again.Version != e.Version || again.Kind != e.Kind || again.DeviceKey != e.DeviceKey {
			t.Errorf("written as %+v, read as %+v", e, again)
		}
	})
}

// An entry that no call can act on is damaged, and not one of an attachment that has nothing. The device alone can be
// told from the device.
func TestSound(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*Entry)
		want string
	}{
		"whole":      {func(*Entry) {}, ""},
		"no claim":   {func(e *Entry) { e.DeviceKey = "" }, ""},
		"no boot ID": {func(e *Entry) { e.BootID = "" }, ""},
		"no device": {func(e *Entry) {
			e.DeviceKey, e.Address, e.Netdev = "", device.Address{}, nil
		}, "claim"},
		"claim of another":       {func(e *Entry) { e.DeviceKey = "pci/0000:00:00.0" }, "0000:00:00.0"},
		"no namespace":           {func(e *Entry) { e.Netns = netns.ID{} }, "netns"},
		"child without a record": {func(e *Entry) { e.Kind, e.Child = KindIPoIB, nil }, "child"},
		"shared mode": {func(e *Entry) {
			*e = Entry{Version: Version, Key: e.Key, Kind: KindRDMA, Attached: true}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, e := Store{t.TempDir()}, entry(Key{"c1", "net1"})
			deviceKey := e.DeviceKey
			tt.edit(e)
			must(t, s.Save(e))
			got, err := s.Load(e.Key)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %q", err, tt.want)
			case tt.want == "" && e.HCA != nil && got.DeviceKey != deviceKey:
				t.Errorf("claim %q", got.DeviceKey)
			}
			if list, err := s.List(); len(list) != 1 || err != nil { // List shows it
				t.Errorf("list: %v, %v", list, err)
			}
		})
	}
}
