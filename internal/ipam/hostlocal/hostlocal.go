// Package hostlocal is the IPAM plugin host-local of containernetworking/plugins v1.9.1, as a library. Files and locks
// are those of the plugin's own package disk, so the plugin and this package may work in one directory at the same
// time. The plugin's package allocator would link iptables and Kubernetes libraries into a program that starts for each
// ADD; what it does is written anew here, and the tests compare the results, messages and files with the plugin's
// binary. Messages are worded as in the plugin, because administrators search for them.
package hostlocal

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/disk"

	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// DefaultDir has a directory for each network that names no other dataDir.
const DefaultDir = "/var/lib/cni/networks"

// Add reserves an address of each range set. The second value is the CNI version of the configuration. A failed Add has
// released what it reserved. The error is the context's when that ended while another process had the lock.
func Add(ctx context.Context, env netconf.Env, conf []byte) (*current.Result, string, error) {
	c, v, err := load(conf, env.Args)
	if err != nil {
		return nil, "", err
	}
	dns, err := c.dns()
	if err != nil {
		return nil, "", err
	}
	s, err := disk.New(c.Name, c.DataDir)
	if err != nil {
		return nil, "", err
	}
	if err := lock(ctx, s); err != nil {
		return nil, "", err
	}
	defer unlock(s)
	if err := c.checkLimit(); err != nil {
		return nil, "", err
	}
	ips, err := c.allocate(s, claim{env.ContainerID, env.IfName})
	if err != nil {
		return nil, "", err
	}
	return &current.Result{CNIVersion: current.ImplementedSpecVersion, IPs: ips, Routes: c.Routes, DNS: dns}, v, nil
}

// Predict returns the result that Add would return now. It reads the directory without its lock and changes nothing.
func Predict(env netconf.Env, conf []byte) (*current.Result, error) {
	c, _, err := load(conf, env.Args)
	if err != nil {
		return nil, err
	}
	if err := c.checkLimit(); err != nil {
		return nil, err
	}
	ips, err := c.allocate(view(c.dir()), claim{env.ContainerID, env.IfName})
	if err != nil {
		return nil, err
	}
	return &current.Result{CNIVersion: current.ImplementedSpecVersion, IPs: ips, Routes: c.Routes}, nil
}

// Check looks for any address that the attachment has in the directory of the network, as the plugin does.
func Check(ctx context.Context, env netconf.Env, conf []byte) error {
	c, _, err := load(conf, env.Args)
	if err != nil {
		return err
	}
	s, err := open(ctx, c)
	if err != nil {
		return err
	}
	defer unlock(s)
	if !s.FindByID(env.ContainerID, env.IfName) { // locks again, which is nothing for the same file descriptor
		return fmt.Errorf("host-local: Failed to find address added by container %v", env.ContainerID)
	}
	return nil
}

// Del releases every address that the attachment has in the directory of the network, and those that a killed Add has
// left to nobody. It succeeds if there is none.
func Del(ctx context.Context, env netconf.Env, conf []byte) error {
	c, _, err := load(conf, env.Args)
	if err != nil {
		return err
	}
	s, err := open(ctx, c)
	if err != nil {
		return err
	}
	defer unlock(s)
	return errors.Join(s.ReleaseByID(env.ContainerID, env.IfName), sweep(c.dir()))
}

// dir is the directory of the network.
func (c *IPAMConfig) dir() string { return filepath.Join(cmp.Or(c.DataDir, DefaultDir), c.Name) }

// sweep removes files of addresses that say nobody has them. A process that is killed after it has made the file, and
// before it has written who has the address, leaves one (backend/disk, Store.Reserve). Whoever writes has the lock, as
// the caller of sweep has: no such file is about to be written.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if net.ParseIP(e.Name()) == nil {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// open returns the locked store of a configuration's network.
func open(ctx context.Context, c *IPAMConfig) (*disk.Store, error) {
	s, err := disk.New(c.Name, c.DataDir)
	if err != nil {
		return nil, err
	}
	return s, lock(ctx, s)
}

