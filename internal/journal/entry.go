// Package journal keeps on disk what was intended and what was there before, so that whatever dies, the next call can
// give everything back. It also holds the locks and the ownership of devices. Only this package writes to disk.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Version is the format this code writes. A reader takes any version: fields it does not know are kept as they are.
const Version = 1

// Key names an attachment: one interface of one container.
type Key struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
}

func (k Key) String() string { return k.ContainerID + "/" + k.IfName }

// file is the name of the entry. '@' can't be in a container id (CNI spec), so that two keys never share a name.
func (k Key) file() string { return k.ContainerID + "@" + k.IfName }

// Kind tells what an attachment did to its device.
type Kind string

// The kinds.
const (
	KindDevice Kind = "device" // netdev and perhaps RDMA device moved
	KindIPoIB  Kind = "ipoib"  // IPoIB child created
	KindRDMA   Kind = "rdma"   // RDMA device moved, its netdev belongs to another plugin
)

// Entry is one attachment: the intent and a full snapshot of the device, written before the first change.
type Entry struct {
	Version int `json:"version"`
	Key
	Network string    `json:"network"`
	Kind    Kind      `json:"kind"`
	Created time.Time `json:"created"`
	BootID  string    `json:"bootID"`
	// BootTime is when it was created, by CLOCK_BOOTTIME, in ns: no one sets that clock. 0: an older version wrote the
	// entry, and Created has to do.
	BootTime int64 `json:"bootTime,omitempty"`
	Attached bool  `json:"attached"` // ADD has succeeded
	// Nonce tells this attachment from another one of the same container and interface. Empty: an older version wrote
	// the entry.
	Nonce string `json:"nonce,omitempty"`

	NetnsPath string   `json:"netnsPath"`
	Netns     netns.ID `json:"netns"`
	// Held says that Holds has a mount of the namespace, which keeps the pod's devices where they are until the DEL of
	// the pod's last attachment: the container runtime, which knows nothing of these, lets go of the namespace before.
	// Otherwise the runtime calls DEL while the namespace is there.
	Held bool `json:"held,omitempty"`

	// Of is the interface in the pod whose attachment has the RDMA device, if this one is that of another port of it:
	// it was attached with it, and its DEL returns this one as well.
	Of string `json:"of,omitempty"`
	// OtherPorts are the interfaces in the pod that have this one in Of, or are about to.
	OtherPorts []string `json:"otherPorts,omitempty"`

	// DeviceKey is the device's name in the locks and claims: its bus address, or netdev/NAME without one.
	DeviceKey string           `json:"claim,omitempty"`
	Address   device.Address   `json:"address,omitzero"`
	PCI       string           `json:"pci,omitempty"`      // PCI function it is or sits on
	MoveRDMA  bool             `json:"moveRDMA,omitempty"` // the RDMA device goes along
	HCA       *device.HCA      `json:"hca,omitempty"`      // as it was on the host
	Netdev    *device.Netdev   `json:"netdev,omitempty"`   // kind rdma: as it was in the pod
	PodIndex  int              `json:"podIndex,omitempty"` // ifindex of the netdev in the pod, once it is attached
	Child     *Child           `json:"child,omitempty"`
	VF        *VF              `json:"vf,omitempty"`
	VFs       []device.VFAttrs `json:"vfs,omitempty"`      // of a PF: what it had set for each of its VFs
	Rules     []device.Rule    `json:"rules,omitempty"`    // of the host, put into the pod as well
	RDMAName  string           `json:"rdmaName,omitempty"` // of the RDMA device while in the pod
	IPAM      string           `json:"ipam,omitempty"`     // type of the delegate
	Conf      json.RawMessage  `json:"conf,omitempty"`     // stdin of the ADD, for a DEL of the plugin's own (GC)
	Args      string           `json:"args,omitempty"`     // CNI_ARGS
	Path      string           `json:"path,omitempty"`     // CNI_PATH

	// Chained says that a plugin of mode rdma behind this one in the chain has had its ADD, and has no entry of its
	// own: its DEL comes before the one that returns the device.
	Chained bool `json:"chained,omitempty"`

	FromClaim *ClaimDevice `json:"given,omitempty"` // the device is that of a ResourceClaim

	// MAC and Addresses are what the configuration itself gives, and no other interface on the network may have.
	MAC       string         `json:"mac,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`

	Trace string `json:"trace,omitempty"` // of the ADD, by W3C Trace Context; empty: its runtime does not trace

	// DeviceInfo is the device information file that it writes
	DeviceInfo string `json:"deviceInfo,omitempty"`
	Tries      int    `json:"tries,omitempty"` // DELs that could not end for a cause that may stay

	// Missing says that DEL has given up looking for what the attachment has: it is in no network namespace that can be
	// looked into, and keeps its addresses until it is found or proved gone.
	Missing bool `json:"missing,omitempty"`

	unknown *extra // what a newer version has written beside all this
}

// Now is the time since boot, suspend included (CLOCK_BOOTTIME).
func Now() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil { // it is never refused: clock_gettime(2)
		return 0
	}
	return time.Duration(now.Nano())
}

