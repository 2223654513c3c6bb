package survey

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// filesWait bounds the wait of FilesNow: kubelet admits no other pod meanwhile.
const filesWait = 5 * time.Second

// FilesNow returns the device files of an HCA as they are at this moment, for a container that is about to be given
// them. The kernel gives out their numbers anew whenever it brings the HCA home, in any order when several pods die at
// once. So an HCA that is to go into a pod (alone) is awaited: on the host, given back by the pod that had it, with as
// many files as before (was), twice the same. From then on only the ADD of the new pod moves it, which checks that the
// numbers stay. An HCA that is home, but that its former pod has not given back in time, has its files handed out all
// the same, unless the driver of a VF is to be bound again; one that is not home has none. See kernel facts 11 and 29
// in docs/kernel.md.
func (n Node) FilesNow(ctx context.Context, a device.Address, alone bool, was []string) ([]string, error) {
	r := &inventory.Reader{Sys: n.Sys}
	if !alone {
		return n.files(r, a)
	}
	end := time.After(filesWait)
	var last []string
	for {
		owner, owned, err := n.Store.Owner(a.String()) // first: what it has given up, it changes no more
		if err != nil {
			return nil, err
		}
		now, home, err := n.filesAtHome(r, a)
		if err != nil {
			return nil, err
		}
		stable := home && slices.Equal(now, last)
		if stable && !owned && len(now) >= len(was) {
			return now, nil
		}
		last = now
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-end:
			if stable && !n.rebinds(owner) {
				return now, nil
			}
			return nil, fmt.Errorf("device %s is in use: the pod that had it has not given it back", a)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// extraFiles are the kinds of device files that a container gets only if its Fabric allows it. With umad it can send
// management datagrams in the name of the port, and issm makes the port one of a subnet manager: see docs/security.md.
var extraFiles = []string{"umad", "issm"}

// AllowedFiles returns those of an HCA's device files that a container gets: all that verbs need, and of the extra ones
// those of the given kinds.
func AllowedFiles(files, kinds []string) []string {
	return slices.DeleteFunc(slices.Clone(files), func(file string) bool {
		kind := strings.TrimRight(path.Base(file), "0123456789")
		return slices.Contains(extraFiles, kind) && !slices.Contains(kinds, kind)
	})
}

// filesAtHome returns the device files, and whether the HCA is on the host.
func (n Node) filesAtHome(r *inventory.Reader, a device.Address) ([]string, bool, error) {
	files, err := n.files(r, a)
	if err != nil {
		return nil, false, err
	}
	hcas, err := fs.Glob(n.Sys, path.Join("bus", a.Bus, "devices", a.Name, "infiniband", "*"))
	return files, len(hcas) > 0, err
}

// rebinds says whether the return of an attachment may bind the driver of its VF again, which gives out numbers anew.
func (n Node) rebinds(k journal.Key) bool {
	e, err := n.Store.Load(k)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return e.VF != nil && e.VF.Rebind && slices.ContainsFunc(e.VF.Set, device.VFAttr.IsGUID)
}
