package node

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// LiveFile is where a recorded tree has what sysfs does not tell.
const LiveFile = "live.json"

// Live is what sysfs does not tell.
type Live struct {
	Host     string                `json:"host"`
	Kernel   string                `json:"kernel,omitempty"`
	RDMAMode string                `json:"rdmaMode,omitempty"`
	Netdevs  map[string]LiveNetdev `json:"netdevs,omitempty"`
	// RDMANetdevs are the interfaces of RDMA ports (mlx5_0:1) as nldev tells them, which knows those of this network
	// namespace only: a port without one, and every InfiniBand port, is there with "". nil: not asked.
	RDMANetdevs map[string]string `json:"rdmaNetdevs,omitempty"`
	// Users are what on the host uses an RDMA device, in words, by its name; exclusive mode only.
	Users map[string][]string `json:"users,omitempty"`
	// Kept is Node.Kept.
	Kept        map[string]string `json:"kept,omitzero"`
	Attachments []Attachment      `json:"attachments,omitempty"`
	Problems    []string          `json:"problems,omitempty"`
}

// LiveNetdev is what rtnetlink adds to an interface.
type LiveNetdev struct {
	AltNames []string       `json:"altNames,omitempty"`
	Addrs    []netip.Prefix `json:"addrs,omitempty"`
	Default  bool           `json:"default,omitempty"` // has a default route in table main
	DCB      *DCB           `json:"dcb,omitempty"`
}

// Attachment is a device that is in a pod now, as the journal has it.
type Attachment struct {
	Container string         `json:"container"`
	IfName    string         `json:"ifName"`
	Pod       string         `json:"pod,omitempty"` // namespace/name, if the runtime told
	Network   string         `json:"network"`
	Kind      string         `json:"kind"` // as the journal calls it
	Netns     string         `json:"netns"`
	DeviceKey string         `json:"claim,omitempty"`
	Address   device.Address `json:"address,omitzero"`
	PCI       string         `json:"pci,omitempty"`
	MoveRDMA  bool           `json:"moveRDMA,omitempty"`
	HCA       *device.HCA    `json:"hca,omitempty"`    // as it was on the host
	Netdev    string         `json:"netdev,omitempty"` // its name on the host
	// Others are the names on the host of the interfaces of the RDMA device's other ports, by the number of the port.
	Others map[uint32]string `json:"otherPorts,omitempty"`
	Ports  []Port            `json:"ports,omitempty"` // as they are now in the pod, if it could be asked
}

// Owner is who has the device, in words.
func (a *Attachment) Owner() string { return cmp.Or(a.Pod, "container "+a.Container) }

// Open reads a recorded tree, or the running machine if root is the root directory and has no LiveFile.
func Open(root fs.FS, store Store) (*Node, error) {
	live, err := live(root, store)
	if err != nil {
		return nil, err
	}
	return Read(root, live)
}

func live(root fs.FS, store Store) (*Live, error) {
	b, err := fs.ReadFile(root, LiveFile)
	switch {
	case err == nil:
		l := &Live{}
		if err := json.Unmarshal(b, l); err != nil {
			return nil, fmt.Errorf("read %s of the recorded tree: %w", LiveFile, err)
		}
		return l, nil
	case isRunning(root):
		return ReadLive(store), nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read %s of the recorded tree: %w", LiveFile, err)
	}
	l := &Live{
		Host:     "recorded",
		Problems: []string{"no " + LiveFile + ": addresses, altnames and RDMA mode are unknown"},
	}
	if b, err := fs.ReadFile(root, "etc/hostname"); err == nil {
		l.Host = strings.TrimSpace(string(b))
	}
	return l, nil
}

// isRunning tells whether it is the machine that the program runs on.
func isRunning(root fs.FS) bool {
	_, container := root.(running)
	return container || root == os.DirFS("/")
}

// away adds the RDMA devices that are in pods, which sysfs on the host does not show in exclusive mode, and tells of
// those it shows who uses them.
func (n *Node) away(t tree, live *Live) {
	for i := range live.Attachments {
		a := &live.Attachments[i]
		if a.Kind == kindIPoIB {
			continue // the device itself is on the host
		}
		if h := n.at(a); h != nil {
			h.InPod, h.Netns = a.Owner(), a.Netns
			continue
		}
		if a.HCA == nil {
			continue
		}
		h := HCA{
			Name:     a.HCA.Name,
			Kind:     "PF",
			NUMA:     -1,
			NodeGUID: a.HCA.NodeGUID,
			Address:  a.Address,
			PCI:      a.PCI,
			InPod:    a.Owner(),
			Netns:    a.Netns,
		}
		if !a.Address.IsZero() {
			t.hardware(&h, t.real("sys/bus/"+a.Address.Bus+"/devices/"+a.Address.Name))
		}
		for _, p := range a.Ports {
			p.Netdev = a.netdevOf(p.Number)
			p.TOS = tosOf(a.HCA, p.Number)
			h.Ports = append(h.Ports, p)
		}
		for _, p := range a.HCA.Ports {
			if len(a.Ports) > 0 {
				break
			}
			h.Ports = append(
				h.Ports,
				Port{Number: p.Number, LinkLayer: p.LinkLayer, State: p.State.String(), Phys: p.Phys.String(),
					LID: p.LID, SMLID: p.SMLID, Netdev: a.netdevOf(p.Number), TOS: tosOf(a.HCA, p.Number)},
			)
		}
		n.HCAs = append(n.HCAs, h)
	}
}

// netdevOf is the interface of a port by its name on the host.
func (a *Attachment) netdevOf(port uint32) string { return cmp.Or(a.Others[port], a.Netdev) }

// tosOf is the type of service that connections over a port of an RDMA device had on the host; nil: not known.
func tosOf(h *device.HCA, port uint32) *int {
	for _, p := range h.Ports {
		if p.Number == port && p.CM != nil {
			return new(int(p.CM.TOS))
		}
	}
	return nil
}

func (n *Node) at(a *Attachment) *HCA {
	for i := range n.HCAs {
		h := &n.HCAs[i]
		if !a.Address.IsZero() && h.Address == a.Address ||
			a.HCA != nil && h.Name == a.HCA.Name && h.NodeGUID == a.HCA.NodeGUID {
			return h
		}
	}
	return nil
}
