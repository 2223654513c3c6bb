package guest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Udev does what udev does on a host, as guests have no udev: some milliseconds after an IPoIB netdev has appeared
// in the host's network namespace it gets the name and an altname for its bus address. A netdev that was
// named meanwhile keeps its name (udev's NamePolicy=keep).
type Udev struct {
	t        testing.TB
	names    map[string]string // bus address -> name
	altnames map[string]string
	delay    time.Duration
	wait     sync.WaitGroup

	mu      sync.Mutex
	renamed int
}

// StartUdev starts a Udev that waits up to 20 ms before it acts. It stops when the test ends. altnames may be nil.
func StartUdev(t testing.TB, names, altnames map[string]string) *Udev {
	t.Helper()
	u := &Udev{t: t, names: names, altnames: altnames, delay: 20 * time.Millisecond}
	known := make(map[int32]bool)
	links, err := dump(netlink.LinkList)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		known[int32(l.Attrs().Index)] = true
	}
	updates, done := make(chan netlink.LinkUpdate, 1024), make(chan struct{})
	if err := netlink.LinkSubscribe(updates, done); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for update := range updates {
			switch {
			case update.Header.Type == unix.RTM_DELLINK:
				delete(known, update.Index)
			case !known[update.Index]:
				known[update.Index] = true
				u.appeared(int(update.Index))
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		<-stopped
		u.wait.Wait()
	})
	return u
}

// Renamed returns how many netdevs it has named.
func (u *Udev) Renamed() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.renamed
}

func (u *Udev) appeared(index int) {
	u.wait.Add(1)
	time.AfterFunc(rand.N(u.delay), func() {
		defer u.wait.Done()
		if err := u.act(index); err != nil {
			u.t.Logf("udev: %v", err)
		}
	})
}

func (u *Udev) act(index int) error {
	l, err := netlink.LinkByIndex(index)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil // it has gone on to a pod
	}
	if err != nil {
		return fmt.Errorf("find new link %d: %w", index, err)
	}
	bus := l.Attrs().ParentDev
	if l.Type() != "ipoib" || u.names[bus] == "" {
		return nil
	}
	// 4: renamed by user space, see NET_NAME_RENAMED in linux/netdevice.h. IPoIB does not say where its name is from,
	// and reading that is an error.
	kind, err := os.ReadFile("/sys/class/net/" + l.Attrs().Name + "/name_assign_type")
	if err != nil || strings.TrimSpace(string(kind)) != "4" {
		if err := netlink.LinkSetName(l, u.names[bus]); err == nil {
			u.mu.Lock()
			u.renamed++
			u.mu.Unlock()
		} else if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("rename %s: %w", l.Attrs().Name, err)
		}
	}
	if alt := u.altnames[bus]; alt != "" {
		if err := netlink.LinkAddAltName(
			l,
			alt,
		); err != nil && !errors.Is(err, unix.EEXIST) &&
			!errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("add altname to %s: %w", l.Attrs().Name, err)
		}
	}
	return nil
}
