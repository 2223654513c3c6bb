package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// RoCE versions as sysfs calls them in gid_attrs/types.
const (
	RoCEv1 = device.RoCEv1
	RoCEv2 = device.RoCEv2
)

// GIDIndex waits until port 1 of an HCA in the pod has the GID of an IP address for a version of RoCE, and returns its
// index: what perftest's -x, ibverbs-utils' -g and NCCL_IB_GID_INDEX want.
func GIDIndex(t testing.TB, pod *Pod, hca, address, version string) int {
	t.Helper()
	return gidIndex(t, pod, hca, 1, address, version)
}

func gidIndex(t testing.TB, pod *Pod, hca string, port int, address, version string) int {
	t.Helper()
	want := netip.MustParseAddr(address)
	found := -1
	Until(t, fmt.Sprintf("%s in pod %s has a GID of %s", hca, pod.Name, address), func() error {
		return pod.DoSysfs(func() error {
			var err error
			found, err = findGID(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d", hca, port), want, version)
			return err
		})
	})
	return found
}

func findGID(port string, want netip.Addr, version string) (int, error) {
	files, err := filepath.Glob(port + "/gids/*")
	if err != nil {
		return 0, err
	}
	var all []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, fmt.Errorf("read GID: %w", err)
		}
		gid, err := netip.ParseAddr(string(bytes.TrimSpace(text)))
		if err != nil {
			return 0, fmt.Errorf("GID %s: %w", file, err)
		}
		kind, err := os.ReadFile(port + "/gid_attrs/types/" + filepath.Base(file))
		if err != nil {
			continue // EINVAL: nothing at this index
		}
		if gid.Unmap() == want && string(bytes.TrimSpace(kind)) == version {
			return strconv.Atoi(filepath.Base(file))
		}
		all = append(all, fmt.Sprintf("%s %s (%s)", filepath.Base(file), gid, bytes.TrimSpace(kind)))
	}
	return 0, fmt.Errorf("%w: %v among %q", fs.ErrNotExist, want, all)
}

// PortIs waits until a port of an HCA in the pod has a state: "4: ACTIVE".
func PortIs(t testing.TB, pod *Pod, hca string, port int, state string) {
	t.Helper()
	Until(t, fmt.Sprintf("port %d of %s in pod %s is %s", port, hca, pod.Name, state), func() error {
		return pod.DoSysfs(func() error {
			text, err := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/state", hca, port))
			if err == nil && string(bytes.TrimSpace(text)) != state {
				err = errors.New(string(text))
			}
			return err
		})
	})
}
