package prepared

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func claim(pod, uid string, devices ...Device) *Claim {
	return &Claim{UID: uid, Namespace: "default", Name: "rails", PodUID: pod, Pod: "p1", Devices: devices}
}

func dev(id string, rail int, fabric string) Device {
	return Device{
		Request: "rails", Name: "pci-" + id, Fabric: fabric, Rail: rail, ID: id,
		Address: device.Address{Bus: "pci", Name: id},
	}
}

func TestStore(t *testing.T) {
	s := In(t.TempDir())
	if all, err := s.All(); err != nil || len(all) != 0 {
		t.Fatalf("without a directory: %v, %v", all, err)
	}
	a := claim("pod-a", "claim-1", dev("0000:5e:00.0", 1, "ib"))
	b := claim("pod-a", "claim-2", dev("0000:3b:00.0", 0, "ib"))
	other := claim("pod-b", "claim-3", dev("0000:86:00.0", 2, "ib"), dev("0000:87:00.0", 0, "eth"))
	for _, c := range []*Claim{a, b, other} {
		if err := s.Save(c); err != nil {
			t.Fatal(err)
		}
	}
	of, err := s.Of("pod-a")
	if diff := cmp.Diff([]*Claim{a, b}, of); err != nil || diff != "" {
		t.Errorf("of pod-a: %v\n%s", err, diff)
	}
	all, err := s.All()
	if diff := cmp.Diff([]*Claim{a, b, other}, all); err != nil || diff != "" {
		t.Errorf("all: %v\n%s", err, diff)
	}
	got := OfFabric(all, "ib")
	if len(got) != 3 || got[0].ID != "0000:3b:00.0" || got[1].ID != "0000:5e:00.0" || got[2].ID != "0000:86:00.0" {
		t.Errorf("in the order of rails: %v", got)
	}
	one, err := s.Claim("claim-3")
	if diff := cmp.Diff(other, one); err != nil || diff != "" {
		t.Errorf("claim-3: %v\n%s", err, diff)
	}
	for _, uid := range []string{"claim-1", "claim-2", "claim-2"} {
		if err := s.Remove(uid); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "pod-a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory of a pod without claims: %v", err)
	}
	if _, err := s.Claim("claim-1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed claim: %v", err)
	}
}

// A UID becomes part of a path.
func TestBadUID(t *testing.T) {
	s := In(t.TempDir())
	for _, bad := range []string{"", ".", "..", "../x", "a/b", "*", "a\x00", strings.Repeat("a", 129), ".hidden"} {
		if _, err := s.Of(bad); err == nil {
			t.Errorf("Of(%q): no error", bad)
		}
		if _, err := s.Claim(bad); err == nil {
			t.Errorf("Claim(%q): no error", bad)
		}
		if err := s.Remove(bad); err == nil {
			t.Errorf("Remove(%q): no error", bad)
		}
		if err := s.Save(claim("p", bad)); err == nil {
			t.Errorf("Save of claim %q: no error", bad)
		}
		if err := s.Save(claim(bad, "c")); err == nil {
			t.Errorf("Save of pod %q: no error", bad)
		}
	}
}

// A claim that can't be read is not one that is not there.
func TestDamaged(t *testing.T) {
	for name, content := range map[string]string{
		"not JSON":    "{",
		"newer":       `{"version":2,"uid":"c","podUID":"p"}`, // its devices are known all the same
		"no address":  `{"version":1,"uid":"c","podUID":"p","devices":[{"id":"0000:3b:00.0","fabric":"ib"}]}`,
		"of others":   `{"version":1,"uid":"d","podUID":"p"}`,
		"of a pod":    `{"version":1,"uid":"c","podUID":"q"}`,
		"without end": strings.Repeat(" ", maxFile+1),
	} {
		t.Run(name, func(t *testing.T) {
			s := In(t.TempDir())
			if err := s.Save(claim("p", "good")); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(s.Dir, "p", "c"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Of("p"); err == nil {
				t.Error("Of: no error")
			}
			if _, err := s.Claim("c"); err == nil {
				t.Error("Claim: no error")
			}
			want := 1
			if name == "newer" || name == "no address" {
				want = 2
			}
			all, err := s.All()
			if err == nil || len(all) != want {
				t.Errorf("All: %v, %v", all, err)
			}
		})
	}
}

// What a damaged file says of itself does not get into a message as it is.
func TestNames(t *testing.T) {
	c := &Claim{Namespace: "default", Name: "rails\x1b[2J", Pod: strings.Repeat("x", 1000)}
	if got := c.Whose(); got != `default/"rails\x1b[2J"` {
		t.Errorf("claim %s", got)
	}
	if got := c.ForPod(); len(got) > 300 || !strings.HasPrefix(got, `default/"xxx`) {
		t.Errorf("pod %s", got)
	}
}
