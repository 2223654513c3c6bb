package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// ofEach are the kernel modules that have queue pairs on each RDMA device, used or not: management datagrams, IPoIB,
// which come back by themselves after a move, and drivers that send their own work requests.
var ofEach = []string{"ib_core", "ib_ipoib", "mlx4_ib", "mlx5_ib", "hns_roce_hw_v2"}

// services are processes that have queue pairs on each InfiniBand device to serve its fabric, and open it again.
var services = []string{"ibacm", "opensm"}

// mostUsers is how many users of a device are named.
const mostUsers = 4

// Users returns who uses an RDMA device that is in this network namespace, in words: "kernel module nvme_rdma",
// "process 4711 (rping)". Only queue pairs count: without one nothing is sent or received. Left out are the kernel's
// own on each device, and the services of a fabric. A listener without a peer has none. The cost is one message on a
// device without users. proc is a /proc that shows the processes of the host.
func (r *Reader) Users(h *device.HCA, proc string) ([]string, error) {
	qps, err := r.RDMA.QPs(h.Index)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it has just left
	}
	if err != nil {
		return nil, err
	}
	var modules map[uint32]string
	hidden := false
	seen := map[int]bool{}
	var out []string
	for _, q := range qps {
		switch {
		case slices.Contains(ofEach, q.Module):
		case q.Module != "":
			if q.Module == "rdma_cm" && modules == nil {
				if modules, err = r.RDMA.CMModules(h.Index); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return nil, err
				}
			}
			out = append(out, "kernel module "+cmp.Or(modules[q.Number], q.Module))
		case q.PID != 0:
			if !seen[q.PID] { // a process has hundreds of queue pairs
				out = append(out, process(proc, q.PID))
			}
			seen[q.PID] = true
		default:
			hidden = true
		}
	}
	if hidden {
		out = append(out, r.openers(h, proc)...)
	}
	out = slices.DeleteFunc(slices.Compact(out), func(s string) bool { return s == "" })
	if more := len(out) - mostUsers; more > 0 {
		out = append(out[:mostUsers], fmt.Sprintf("%d more", more))
	}
	return out, nil
}

// process names a process; empty: it is a service of the fabric. Its name is its own to choose: that of a process of
// the host, as the RDMA device is.
func process(proc string, pid int) string {
	b, _ := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "comm"))
	name := strings.TrimSuffix(string(b), "\n")
	if slices.Contains(services, name) {
		return ""
	}
	return fmt.Sprintf("process %d (%s)", pid, quote.Terminal(name))
}

// openers names the processes that have the device file of an RDMA device open: who has its queue pairs, where the
// kernel does not tell, because the caller is a container with a PID namespace of its own.
func (r *Reader) openers(h *device.HCA, proc string) (out []string) {
	chars, err := r.Chars(h.Address)
	links, globErr := filepath.Glob(filepath.Join(proc, "[0-9]*", "fd", "*"))
	found := false
	for _, l := range links {
		file, _ := os.Readlink(l)
		if dir, name := filepath.Split(file); dir != "/dev/infiniband/" || !slices.Contains(chars, name) ||
			!strings.HasPrefix(name, "uverbs") {
			continue
		}
		found = true
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(l)))); err == nil {
			out = append(out, process(proc, pid))
		}
	}
	if !found || err != nil || globErr != nil {
		return []string{"a process that can't be seen from here"}
	}
	return out
}
