package lab

import (
	"fmt"
	"strings"
)

// kernelArgs are on the command line of every guest's kernel.
const kernelArgs = "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off nokaslr random.trust_cpu=on tsc=reliable " +
	"no_timer_check"

// qemuArgs returns QEMU's command line for a guest that shares out as its /out.
//
// One virtual CPU on purpose: with two, emulation now and then loses the race of the kernel's text patching (an int3
// oops in one boot of about twelve). The kernel starts by its PVH note, see lab-setup.sh.
func qemuArgs(k Kernel, spec Spec, out string, kvm bool) []string {
	memory := spec.MemoryMiB
	if memory == 0 {
		memory = 1024
	}
	accel, cpu := []string{"tcg,thread=multi"}, "max"
	switch {
	case spec.Counted: // idle time is skipped: waiting for this machine's disk takes the guest no time, or a lot
		accel = []string{"tcg,thread=single", "-icount", "shift=1,sleep=off"}
	case kvm:
		accel, cpu = []string{"kvm"}, "host"
	}
	args := append([]string{"-accel"}, accel...)
	args = append(args,
		"-nodefaults", "-no-user-config", "-M", "q35", "-cpu", cpu, "-smp", "1",
		"-m", fmt.Sprint(memory),
		"-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot",
		"-kernel", k.Image, "-initrd", k.Initrd,
		"-append", strings.Join(append([]string{kernelArgs}, spec.Append...), " "),
		"-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
	)
	args = append(args, mount9p("root", "/", true)...)
	args = append(args, mount9p("out", out, false)...)
	return append(args, spec.Devices...)
}

// mount9p returns the arguments for a 9p file system with a mount tag.
func mount9p(tag, path string, readOnly bool) []string {
	fsdev := fmt.Sprintf("local,id=%s,path=%s,security_model=none,multidevs=remap", tag, path)
	if readOnly {
		fsdev += ",readonly=on"
	}
	return []string{"-fsdev", fsdev, "-device", "virtio-9p-pci,fsdev=" + tag + ",mount_tag=" + tag}
}

// VirtioNet returns the QEMU arguments for n virtio network cards: plain netdevs on a PCI function that come back from
// a deleted network namespace. All cards of a guest are plugged into one hub.
func VirtioNet(n int) []string { return netdevs("virtio-net-pci", "vnet", "52:54:00:00:01", n) }

// E1000e returns n Intel network cards on the same hub. Their netdevs sit on the PCI function itself, as those of
// RDMA cards do (virtio has a device of its own in between): put RoCE HCAs on these.
func E1000e(n int) []string { return netdevs("e1000e", "enic", "52:54:00:00:02", n) }

func netdevs(model, id, macPrefix string, n int) []string {
	var args []string
	for i := range n {
		args = append(args,
			"-netdev", fmt.Sprintf("hubport,hubid=0,id=%s%d", id, i),
			"-device", fmt.Sprintf("%s,netdev=%s%d,mac=%s:%02x,romfile=", model, id, i, macPrefix, i))
	}
	return args
}

// SRIOV returns the QEMU arguments for a PCI function with n virtual functions: a storage controller, which fakeib
// drives as an HCA.
func SRIOV(n int) []string {
	nvme := fmt.Sprintf(
		"nvme,serial=f1,subsys=ss0,bus=rp1,sriov_max_vfs=%d,max_ioqpairs=%d,msix_qsize=%d,sriov_vq_flexible=%d,"+
			"sriov_vi_flexible=%d",
		n,
		2*n+10,
		2*n+11,
		2*n,
		2*n,
	)
	return []string{"-device", "pcie-root-port,id=rp1,slot=1", "-device", "nvme-subsys,id=ss0", "-device", nvme}
}

// IGB returns the QEMU arguments for an Intel network card with virtual functions (seven at most), on the hub of
// VirtioNet. It takes Suite.NewQEMU.
func IGB() []string {
	return []string{"-device", "pcie-root-port,id=rp2,slot=2", "-netdev", "hubport,hubid=0,id=igb0",
		"-device", "igb,bus=rp2,netdev=igb0,mac=52:54:00:00:03:00,romfile="}
}
