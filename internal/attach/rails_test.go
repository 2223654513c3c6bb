package attach

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// railsOf are devices by their ids. A '*' marks the named one, a '+' those that are taken, a '-' what lacks something.
func railsOf(t *testing.T, ids ...string) *AllocatedDevices {
	t.Helper()
	r := &AllocatedDevices{}
	for _, s := range ids {
		id, pci, _ := strings.Cut(strings.Trim(s, "*+-"), "@")
		a, err := device.ParseAddress(id)
		if err != nil {
			t.Fatal(err)
		}
		at := device.Location{Address: a, PCI: cmp.Or(pci, a.PCI())}
		r.Devices = append(r.Devices, AllocatedDevice{Location: at, ID: id, Named: strings.Contains(s, "*"),
			Taken: strings.Contains(s, "+"), Lacking: strings.HasSuffix(s, "-")})
	}
	return r
}

func TestRails(t *testing.T) {
	for name, c := range map[string]struct {
		ids  string
		keep bool
		want string
	}{
		"first":                     {"0000:86:00.0* 0000:3b:00.0 0000:5e:00.0", false, "0000:3b:00.0"},
		"second":                    {"0000:86:00.0* 0000:3b:00.0+ 0000:5e:00.0", false, "0000:5e:00.0"},
		"the one that is left":      {"0000:86:00.0+ 0000:3b:00.0 0000:5e:00.0*+", false, "0000:3b:00.0"},
		"kept":                      {"0000:86:00.0* 0000:3b:00.0", true, "0000:86:00.0"},
		"kept, and taken":           {"0000:86:00.0*+ 0000:3b:00.0", true, "0000:3b:00.0"},
		"all taken":                 {"0000:86:00.0*+ 0000:3b:00.0+", false, ""},
		"moved by another plugin":   {"0000:86:00.0* 0000:3b:00.0-", false, "0000:86:00.0"},
		"functions":                 {"0000:3b:01.0* 0000:3b:00.7 0000:3b:00.1", false, "0000:3b:00.1"},
		"subfunctions of two cards": {"a.sf.2@0000:86:00.0* a.sf.9@0000:3b:00.0", false, "a.sf.9"},
		"subfunctions of one card":  {"a.sf.10@0000:3b:00.0 a.sf.9@0000:3b:00.0*", false, "a.sf.9"},
		"without a PCI address":     {"netdev/v2 netdev/v1* netdev/v0+", false, "netdev/v1"},
		"a domain with five digits": {"10000:01:00.0* ffff:01:00.0", false, "ffff:01:00.0"},
	} {
		r := railsOf(t, strings.Fields(c.ids)...)
		rand.Shuffle(len(r.Devices), func(i, j int) { r.Devices[i], r.Devices[j] = r.Devices[j], r.Devices[i] })
		r.Keep = c.keep
		r.Sort()
		got := ""
		if i := r.Choose(); i >= 0 {
			got = r.Devices[i].ID
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Whatever the order of the ids, whichever networks keep theirs, and whatever is attached again: each interface gets
// one device, and none gets another one's.
func TestRailsArePermuted(t *testing.T) {
	ids := []string{"0000:00:11.0", "0000:00:12.0", "0000:00:13.0", "0000:00:14.0"}
	for range 2000 {
		kubelets := slices.Clone(ids)
		rand.Shuffle(len(kubelets), func(i, j int) { kubelets[i], kubelets[j] = kubelets[j], kubelets[i] })
		keep := rand.IntN(1 << len(ids)) // which networks keep theirs
		if rand.IntN(2) == 0 {
			keep = 0
		}
		has := map[int]string{}
		add := func(network int) {
			r := railsOf(t, kubelets...)
			r.Keep = keep>>network&1 == 1
			for i := range r.Devices {
				d := &r.Devices[i]
				d.Named = d.ID == kubelets[network]
				for n, id := range has {
					d.Taken = d.Taken || n != network && id == d.ID
				}
			}
			r.Sort()
			i := r.Choose()
			if i < 0 {
				t.Fatalf("network %d of %v gets nothing, the others have %v", network, kubelets, has)
			}
			has[network] = r.Devices[i].ID
		}
		for n := range ids {
			add(n)
		}
		for n, id := range ids {
			if keep == 0 && has[n] != id {
				t.Errorf("%v: %v", kubelets, has)
			}
		}
		for range 4 { // DEL and ADD of some, in any order
			gone := rand.Perm(len(ids))[:2]
			for _, n := range gone {
				delete(has, n)
			}
			for _, n := range gone {
				add(n)
				add(n) // the same call again
			}
		}
		seen := map[string]bool{}
		for _, id := range has {
			seen[id] = true
		}
		if len(seen) != len(ids) {
			t.Fatalf("%v: %v", kubelets, has)
		}
	}
}
