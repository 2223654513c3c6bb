package repair

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
)

// ReleaseHolds lets go of the network namespaces of pods that no attachment needs, in the host's mount namespace.
func ReleaseHolds(hostProc string, s journal.Store) error {
	return inHost(hostProc, journal.Holds{Store: s}.ReleaseAll)
}

// inHost runs f in the host's mount namespace, which it finds through a mounted /proc of the host. There the plugin
// finds what it finds when the runtime calls it: its IPAM plugin with its files, the pods' namespaces, and a writable
// /proc/sys, which a container has only if it is privileged. Without such a /proc, f runs in the agent's own
// namespace.
func inHost(proc string, f func() error) error {
	if proc == "" {
		return f()
	}
	done := make(chan error, 1)
	netns.OnThread(func() {
		done <- func() error {
			path := filepath.Join(proc, "1", "ns", "mnt")
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("open the host's mount namespace %s: %w", path, err)
			}
			defer unix.Close(fd)
			// A thread that shares its working directory with others can't change its mount namespace.
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("unshare the working directory: %w", err)
			}
			if err := unix.Setns(fd, unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("enter the host's mount namespace %s: %w (capabilities SYS_ADMIN, SYS_CHROOT and "+
					"SYS_PTRACE)", path, err)
			}
			return f() // a child process inherits the namespaces of the thread that starts it
		}()
	})
	return <-done
}
