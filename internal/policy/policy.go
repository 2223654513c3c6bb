// Package policy is the node owner's word on which devices may be moved. A network configuration can be written by
// people who do not own the node.
package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/kubelet"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// DefaultPath is where the node's owner keeps the policy. Without a file the built-in refusals hold.
const DefaultPath = "/etc/cni/fabric.d/policy.json"

// Policy is the file's content. The lists hold patterns (path.Match) for bus addresses, PCI addresses, netdev names,
// altnames and RDMA device names.
type Policy struct {
	Devices           []string `json:"devices"`           // the only devices that may be used; empty: all
	AllowDefaultRoute []string `json:"allowDefaultRoute"` // may be moved although they carry the default route
	AllowNodeAddress  []string `json:"allowNodeAddress"`  // ... although they carry the node's address
	AllowEnslaved     []string `json:"allowEnslaved"`     // ... although they are part of a bond, bridge or VRF
	AllowVirtual      Patterns `json:"allowVirtual"`      // ... although no hardware is behind them
	AllowHostUse      []string `json:"allowHostUse"`      // ... although the host uses their RDMA devices
	// NodeAddresses are addresses the node is known by, beside that of the default route
	NodeAddresses []netip.Addr `json:"nodeAddresses"`
	// VF is what may be set on virtual functions.
	VF VF `json:"vf"`
	// LogDirs are where a configuration may have its log file; default: DefaultLogDir
	LogDirs []string `json:"logDirs"`
	// DevicePluginDir is where kubelet remembers which devices it has given to pods; default: kubelet.DefaultDir, or
	// what the agent has noted
	DevicePluginDir string `json:"devicePluginDir"`
	// IPAMTypes are the IPAM plugins that may be used, by name; empty: all that are installed but this plugin itself
	IPAMTypes []string `json:"ipamTypes"`
	// IPAMDirs are directories that "dataDir" of host-local may name beside /var/lib/cni/networks
	IPAMDirs []string `json:"ipamDirs"`
	// IPAMConfDirs are directories below which an IPAM plugin may read files beside /etc
	IPAMConfDirs []string `json:"ipamConfDirs"`

	// RequireAllocated lets a pod have only devices that kubelet or a ResourceClaim has given to it, and of shared ones
	// as many children as it has shares. Nil in the file: where Fabrics are in force
	RequireAllocated *bool `json:"requireAllocated"`

	// RebindBetweenTenants has the driver of a VF bound again before a pod of another namespace gets it. Nil: true
	RebindBetweenTenants *bool `json:"rebindBetweenTenants"`
	// ResetBetweenTenants has a VF that can reset itself do so meanwhile. Nil: true
	ResetBetweenTenants *bool `json:"resetBetweenTenants"`

	stateDir  string            // of Load
	resources map[string]string // of Load: what kubelet knows a device's Fabric by
}

// Allocated reports whether a pod may have only what it was given.
func (p *Policy) Allocated() bool { return p.RequireAllocated != nil && *p.RequireAllocated }

// Rebinds reports whether the driver of a VF is bound again before a pod of another namespace gets it.
func (p *Policy) Rebinds() bool { return p.RebindBetweenTenants == nil || *p.RebindBetweenTenants }

// Resets reports whether a VF that can reset itself does so when its driver is bound again for another namespace.
func (p *Policy) Resets() bool { return p.ResetBetweenTenants == nil || *p.ResetBetweenTenants }

// Resource is what kubelet knows the devices of a device's Fabric by; empty: it is in none that the agent knows of.
func (p *Policy) Resource(deviceKey string) string { return p.resources[deviceKey] }

// Patterns are a list of patterns. In JSON true means all devices, false no device.
type Patterns []string

// UnmarshalJSON reads true, false or a list.
func (p *Patterns) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "true":
		*p = Patterns{"*"} // each interface has a name that it matches: names have no slash
		return nil
	case "false":
		*p = nil
		return nil
	}
	var list []string
	if err := json.Unmarshal(b, &list); err != nil {
		return fmt.Errorf("want true or a list of patterns: %w", err)
	}
	*p = list
	return nil
}

// Load reads the policy, and adds the node's addresses that the agent has found, if it runs (NodeAddressesFile in the
// state directory). No file is an empty policy; a file that can't be read or understood is an error: what the owner
// meant to forbid must not become allowed by a typing error.
func Load(file, stateDir string) (*Policy, error) {
	p, err := read(file)
	if err != nil {
		return nil, err
	}
	found, err := loadAddresses(stateDir)
	if err != nil {
		return nil, err
	}
	p.stateDir = stateDir
	p.NodeAddresses = append(p.NodeAddresses, found.Addresses...)
	if p.resources = found.Resources; p.RequireAllocated == nil {
		p.RequireAllocated = &found.Fabrics
	}
	p.DevicePluginDir = cmp.Or(p.DevicePluginDir, found.DevicePluginDir, kubelet.DefaultDir)
	return p, nil
}

// Default is the policy where there is no file. DEL uses it too if the file can't be read: DEL has to go on.
func Default(stateDir string) *Policy { return &Policy{stateDir: stateDir} }

func read(file string) (*Policy, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &Policy{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read node policy: %w", err)
	}
	return parse(file, b)
}

