package survey

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// changing is a sysfs whose content is replaced while the agent looks.
type changing struct {
	mu    sync.Mutex
	fs    fstest.MapFS
	looks int    // at whether the HCA is there, which is after the look at its files
	then  func() // at the second of them
}

func (c *changing) set(files ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fs = fstest.MapFS{"class/misc/rdma_cm/dev": {}}
	for _, f := range files {
		c.fs["bus/pci/devices/0000:3b:00.4/"+f] = &fstest.MapFile{}
	}
}

func (c *changing) Open(name string) (fs.File, error) {
	if strings.HasSuffix(name, "/infiniband") {
		if c.looks++; c.looks == 2 && c.then != nil {
			c.then()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fs.Open(name)
}

func TestFilesNow(t *testing.T) {
	a := device.Address{Bus: "pci", Name: "0000:3b:00.4"}
	was := []string{"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"}
	at3 := []string{"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs3"}
	home := []string{"infiniband/mlx5_4/x", "infiniband_verbs/uverbs3/dev"}
	sys := &changing{}
	n := Node{Sys: sys, Store: journal.Store{Dir: t.TempDir()}}
	look := func(ctx context.Context, alone bool, want []string) {
		t.Helper()
		if got, err := n.FilesNow(ctx, a, alone, was); !slices.Equal(got, want) || (err != nil) != (want == nil) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	sys.set(home...)
	look(t.Context(), true, at3)

	sys.set(home[1:]...) // in a pod: its files are another device's when it returns
	look(t.Context(), false, at3)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	look(short, true, nil)

	sys.set(home[0]) // on its way home: registered, and its files are still to come
	time.AfterFunc(30*time.Millisecond, func() { sys.set(home...) })
	look(t.Context(), true, at3)

	sys.set(home...)
	k := journal.Key{ContainerID: "c1", IfName: "net1"}
	e := &journal.Entry{Key: k, Kind: journal.KindDevice, DeviceKey: a.String()}
	for _, err := range []error{n.Store.Save(e), n.Store.SetOwner(a.String(), k)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	sys.looks = 0
	sys.then = func() { // its attachment binds its driver again, and gives it up, when the files have been looked at
		sys.set(home[0], "infiniband_verbs/uverbs1/dev")
		if err := n.Store.ClearOwner(a.String(), k); err != nil {
			t.Error(err)
		}
	}
	look(t.Context(), true, []string{"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs1"})
}

// Containers get what verbs need, and umad and issm only if their fabric allows them.
func TestAllowedFiles(t *testing.T) {
	files := []string{
		"/dev/infiniband/issm3", "/dev/infiniband/rdma_cm", "/dev/infiniband/umad3", "/dev/infiniband/uverbs12",
	}
	for _, c := range []struct {
		kinds []string
		want  []int
	}{
		{nil, []int{1, 3}}, {[]string{"umad"}, []int{1, 2, 3}}, {[]string{"issm"}, []int{0, 1, 3}},
		{[]string{"umad", "issm"}, []int{0, 1, 2, 3}}, {[]string{"uverbs"}, []int{1, 3}},
	} {
		var want []string
		for _, i := range c.want {
			want = append(want, files[i])
		}
		if got := AllowedFiles(files, c.kinds); !slices.Equal(got, want) {
			t.Errorf("%v: got %v, want %v", c.kinds, got, want)
		}
	}
	if len(AllowedFiles(nil, nil)) != 0 {
		t.Error("files of nothing")
	}
}

// A device that is home, and that no DEL gives back: its files are handed out all the same, unless the return, which
// the next ADD does, will bind its driver again.
func TestFilesOfADeadPod(t *testing.T) {
	a, pf := device.Address{Bus: "pci", Name: "0000:3b:00.4"}, device.Address{Bus: "pci", Name: "0000:3b:00.0"}
	for name, vf := range map[string]journal.VF{
		"as it was":          {},
		"for another tenant": {Rebind: true}, // in its ADD, and that is over
		"with a GUID":        {Rebind: true, Set: []device.VFAttr{device.VFNodeGUID, device.VFPortGUID}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for the time to be up
			sys := &changing{}
			sys.set("infiniband/mlx5_4/x", "infiniband_verbs/uverbs3/dev")
			n := Node{Sys: sys, Store: journal.Store{Dir: t.TempDir()}}
			k := journal.Key{ContainerID: "c1", IfName: "net1"}
			e := &journal.Entry{Key: k, Kind: journal.KindDevice, DeviceKey: a.String(), Address: a}
			e.BootID, e.Created = "b", time.Now()
			e.NetnsPath, e.Netns = "/run/netns/c1", netns.ID{Dev: 1, Ino: 2}
			vf.Was.PF = pf
			e.VF = &vf
			if err := errors.Join(n.Store.Save(e), n.Store.SetOwner(a.String(), k)); err != nil {
				t.Fatal(err)
			}
			if files, err := n.FilesNow(t.Context(), a, true, nil); (err != nil) != (len(vf.Set) > 0) {
				t.Errorf("got %v, %v", files, err)
			}
		})
	}
}
