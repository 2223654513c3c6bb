package prepared

import (
	"slices"
	"strings"
	"testing"
)

func TestInterfaceNames(t *testing.T) {
	for name, want := range map[InterfaceName]string{
		"": "net1 net3 net4", "ib%d": "ib0 ib2 ib3", "net%d": "net0 net1 net3", "storage": "storage storage storage",
		"r0%d": "r00 r01 r02",
	} {
		taken := map[string]bool{"net2": true, "ib1": true}
		var got []string
		for range 3 {
			n := name.Next(func(s string) bool { return taken[s] })
			if !name.Fits(n) {
				t.Errorf("%q does not fit %q", name, n)
			}
			taken[n] = true
			got = append(got, n)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", name, got, want)
		}
	}
}

func TestInterfaceNameFits(t *testing.T) {
	for _, tt := range []struct {
		name InterfaceName
		fits []string
		not  []string
	}{
		{"", []string{"net1", "ib0", "x"}, nil},
		{"ib0", []string{"ib0"}, []string{"ib00", "ib1", "net1", ""}},
		{"ib%d", []string{"ib0", "ib12"}, []string{"ib", "ib01", "ib-1", "ib+1", "ib1x", "net1"}},
	} {
		for _, s := range slices.Concat(tt.fits, tt.not) {
			if got, want := tt.name.Fits(s), slices.Contains(tt.fits, s); got != want {
				t.Errorf("%q fits %q: %v", tt.name, s, got)
			}
		}
	}
}

func TestInterfaceNameCheck(t *testing.T) {
	for _, good := range []InterfaceName{"", "ib0", "ib%d", "fifteen-letters", "fourteen-chrs%d"} {
		if err := good.Check(); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []InterfaceName{
		"lo", "all", "a/b", "a b", "ib%d%d", "ib%s", "%dib", "sixteen-letters-", "fifteen-letters%d", "\x1b[2J", "..",
	} {
		if err := bad.Check(); err == nil || strings.Contains(err.Error(), "\x1b") ||
			!strings.Contains(err.Error(), "want 1 to 15 characters") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
