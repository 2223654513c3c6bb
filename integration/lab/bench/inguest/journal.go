package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/integration/lab/bench/bare"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// others is the number of other attachments on the node.
const others = 512

// journal measures with no other attachment on the node and with many, whose journal is put in place untimed.
func (b *bench) journal(j bare.Job) []contestant {
	none := b.attachment("none", "fabric", "bench-none", j.Pod, conf(j))
	many := b.attachment("512", "fabric", "bench-many", j.Pod, conf(j))
	crowd := filepath.Join(filepath.Dir(journal.DefaultDir), "fabric-cni-crowd")
	many.before = func() error { return swap(crowd, fill) }
	many.after = func() error { return swap(crowd, nil) }
	return []contestant{none, many}
}

// swap exchanges the journal with the one that is kept aside, which fill makes the first time.
func swap(aside string, fill func(dir string) error) error {
	if _, err := os.Stat(aside); errors.Is(err, fs.ErrNotExist) && fill != nil {
		if err := fill(aside); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(journal.DefaultDir, 0o700); err != nil {
		return fmt.Errorf("swap journal: %w", err)
	}
	tmp := aside + ".swap"
	return errors.Join(os.Rename(journal.DefaultDir, tmp), os.Rename(aside, journal.DefaultDir), os.Rename(tmp, aside))
}

// fill writes attachments of other devices in living pods.
func fill(dir string) error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("read boot id: %w", err)
	}
	id, err := netns.IDOf(pod)
	if err != nil {
		return err
	}
	s := journal.Store{Dir: dir}
	for i := range others {
		e := &journal.Entry{
			Key: journal.Key{
				ContainerID: fmt.Sprintf("other-%d", i),
				IfName:      "net1",
			},
			Network:   "bench",
			Kind:      journal.KindDevice,
			Created:   time.Now().UTC(),
			BootID:    string(bytes.TrimSpace(boot)),
			NetnsPath: pod,
			Netns:     id,
			Attached:  true,
			IPAM:      "static",
			Address:   device.Address{Bus: "pci", Name: fmt.Sprintf("0000:%02x:%02x.0", i/32, i%32)},
			Netdev:    &device.Netdev{Name: fmt.Sprintf("ibp%ds%d", i/32, i%32), MTU: 4092, Kind: "ipoib"},
		}
		e.DeviceKey = e.Address.String()
		if err := errors.Join(s.Save(e), s.SetOwner(e.DeviceKey, e.Key)); err != nil {
			return err
		}
	}
	return nil
}

// peakRSS measures the memory of an ADD. The measuring process is busybox's time: the kernel counts what the parent had
// in memory at the fork as the child's, and a small parent has less than any child.
func (b *bench) peakRSS() error {
	if err := b.reset(); err != nil {
		return err
	}
	j := rail(0)
	for _, c := range append(b.plugins(j, conf(j)), b.hostDevice(j)) {
		conf, id := conf(j), "bench-"+c.name
		if c.name == "host-device" {
			conf = hostDeviceConf(j)
		}
		cmd := exec.Command("/run/busybox", "time", "-v", filepath.Join(b.bin, c.name))
		cmd.Env = cniEnv(b.bin, "ADD", id, j.Pod)
		cmd.Stdin = strings.NewReader(conf)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("measure memory of %s: %w: %s", c.name, err, out)
		}
		for line := range strings.Lines(string(out)) {
			if _, v, ok := strings.Cut(line, "Maximum resident set size (kbytes): "); ok {
				kib, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
				if err != nil {
					return fmt.Errorf("measure memory of %s: %w", c.name, err)
				}
				b.set.Values["rss/"+c.name] = kib / 1024
			}
		}
		if err := c.del(); err != nil {
			return err
		}
	}
	return nil
}
