// Package hostlocal is the IPAM plugin host-local of containernetworking/plugins v1.9.1, as a library. Names and
// contents of files, and the lock, are those of the plugin, so both may work in one directory at the same time. What it
// does is written anew here: the plugin's package disk follows links, reads every file whole and waits for locks
// without end, and its package allocator would link iptables and Kubernetes libraries into a program that starts for
// each ADD. The tests compare the results, messages and files with the plugin's binary. Messages are worded as in the
// plugin, because administrators search for them.
//
// Which directory and which resolvConf a configuration may name is not judged here: see policy.Policy.IPAM.
package hostlocal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// DefaultDir has a directory for each network that names no other dataDir.
const DefaultDir = "/var/lib/cni/networks"

// Add reserves an address of each range set. The second value is the CNI version of the configuration. A failed Add has
// released what it reserved. The error matches context.DeadlineExceeded, or is the context's, when another process had
// the lock for too long.
func Add(ctx context.Context, env netconf.Env, conf []byte) (*current.Result, string, error) {
	c, v, err := load(conf, env.Args)
	if err != nil {
		return nil, "", err
	}
	dns, err := c.dns()
	if err != nil {
		return nil, "", err
	}
	d, err := openLocked(ctx, c.dataDir(), c.Name, true)
	if err != nil {
		return nil, "", err
	}
	defer d.close()
	if err := c.checkLimit(&d); err != nil {
		return nil, "", err
	}
	who := claim{env.ContainerID, env.IfName}
	ips, err := c.allocate(&d, who)
	if err != nil {
		if len(ips) > 0 {
			err = errors.Join(err, d.release(who))
		}
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
	d, err := openDir(c.dataDir(), c.Name, false)
	if err != nil {
		return nil, err
	}
	defer d.close()
	if err := c.checkLimit(&d); err != nil {
		return nil, err
	}
	ips, err := c.allocate(view{&d}, claim{env.ContainerID, env.IfName})
	if err != nil {
		return nil, err
	}
	return &current.Result{CNIVersion: current.ImplementedSpecVersion, IPs: ips, Routes: c.Routes}, nil
}

// Check looks for any address that the attachment has in the directory of the network, as the plugin does. It creates
// nothing.
func Check(ctx context.Context, env netconf.Env, conf []byte) error {
	c, _, err := load(conf, env.Args)
	if err != nil {
		return err
	}
	d, err := openLocked(ctx, c.dataDir(), c.Name, false)
	if err != nil {
		return err
	}
	defer d.close()
	if len(d.GetByID(claim{env.ContainerID, env.IfName})) == 0 {
		return fmt.Errorf("host-local: Failed to find address added by container %v", env.ContainerID)
	}
	return nil
}

// Del releases every address that the attachment has in the directory of the network, and those that a killed Add has
// left to no attachment. It succeeds without any, and creates nothing.
func Del(ctx context.Context, env netconf.Env, conf []byte) error {
	c, _, err := load(conf, env.Args)
	if err != nil {
		return err
	}
	d, err := openLocked(ctx, c.dataDir(), c.Name, false)
	if err != nil {
		return err
	}
	defer d.close()
	return d.release(claim{env.ContainerID, env.IfName})
}

// Valid returns the error that every other call returns for a configuration, whatever is on the node.
func Valid(env netconf.Env, conf []byte) error {
	_, _, err := load(conf, env.Args)
	return err
}

func (c *IPAMConfig) dataDir() string { return cmp.Or(c.DataDir, DefaultDir) }

// allocate reserves an address of each set, and all that are wanted. With an error it returns those that it has
// reserved.
func (c *IPAMConfig) allocate(s store, who claim) ([]*current.IPConfig, error) {
	wanted := map[string]net.IP{}
	for _, ip := range c.wanted {
		wanted[ip.String()] = ip
	}
	var out []*current.IPConfig
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
			return out, fmt.Errorf("failed to allocate for range %d: %w", i, err)
		}
		out = append(out, ip)
	}
	if len(wanted) != 0 {
		list := slices.Sorted(maps.Keys(wanted))
		return out, errors.New("failed to allocate all requested IPs: " + strings.Join(list, " "))
	}
	return out, nil
}

// dns reads the file that resolvConf names, if it names one. /etc/resolv.conf itself often is a link, so links are
// followed; what is no regular file is not opened.
func (c *IPAMConfig) dns() (dns types.DNS, err error) {
	if c.ResolvConf == "" {
		return dns, nil
	}
	fd, err := unix.Open(c.ResolvConf, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return dns, &fs.PathError{Op: "open", Path: c.ResolvConf, Err: err}
	}
	defer unix.Close(fd)
	b, err := readFD(fd, maxResolv)
	if err != nil {
		return dns, fmt.Errorf("ipam.resolvConf %q: %w", c.ResolvConf, err)
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
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
	return dns, nil
}

// Given returns the addresses that are given of a network, whose directory this is: each has a file. A directory that
// does not exist has none.
func Given(path string) (out []netip.Addr, err error) {
	d, err := openDir(filepath.Dir(path), filepath.Base(path), false)
	if err != nil || d.f == nil {
		return nil, err
	}
	defer d.close()
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if a, err := netip.ParseAddr(name); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out, nil
}

// view is the directory of a network, read only.
type view struct{ *dir }

// Reserve reports whether the address is free.
func (v view) Reserve(_ claim, ip net.IP, _ string) (bool, error) {
	if v.f == nil {
		return true, nil
	}
	var st unix.Stat_t
	err := unix.Fstatat(v.fd(), ip.String(), &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// GetByID finds no address: a prediction may be for an attachment that exists.
func (view) GetByID(claim) []net.IP { return nil }