// lock waits for the lock of a store until the context ends. After an error the store is closed, or will be as soon as
// the lock is had: a file descriptor in use by flock(2) can't be closed.
func lock(ctx context.Context, s *disk.Store) error {
	locked := make(chan error, 1)
	go func() { locked <- s.Lock() }()
	select {
	case err := <-locked:
		if err != nil {
			return errors.Join(fmt.Errorf("lock directory: %w", err), s.Close())
		}
		return nil
	case <-ctx.Done():
		go func() {
			if <-locked == nil {
				unlock(s)
			}
		}()
		return fmt.Errorf("wait for the lock of the addresses: %w", context.Cause(ctx))
	}
}

// unlock unlocks a store and closes it. Unlocking a file descriptor that is open does not fail.
func unlock(s *disk.Store) { _ = s.Close() }

// allocate reserves an address of each set, and all that are wanted, or none.
func (c *IPAMConfig) allocate(s store, who claim) ([]*current.IPConfig, error) {
	wanted := map[string]net.IP{}
	for _, ip := range c.wanted {
		wanted[ip.String()] = ip
	}
	var out []*current.IPConfig
	fail := func(err error) error {
		if d, ok := s.(*disk.Store); ok && len(out) > 0 {
			return errors.Join(err, d.ReleaseByID(who.id, who.ifname))
		}
		return err
	}
	for i, set := range c.Ranges {
		var want net.IP
		for _, key := range slices.Sorted(maps.Keys(wanted)) {
			if set.find(wanted[key]) != nil {
				want = wanted[key]
				delete(wanted, key)
				break
			}
		}
		ip, err := allocate(s, set, i, who, want)
		if err != nil {
			return nil, fail(fmt.Errorf("failed to allocate for range %d: %w", i, err))
		}
		out = append(out, ip)
	}
	if len(wanted) != 0 {
		list := slices.Sorted(maps.Keys(wanted))
		return nil, fail(errors.New("failed to allocate all requested IPs: " + strings.Join(list, " ")))
	}
	return out, nil
}

// dns reads the file that resolvConf names, if it names one.
func (c *IPAMConfig) dns() (dns types.DNS, err error) {
	if c.ResolvConf == "" {
		return dns, nil
	}
	f, err := os.Open(c.ResolvConf)
	if err != nil {
		return dns, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || strings.ContainsAny(fields[0][:1], "#;") {
			continue
		}
		switch fields[0] {
		case "nameserver":
			dns.Nameservers = append(dns.Nameservers, fields[1])
		case "domain":
			dns.Domain = fields[1]
		case "search":
			dns.Search = append(dns.Search, fields[1:]...)
		case "options":
			dns.Options = append(dns.Options, fields[1:]...)
		}
	}
	return dns, lines.Err()
}

// Given returns the addresses that are given of a network, whose directory this is: each has a file. A directory that
// does not exist has none.
func Given(dir string) (out []netip.Addr, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, e := range entries {
		if a, err := netip.ParseAddr(e.Name()); err == nil && a.Zone() == "" {
			out = append(out, a.Unmap())
		}
	}
	return out, nil
}

// view is the directory of a network, read only.
type view string

// Reserve reports whether the address is free.
func (d view) Reserve(_, _ string, ip net.IP, _ string) (bool, error) {
	_, err := os.Stat(disk.GetEscapedPath(string(d), ip.String()))
	if os.IsNotExist(err) {
		return true, nil
	}
	return false, err
}

// LastReservedIP is the address behind which the search begins.
func (d view) LastReservedIP(rangeID string) (net.IP, error) {
	b, err := os.ReadFile(disk.GetEscapedPath(string(d), "last_reserved_ip."+rangeID))
	return net.ParseIP(string(b)), err
}

// GetByID finds no address: a prediction may be for an attachment that exists.
func (d view) GetByID(string, string) []net.IP { return nil }
