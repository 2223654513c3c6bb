package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/fabric-cni/fabric-cni/internal/rdma"
)

// RDMADevice is the state of an RDMA device.
type RDMADevice struct {
	Index    uint32
	NodeGUID string
	Ports    map[string]string // port number -> state
	Chars    []string          // its character devices: uverbs0, umad0, issm0
	DIM      string            // its adaptive moderation; "" if the kernel does not tell
	Counters string            // by what each port counts its queue pairs; "" likewise
	Class    string            // the traffic class that its driver gives all queue pairs; "" for a driver without
	CM       string            // what the connection manager gives connections over each port
	Device   string            // path in sysfs of the device below it; "" for one without, or not visible in sysfs
}

// takeRDMA lists the RDMA devices of the host. Those that only netlink or only sysfs shows are listed too: for a
// moment, while a device moves, or for good, after a mistake.
func takeRDMA() (map[string]RDMADevice, error) {
	links, err := dump(netlink.RdmaLinkList)
	if err != nil {
		return nil, err
	}
	devices := make(map[string]RDMADevice)
	for _, l := range links {
		devices[l.Attrs.Name] = RDMADevice{Index: l.Attrs.Index, NodeGUID: l.Attrs.NodeGuid}
	}
	if err := takeDIM(devices); err != nil {
		return nil, err
	}
	dirs, err := filepath.Glob("/sys/class/infiniband/*")
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		d := devices[filepath.Base(dir)]
		if d.Device, err = filepath.EvalSymlinks(dir + "/device"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("find device of %s: %w", dir, err)
		}
		for _, class := range []string{"infiniband_verbs", "infiniband_mad"} {
			entries, err := os.ReadDir(dir + "/device/" + class)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("list character devices of %s: %w", dir, err)
			}
			for _, e := range entries {
				d.Chars = append(d.Chars, e.Name())
			}
		}
		if b, err := os.ReadFile(dir + "/tc/1/traffic_class"); err == nil {
			d.Class = "traffic class " + strings.TrimSpace(string(b))
		}
		if _, err := os.Lstat(dir + "/device/physfn"); err == nil {
			d.Index = 0 // of a VF: a new one each time its driver is bound, never the old one again
		}
		devices[filepath.Base(dir)] = d
	}
	ports, err := Ports()
	if err != nil {
		return nil, err
	}
	for port, state := range ports {
		name, number, _ := strings.Cut(port, "/")
		d := devices[name]
		if d.Ports == nil {
			d.Ports = make(map[string]string)
		}
		d.Ports[number] = state
		devices[name] = d
	}
	return devices, nil
}

// takeDIM adds the adaptive moderation and the mode of the counters, which the netlink library does not know.
func takeDIM(devices map[string]RDMADevice) error {
	c, err := rdma.Dial()
	if errors.Is(err, rdma.ErrNoRDMA) {
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	list, err := c.List()
	if err != nil && !errors.Is(err, rdma.ErrNoRDMA) {
		return err
	}
	for i := range list {
		d, ok := devices[list[i].Name]
		if !ok {
			continue
		}
		if list[i].DIM != nil {
			d.DIM = fmt.Sprint(*list[i].DIM)
		}
		c.AutoCounters(&list[i])
		if err := rdma.CM(&list[i]); err != nil {
			return err
		}
		for _, p := range list[i].Ports {
			if p.AutoCounters != nil {
				d.Counters += fmt.Sprintf("%d:%d ", p.Number, *p.AutoCounters)
			}
			if p.CM != nil {
				d.CM += fmt.Sprintf("%d:%d %s ", p.Number, p.CM.TOS, p.CM.RoCE)
			}
		}
		devices[list[i].Name] = d
	}
	return nil
}

// StateDirs hold files that must be gone when everything has been given back: attachments, claims, addresses.
var StateDirs = []string{"/run/fabric-cni", "/var/lib/cni", "/var/run/k8s.cni.cncf.io"}

// takeFiles lists the character devices, and the files below StateDirs without those that stay for good: locks,
// host-local's memory of the last address, the plugin's notes for the agent and of the tenants of VFs, and the agent's
// for the next one.
func takeFiles() (nodes []string, files map[string]string, err error) {
	entries, err := os.ReadDir("/dev/infiniband")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for _, e := range entries {
		nodes = append(nodes, e.Name())
	}
	slices.Sort(nodes)
	files = make(map[string]string)
	for _, dir := range StateDirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // never made, or removed meanwhile
			}
			if err != nil || d.IsDir() || stays(path) {
				return err
			}
			files[path] = content(path)
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return nodes, files, nil
}

func stays(path string) bool {
	base := filepath.Base(path)
	switch path {
	case "/run/fabric-cni/calls", "/run/fabric-cni/calls.taken", "/run/fabric-cni/agent.json":
		return true
	}
	return strings.Contains(path, "/locks/") || strings.HasPrefix(path, "/run/fabric-cni/tenants/") ||
		base == "lock" || strings.HasSuffix(base, ".lock") ||
		strings.HasPrefix(base, "last_reserved_ip.") || strings.HasPrefix(path, "/run/fabric-cni/networks/")
}

// content says what kind of file it is: a half-written one differs from a whole one.
func content(path string) string {
	data, err := os.ReadFile(path)
	trimmed := strings.TrimSpace(string(data))
	switch {
	case err != nil:
		return "unreadable"
	case trimmed == "":
		return "empty"
	case strings.HasPrefix(trimmed, "{") && strings.HasSuffix(trimmed, "}"):
		return "object"
	default:
		return "text"
	}
}
