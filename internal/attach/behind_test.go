package attach

import (
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// The second plugin of a chain does nothing where the first one has done it all, and says what to drop elsewhere.
func TestBehind(t *testing.T) {
	done := Before{Device: true, HCA: "mlx5_0", MoveRDMA: true}
	for name, c := range map[string]struct {
		before Before
		edit   func(*Facts)
		want   []string // of the refusal; none: nothing is to be done
	}{
		"moved": {done, func(*Facts) {}, nil},
		"shared mode": {Before{Device: true, HCA: "mlx5_0"}, func(f *Facts) {
			f.NetnsMode = device.NetnsShared
		}, nil},
		"the same name": {Before{true, "mlx5_0", true, "rail"}, func(f *Facts) { f.Config.RDMAName = "rail" }, nil},
		"a name by order": {Before{true, "mlx5_0", true, "mlx5_1"}, func(f *Facts) {
			f.Config.RDMAName = netconf.RDMANameAuto
		}, nil},
		"another device": {Before{HCA: "mlx5_0", MoveRDMA: true}, func(*Facts) {}, []string{
			"net1 of this very container has device pci/0000:3b:00.0 already, by the plugin before", dropChained,
		}},
		"without RDMA": {Before{Device: true}, func(*Facts) {}, []string{"has no RDMA device", dropChained}},
		"left": {Before{Device: true, HCA: "mlx5_0"}, func(*Facts) {}, []string{
			`attached device pci/0000:3b:00.0 without its RDMA device ("rdma": "none")`, dropChained,
		}},
		"another name": {done, func(f *Facts) { f.Config.RDMAName = "rail" }, []string{
			`field "rdmaName": value "rail"`, `write "rdmaName" there, and ` + dropChained,
		}},
		"exclusive in shared mode": {Before{Device: true, HCA: "mlx5_0"}, func(f *Facts) {
			f.NetnsMode, f.Config.RDMA = device.NetnsShared, netconf.RDMAExclusive
		}, []string{"the system's RDMA network namespace mode is shared"}},
	} {
		f := chainFacts()
		f.Earlier, f.Before = live(), &c.before
		f.ContainerID = f.Earlier.ContainerID
		c.edit(f)
		d := Decide(f)
		if d.Attachment != nil || len(d.Reclaims) > 0 || d.Done != (c.want == nil) || len(d.Refusals) > 1 {
			t.Errorf("%s: %+v", name, d)
			continue
		}
		if c.want == nil {
			if len(d.Refusals) > 0 || !strings.Contains(strings.Join(d.Warnings, ""), "nothing is left to do") {
				t.Errorf("%s: %s", name, shown(d))
			}
			continue
		}
		for _, want := range c.want {
			if len(d.Refusals) != 1 || !strings.Contains(d.Refusals[0].Message+"; "+d.Refusals[0].Hint, want) {
				t.Errorf("%s: %s, want %q", name, shown(d), want)
			}
		}
	}
	f := chainFacts() // a killed one is cleared first, as ever
	f.Earlier, f.Before = dead(), &done
	f.Earlier.Self = true
	if d := Decide(f); d.Done || len(d.Reclaims) != 1 {
		t.Errorf("killed: %s", shown(d))
	}
}

// A device that another network of the pod has is not called another pod's.
func TestInUseByItself(t *testing.T) {
	for name, edit := range map[string]func(*Facts){
		"on the host": func(f *Facts) { f.Owner = live() },
		"in the pod": func(f *Facts) {
			missing(f)
			f.Holder = live()
		},
	} {
		for injected, hint := range map[string]string{
			"":             "name another device in this network: each attachment needs one of its own",
			"0000:3b:00.0": "the pod names more networks than it has devices, or network rails names its device itself",
		} {
			f := deviceFacts()
			edit(f)
			f.IfName, f.ContainerID, f.Config.Injected = "net2", "c0ffee", injected
			got := shown(Decide(f))
			want := "InUse (passing): device pci/0000:3b:00.0 is in use by this very container: it is attached as " +
				"net1 (network rails)"
			if !strings.Contains(got, want) || !strings.Contains(got, hint) {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
	f := vfFacts()
	f.PFOwner, f.PF, f.ContainerID = live(), &device.Address{Bus: "pci", Name: "0000:3b:00.9"}, "c0ffee"
	if got := shown(Decide(f)); !strings.Contains(got, "is in use by this very container as net1") {
		t.Errorf("PF and VF: %s", got)
	}
}
