package inventory

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// fleet makes a node of so many functions in sysfs, each with a netdev, and an RDMA device if asked for.
func fleet(t testing.TB, functions int, hcas bool) (*Reader, []device.Address, sandbox.Netns) {
	t.Helper()
	n, dir := sandbox.New(t), t.TempDir()
	batch := ""
	for i := range functions {
		batch += fmt.Sprintf("link add name e%d type bridge\n", i)
	}
	n.Batch(t, batch)
	c := n.Link(t)
	all, err := c.List("")
	if err != nil {
		t.Fatal(err)
	}
	index := map[string]int{}
	for i := range all {
		index[all[i].Name] = all[i].Index
	}
	r := &Reader{Sys: os.DirFS(dir), Link: c}
	var addresses []device.Address
	file := func(text string, path ...string) {
		path[0] = filepath.Join(dir, path[0])
		name := filepath.Join(path...)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range functions {
		a := device.Address{Bus: "pci", Name: fmt.Sprintf("0000:%02x:%02x.%d", i/256, i/8%32, i%8)}
		at := filepath.Join("bus/pci/devices", a.Name)
		name := fmt.Sprintf("e%d", i)
		file(fmt.Sprint(index[name]), at, "net", name, "ifindex")
		file(fmt.Sprint(index[name]), "class/net", name, "ifindex")
		if hcas {
			file("", at, "infiniband", fmt.Sprintf("mlx5_%d", i), "node_guid")
		}
		addresses = append(addresses, a)
	}
	return r, addresses, n
}

// withHCAs adds RDMA devices, which the kernel of the tests has none of, to the lists.
func withHCAs(r *Reader, functions int) {
	for i := range functions {
		name := fmt.Sprintf("mlx5_%d", i)
		r.lists.hcas[name] = device.HCA{Index: uint32(i), Name: name, Ports: []device.Port{{Number: 1}}}
	}
}

// looks is what a look at a node asks of each device.
func looks(r *Reader, at []device.Address) ([]any, error) {
	var out []any
	for _, a := range at {
		d, err := r.At(a)
		if err != nil {
			return nil, err
		}
		if d.Netdev.Addrs, err = r.Addrs(d.Netdev.Index); err != nil {
			return nil, err
		}
		uppers, err := r.Uppers(d.Netdev)
		if err != nil {
			return nil, err
		}
		u, err := r.Uplink(d.Netdev, uppers)
		if err != nil {
			return nil, err
		}
		out = append(out, d, u)
	}
	return out, nil
}

// A look at all devices reads each list of the kernel once: afterwards it can be done without a connection, and its
// answers are those of asking for each device.
func TestOnce(t *testing.T) {
	const functions = 12
	r, at, n := fleet(t, functions, false)
	n.Batch(t, `addr add 10.8.0.1/24 dev e1
addr add 10.8.1.1/24 dev e2
link set lo up
link set e1 up
link set e2 up
route add default dev e1
route add default table 200 nexthop dev e2 nexthop dev e1
rule add from 10.8.1.1 table 200
`)
	n.Settled(t)
	once, _, err := r.Once(nil)
	if err != nil {
		t.Fatal(err)
	}
	withHCAs(once, functions)
	want, err := looks(r, at)
	if err != nil {
		t.Fatal(err)
	}
	once.Link = nil
	got, err := looks(once, at)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("-each for itself +once:\n%s", diff)
	}
	if _, err := once.HCANamed("mlx5_7"); err != nil {
		t.Errorf("RDMA device of the list: %v", err)
	}
}

// BenchmarkLook is the part of a look at 2560 functions that sysfs and rtnetlink have, with everything read and with
// nothing changed; cpu-ms is what it costs the process in CPU, whatever else the machine does.
func BenchmarkLook(b *testing.B) {
	const functions = 2560
	r, at, n := fleet(b, functions, true)
	for name, m := range map[string]*Memory{"whole": nil, "idle": memoryIn(b, n)} {
		b.Run(name, func(b *testing.B) {
			lookAll(b, r, m, at) // for the next one to remember
			before := cpu(b)
			n := 0
			for b.Loop() {
				if n++; m != nil {
					m.used = 0 // all but every tenth one
				}
				lookAll(b, r, m, at)
			}
			b.ReportMetric(float64(cpu(b)-before)/1e6/float64(n), "cpu-ms/op")
		})
	}
}

func lookAll(b *testing.B, r *Reader, m *Memory, at []device.Address) {
	once, same, err := r.Once(m)
	if err != nil {
		b.Fatal(err)
	}
	if !same {
		withHCAs(once, len(at))
	}
	if _, err := looks(once, at); err != nil {
		b.Fatal(err)
	}
}

// cpu is what the process has used, in ns.
func cpu(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
