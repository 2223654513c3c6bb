package device

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestCompare(t *testing.T) {
	var want []Address
	for _, s := range []string{
		"0000:05:00.0", "0000:0a:00.0", "0000:0a:00.1", "0000:3b:00.0", "0000:3b:1f.7", "ffff:00:00.0", "10000:00:00.0",
		"mlx5_core.sf.9", "mlx5_core.sf.010", "mlx5_core.sf.10", "netdev/a2", "netdev/a10", "netdev/b", "netdev/b1",
		"virtio/virtio3", "virtio/virtio20",
	} {
		a, err := ParseAddress(s)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, a)
	}
	got := slices.Clone(want)
	rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
	slices.SortFunc(got, Address.Compare)
	if !slices.Equal(want, got) {
		t.Errorf("%v", got)
	}
	for i := range want {
		for j := range want {
			if c, back := want[i].Compare(want[j]), want[j].Compare(want[i]); c != -back || (c == 0) != (i == j) {
				t.Errorf("%v and %v: %d, %d", want[i], want[j], c, back)
			}
		}
	}
}

// Rails are in the order of PCI functions, whatever the numbers of the subfunctions on them are. What is on no function
// comes last.
func TestRailOrder(t *testing.T) {
	sf := func(number, pci string) Location {
		return Location{Address{"auxiliary", "mlx5_core.sf." + number}, pci}
	}
	want := []Location{
		{OnPCI("0000:3b:00.0"), "0000:3b:00.0"}, sf("9", "0000:3b:00.0"), sf("11", "0000:3b:00.0"),
		{OnPCI("0000:3b:00.2"), "0000:3b:00.2"}, sf("10", "0000:5e:00.0"), sf("8", "ffff:01:00.0"),
		sf("7", "10000:01:00.0"), {Address{"platform", "fakeib.2"}, ""}, {Address{"platform", "fakeib.10"}, ""},
	}
	got := slices.Clone(want)
	rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
	slices.SortFunc(got, Location.Compare)
	if !slices.Equal(want, got) {
		t.Errorf("%v", got)
	}
	for a, id := range map[Address]string{
		OnPCI("0000:3b:00.0"): "0000:3b:00.0", {"auxiliary", "mlx5_core.sf.9"}: "auxiliary/mlx5_core.sf.9",
		OnPCI(""): "",
	} {
		if got := a.ID(); got != id {
			t.Errorf("ID of %v: %q, want %q", a, got, id)
		}
	}
}
