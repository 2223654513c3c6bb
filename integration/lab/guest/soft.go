package guest

import (
	"os"
	"path/filepath"
	"testing"
)

// SoftRDMA loads the kernel's own soft RDMA driver, rxe, and unloads it when the test ends. It goes without fakeib: the
// kernel takes fakeib's devices, which have rxe's driver id, for rxe's, and unregisters them when rxe is unloaded. It
// goes without the bond of S1, too, which an earlier test may have left on a NIC; S1 makes it again.
func SoftRDMA(t testing.TB) {
	t.Helper()
	forgetS1()
	Unload(t)
	if _, err := os.Stat("/sys/class/net/bond0"); err == nil {
		if err := run("ip", "link", "delete", "bond0"); err != nil {
			t.Fatal(err)
		}
	}
	Modprobe(t, "rdma_rxe")
	t.Cleanup(func() {
		for _, path := range softDevices() {
			_ = run("rdma", "link", "delete", filepath.Base(path))
		}
		Until(t, "rdma_rxe is unloaded", func() error { return run("modprobe", "-r", "rdma_rxe") })
	})
}

// softDevices returns the directories in the host's sysfs of RDMA devices without hardware.
func softDevices() (out []string) {
	all, err := filepath.Glob("/sys/class/infiniband/*")
	if err != nil {
		return nil
	}
	for _, dir := range all {
		if hardware, err := filepath.Glob(dir + "/device"); err == nil && len(hardware) == 0 {
			out = append(out, dir)
		}
	}
	return out
}
