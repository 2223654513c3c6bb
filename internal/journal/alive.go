package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/netns"
)

// Liveness is where Alive looks for signs of life.
type Liveness struct {
	// Proc is the /proc that shows the processes of all pods. Empty: /proc. In a container it is a mount of the host's.
	Proc string
	// Ready has the container IDs of the sandboxes that the container runtime reports as ready. Nil: it was not asked.
	Ready map[string]bool
}

// Alive reports whether the pod of the attachment still exists. A pod is dead only when it is known to be: an error
// says that it may be alive, and a call that would take its device treats it like a living one.
//
// A sandbox that the runtime reports as ready is alive, whatever its namespace looks like; one that it reports as not
// ready, or does not know, may still have processes. No namespace survives a reboot. Apart from that a pod lives as
// long as its network namespace: recognized by its identity, because another pod may have its path by now, and because
// a mount or a process can hold it after its path is gone. Where a mount of ours does, only processes count.
func (e *Entry) Alive(w Liveness) (bool, error) {
	proc := cmp.Or(w.Proc, "/proc")
	switch {
	case w.Ready[e.ContainerID]:
		return true, nil
	case e.BeforeBoot(BootID(proc)):
		return false, nil
	}
	id, err := netns.IDOf(e.NetnsPath)
	if err == nil && id == e.Netns {
		return true, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("find out whether the pod of %s is alive: %w", e.Key, err)
	}
	find := netns.Find
	if e.Held {
		find = netns.FindLiving
	}
	ns, err := find(proc, e.Netns)
	if err == nil {
		ns.Close()
		return true, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("find out whether the pod of %s is alive: %w", e.Key, err)
	}
	return false, nil
}

// OpenNetns opens the network namespace of the attachment at its path. It returns fs.ErrNotExist when the namespace is
// not there, also when another pod's namespace has its path by now. The caller closes it.
func (e *Entry) OpenNetns() (*netns.NS, error) {
	ns, err := netns.Open(e.NetnsPath)
	if err != nil {
		return nil, err
	}
	if ns.ID != e.Netns {
		ns.Close()
		return nil, fmt.Errorf("network namespace %s is another one by now: %w", e.NetnsPath, fs.ErrNotExist)
	}
	return ns, nil
}

// BeforeBoot reports whether the entry was written before the boot with this ID. An ID that is not known, here or in
// the entry, says nothing.
func (e *Entry) BeforeBoot(id string) bool { return id != "" && e.BootID != "" && e.BootID != id }

// BootID is a random ID of the running kernel's boot; empty if it can't be read. proc is /proc.
func BootID(proc string) string {
	b, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
