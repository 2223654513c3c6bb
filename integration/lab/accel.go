package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// kvmMark is what the probe's guest prints.
const kvmMark = "fabric-lab-kvm-works"

// kvm is the answer of this process to kvmWorks.
var kvm struct {
	once  sync.Once
	works bool
}

// kvmWorks reports whether QEMU can run k with KVM. That /dev/kvm can be opened is no proof: in some virtual machines
// it exists and no guest starts. So a guest is started, and has to print a line from user space. The answer is kept in
// the cache directory until this machine boots again.
func kvmWorks(ctx context.Context, k Kernel) bool {
	kvm.once.Do(func() {
		if _, err := os.Stat("/dev/kvm"); err != nil {
			return
		}
		file := filepath.Join(Cache(), "kvm")
		boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return
		}
		if works, known := readKVM(file, strings.TrimSpace(string(boot))); known {
			kvm.works = works
			return
		}
		kvm.works = probeKVM(ctx, k)
		if ctx.Err() == nil {
			text := fmt.Sprintf("%s %t\n", strings.TrimSpace(string(boot)), kvm.works)
			_ = os.WriteFile(file, []byte(text), 0o644) // without it the next run probes again
		}
	})
	return kvm.works
}

// readKVM reads the answer of an earlier run since this boot.
func readKVM(file, boot string) (works, known bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return false, false
	}
	fields := strings.Fields(string(data))
	if len(fields) != 2 || fields[0] != boot {
		return false, false
	}
	return fields[1] == "true", true
}

// probeKVM starts a guest whose init prints the mark. The kernel panics when init ends, which ends QEMU.
func probeKVM(ctx context.Context, k Kernel) bool {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var console strings.Builder
	var used time.Duration
	err := qemu(ctx, qemuProgram(false), []string{
		"-accel", "kvm", "-cpu", "host", "-nodefaults", "-no-user-config", "-M", "q35", "-m", "512",
		"-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot",
		"-kernel", k.Image, "-initrd", k.Initrd,
		"-append", "console=ttyS0 panic=-1 quiet rdinit=/bin/busybox -- echo " + kvmMark,
	}, &console, &used)
	return err == nil && strings.Contains(console.String(), kvmMark)
}

// qemuVersion identifies the emulator: what it prints about its version, and how it runs guests.
func qemuVersion(ctx context.Context, newer bool) (string, error) {
	out, err := output(ctx, qemuProgram(newer), "--version")
	if err != nil {
		return "", fmt.Errorf("find version of QEMU: %w", err)
	}
	return strings.TrimSpace(out), nil
}

// removeOld removes files of dir that were not touched for longer than age, and the oldest beyond count.
func removeOld(dir string, age time.Duration, count int) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", dir, err)
	}
	return removeOldest(dir, entries, age, count)
}