// Age is how long ago the entry was created. It is right for an entry of this boot. That of an older version may be
// wrong by as much as the clock has been set, and negative.
func (e *Entry) Age() time.Duration {
	if e.BootTime > 0 {
		return Now() - time.Duration(e.BootTime)
	}
	return time.Since(e.Created)
}

// Pod is namespace/name of the pod, from the CNI_ARGS of kubelet's runtimes. It is empty if the runtime did not pass
// them.
func (e *Entry) Pod() string {
	var space, name string
	for pair := range strings.SplitSeq(e.Args, ";") {
		switch k, v, _ := strings.Cut(pair, "="); k {
		case "K8S_POD_NAMESPACE":
			space = v
		case "K8S_POD_NAME":
			name = v
		}
	}
	if name == "" {
		return ""
	}
	return space + "/" + name
}

// shortID is how many digits of a container's id are shown, as crictl and docker do: an id has 64.
const shortID = 12

// Who names the container for people, by the first digits of its id.
func (k Key) Who() string {
	return "container " + quote.Terminal(k.ContainerID[:min(len(k.ContainerID), shortID)])
}

// Who names the pod for people, with its container: "pod team-a/train-0 (container 0123456789ab)". A pod that is made
// again has another one. Where the runtime did not pass a name it is the container alone.
func (e *Entry) Who() string {
	if pod := e.Pod(); pod != "" {
		return "pod " + quote.Terminal(pod) + " (" + e.Key.Who() + ")"
	}
	return e.Key.Who()
}

// VF is what an attachment does to a virtual function.
type VF struct {
	Was    device.VF       `json:"was"`              // before
	Set    []device.VFAttr `json:"set,omitempty"`    // what it changes
	Rebind bool            `json:"rebind,omitempty"` // the driver is bound again: for the GUIDs, or another tenant
	GUID   device.GUID     `json:"guid,omitzero"`    // the one it has in the pod
	HCA    *device.HCA     `json:"hca,omitempty"`    // RDMA device made by that, which goes into the pod
}

// Child is an IPoIB netdev that the attachment created.
type Child struct {
	Parent device.Address `json:"parent"`
	Master string         `json:"master"` // name of the parent on the host
	PKey   device.PKey    `json:"pkey"`
	// Group is the interface group that it is created with: the only mark that it bears from its first moment.
	Group  uint32 `json:"group"`
	HWAddr string `json:"hwAddr,omitempty"` // known after creation
	// Listed says that nldev's table had its queue pair after creation: if it has none of that number any more, the
	// child is gone. The table lacks those of mlx5 (kernel fact 49).
	Listed bool `json:"listed,omitempty"`
	// HCA is the number that nldev had for the RDMA device: one that is registered again gets another, and no child
	// lives through that. nil: an older version wrote the entry.
	HCA *uint32 `json:"hca,omitempty"`
}

// Decode reads an entry of any version. It fails when b is not an entry at all.
func Decode(b []byte) (*Entry, error) {
	var e Entry
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, fmt.Errorf("decode journal entry: %w", err)
	}
	if e.ContainerID == "" || e.IfName == "" || e.Kind == "" {
		return nil, errors.New("decode journal entry: containerID, ifName or kind is missing")
	}
	if e.DeviceKey == "" && e.tookDevice() {
		e.DeviceKey = device.KeyOf(e.Address, e.Netdev)
	}
	if e.Version == Version {
		return &e, nil
	}
	own, err := json.Marshal(&e)
	if err != nil {
		return nil, fmt.Errorf("decode journal entry: %w", err)
	}
	if e.unknown, err = beyond(b, own); err != nil {
		return nil, fmt.Errorf("decode journal entry: %w", err)
	}
	return &e, nil
}

// tookDevice says whether an attachment has a device. One of mode rdma on a shared system has none.
func (e *Entry) tookDevice() bool {
	return e.Kind != KindRDMA || e.MoveRDMA || e.HCA != nil || e.Netdev != nil
}

// Sound returns an error for an entry that lacks what everybody who acts on it relies on: it is damaged. Nothing could
// be found of what it speaks of, and it would look as if nothing had been taken.
func (e *Entry) Sound() error {
	switch {
	case e.Kind == KindIPoIB && e.Child == nil:
		return errors.New("field \"child\" is missing")
	case e.tookDevice() && e.DeviceKey == "":
		return errors.New("fields \"claim\" and \"address\" are missing")
	case e.tookDevice() && e.Netns.Ino == 0:
		return errors.New("field \"netns\" is missing")
	}
	if is := device.KeyOf(e.Address, e.Netdev); e.DeviceKey != "" && is != "" && is != e.DeviceKey {
		return fmt.Errorf("field \"claim\" is %q, the device is %q", e.DeviceKey, is)
	}
	return nil
}

// Encode writes the entry, with the fields that a newer version had put there.
func (e *Entry) Encode() ([]byte, error) {
	b, err := json.Marshal(e)
	if err != nil || e.unknown == nil {
		return b, err
	}
	return e.unknown.addTo(b)
}