func parse(file string, b []byte) (*Policy, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	p := &Policy{}
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("node policy %s: %w", file, err)
	}
	if p == nil { // "null"
		return nil, fmt.Errorf("node policy %s: want an object", file)
	}
	for i, a := range p.NodeAddresses {
		p.NodeAddresses[i] = a.Unmap()
	}
	if dir := p.DevicePluginDir; dir != "" && !path.IsAbs(dir) {
		return nil, fmt.Errorf("node policy %s: devicePluginDir %q: want an absolute path", file, dir)
	}
	for _, dir := range slices.Concat(p.IPAMDirs, p.IPAMConfDirs) {
		if !path.IsAbs(dir) {
			return nil, fmt.Errorf("node policy %s: ipamDirs, ipamConfDirs: %q: want an absolute path", file, dir)
		}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("node policy %s: want one object, and nothing after it", file)
	}
	for _, list := range [][]string{p.Devices, p.AllowDefaultRoute, p.AllowNodeAddress, p.AllowEnslaved,
		p.AllowVirtual, p.AllowHostUse, p.VF.TrustOn, p.VF.SpoofChkOff, p.VF.Rates} {
		for _, pat := range list {
			if _, err := path.Match(pat, ""); err != nil {
				return nil, fmt.Errorf("node policy %s: pattern %q: %w", file, pat, err)
			}
		}
	}
	return p, nil
}

// Device is what the policy looks at.
type Device struct {
	Address device.Address
	PCI     string
	Netdev  *device.Netdev
	HCA     *device.HCA
	Uplink  *device.Uplink // nil where the netdev does not leave the host
	InPod   bool           // Netdev is in a pod, which has named it
	// IgnoreRA says that default routes of router advertisements do not count: the node does without them.
	IgnoreRA bool
	Shared   bool // shared RDMA mode: each pod with NET_ADMIN can rename all RDMA devices (kernel fact 41)
}

// ErrRefused means that the policy forbids it.
var ErrRefused = errors.New("refused by node policy")

// Use reports whether the device may be used at all, as the master of IPoIB children too.
func (p *Policy) Use(d Device) error {
	if len(p.Devices) > 0 && !match(p.Devices, d) {
		why := ""
		if named := (Device{HCA: d.HCA}); d.Shared && match(p.Devices, named) {
			why = ": in shared RDMA mode pods can change the name " + d.HCA.Name + ", list a bus address"
		}
		return fmt.Errorf("%w: %s is not among its devices %v%s", ErrRefused, d.name(), p.Devices, why)
	}
	return nil
}

// Move reports whether the device may leave the host.
func (p *Policy) Move(d Device) error {
	if err := p.Use(d); err != nil || d.Netdev == nil {
		return err
	}
	n := d.Netdev
	if n.Flags&device.FlagLoopback != 0 {
		return fmt.Errorf("%w: %s is the loopback device", ErrRefused, n.Name)
	}
	if err := p.uplink(d); err != nil {
		return err
	}
	if n.Master != 0 && !match(p.AllowEnslaved, d) {
		return fmt.Errorf("%w: %s is part of a bond, bridge or VRF (master ifindex %d)", ErrRefused, n.Name, n.Master)
	}
	return p.hardware(d)
}

// HostUse reports whether the device may be taken from what uses its RDMA device on the host.
func (p *Policy) HostUse(d Device) bool { return match(p.AllowHostUse, d) }

// hardware refuses an interface that no hardware is behind: it may be the host end of another pod's veth, or a tunnel
// of the cluster network, and nothing tells these from what the owner means to give.
func (p *Policy) hardware(d Device) error {
	if !d.Address.IsZero() || match(p.AllowVirtual, d) {
		return nil
	}
	kind := ""
	if d.Netdev.Kind != "" {
		kind = " (" + d.Netdev.Kind + ")"
	}
	return fmt.Errorf("%w: %s is a virtual interface%s: it has no bus address, and \"allowVirtual\" does not have it",
		ErrRefused, d.Netdev.Name, kind)
}

// DefaultLogDir is where logs go if the policy names no other place. It is the plugin's own: in a directory that others
// use, a log file could be a file that means something to them, as /run/nologin does.
const DefaultLogDir = "/var/log/fabric-cni"

// LogFile tells the directory below which a configuration may have its log file: the file is opened as root.
func (p *Policy) LogFile(file string) (dir string, err error) {
	dirs := p.LogDirs
	if len(dirs) == 0 {
		dirs = []string{DefaultLogDir}
	}
	for _, d := range dirs {
		if d = path.Clean(d); path.Clean(file) == file && strings.HasPrefix(file, strings.TrimSuffix(d, "/")+"/") {
			return d, nil
		}
	}
	return "", fmt.Errorf("%w: log file %q is not below one of %q (logDirs)", ErrRefused, file, dirs)
}

func match(patterns []string, d Device) bool {
	for _, pat := range patterns {
		for _, n := range d.names() {
			if ok, err := path.Match(pat, n); ok && err == nil {
				return true
			}
		}
	}
	return false
}

// names are those that a pattern may match: none that a pod can choose.
func (d Device) names() []string {
	var out []string
	if !d.Address.IsZero() {
		out = append(out, d.Address.String(), d.Address.Name)
	}
	if d.PCI != "" {
		out = append(out, d.PCI)
	}
	if d.Netdev != nil && !d.InPod {
		out = append(append(out, d.Netdev.Name), d.Netdev.AltNames...)
	}
	if d.HCA != nil && !d.Shared {
		out = append(out, d.HCA.Name)
	}
	return out
}

func (d Device) name() string {
	if d.Netdev != nil {
		return d.Netdev.Name
	}
	return d.Address.String()
}
