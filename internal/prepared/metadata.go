package prepared

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
	"github.com/fabric-cni/fabric-cni/internal/failpoint"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Containers read which devices they have in a file for each request of their claim (KEP-5304). The agent makes the
// file when it prepares the claim, because the runtime mounts it. Interface and addresses are known when the device is
// in the pod: the hook of the container writes them, into the same file, as a mount stays with the file that it has.
//
//	prepared/<pod UID>/<claim UID>.metadata/<request>.json
const (
	metadataDir = ".metadata"
	metadataExt = ".json"
)

// metadataVersions are what a file has its content in, newest first. They differ in nothing else:
// k8s.io/dynamic-resource-allocation v0.37, api/metadata.
var metadataVersions = []string{"metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"}

type metadata struct {
	Kind         string            `json:"kind"`
	APIVersion   string            `json:"apiVersion"`
	ObjectMeta   metadataOf        `json:"metadata"`
	PodClaimName string            `json:"podClaimName,omitempty"`
	Requests     []metadataRequest `json:"requests"`
}

type metadataOf struct {
	Name       string `json:"name"`
	Namespace  string `json:"namespace"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
}

type metadataRequest struct {
	Name    string           `json:"name"` // with the subrequest
	Devices []metadataDevice `json:"devices"`
}

type metadataDevice struct {
	Driver      string       `json:"driver"`
	Pool        string       `json:"pool"`
	Name        string       `json:"name"`
	Attributes  Attributes   `json:"attributes"`
	NetworkData *NetworkData `json:"networkData,omitempty"`
}

// Attributes of a device, as its ResourceSlice has them: values of resource.k8s.io/v1 DeviceAttribute by name.
type Attributes map[string]json.RawMessage

// attrRDMADevice is the attribute with the name of the RDMA device: that on the host, until the device is in the pod.
const attrRDMADevice = "rdmaDevice"

// NetworkData is the interface of a device in its pod, within the limits of NetworkDeviceData (resource.k8s.io/v1).
type NetworkData struct {
	InterfaceName   string   `json:"interfaceName"`
	IPs             []string `json:"ips,omitempty"` // with the length of the prefix
	HardwareAddress string   `json:"hardwareAddress,omitempty"`
}

// Limits of NetworkDeviceData (k8s.io/api v0.37, resource/v1).
const (
	maxIPs    = 16
	maxHWAddr = 128
)

// NetworkDataOf describes an interface: whatever its pod has made of it.
func NetworkDataOf(ifName, hwAddr string, addresses []netip.Prefix) NetworkData {
	out := NetworkData{InterfaceName: ifName}
	if len(hwAddr) <= maxHWAddr {
		out.HardwareAddress = hwAddr
	}
	for _, p := range addresses {
		text := netip.PrefixFrom(p.Addr().WithZone(""), p.Bits()).String()
		if !slices.Contains(out.IPs, text) && len(out.IPs) < maxIPs {
			out.IPs = append(out.IPs, text)
		}
	}
	return out
}

// InPod is what the metadata says of a device that is in the pod.
type InPod struct {
	NetworkData
	RDMADevice string // its name there; empty: as on the host
}

// BaseRequest is the request of the claim; of an alternative, the request that it is one of.
func (d *Device) BaseRequest() string {
	base, _, _ := strings.Cut(d.Request, "/")
	return base
}

// MetadataRequests are the requests of a claim that have a file. None: an older agent has prepared the claim.
func (c *Claim) MetadataRequests() (out []string) {
	for i := range c.Devices {
		d := &c.Devices[i]
		if len(d.Attributes) > 0 && IsUID(d.BaseRequest()) && !slices.Contains(out, d.BaseRequest()) {
			out = append(out, d.BaseRequest())
		}
	}
	return out
}

// MetadataFile is the file of a request on the host.
func (s Store) MetadataFile(c *Claim, request string) string {
	return filepath.Join(s.Dir, c.PodUID, c.UID+metadataDir, request+metadataExt)
}

// InitMetadata makes the files of a claim that are not there: they say what is known before the devices are in the pod.
func (s Store) InitMetadata(c *Claim) error {
	if _, err := s.path(c.PodUID, c.UID); err != nil {
		return fmt.Errorf("write the device metadata of claim %s: %w", c.Whose(), err)
	}
	for _, request := range c.MetadataRequests() {
		file := atomicfile.File{Path: s.MetadataFile(c, request), Mode: 0o644, DirMode: 0o700, Exclusive: true}
		if _, err := os.Lstat(file.Path); err == nil {
			continue
		}
		b, err := c.metadata(request, 1, nil)
		if err == nil {
			err = s.put(c.PodUID, file, b)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("write the device metadata of claim %s: %w", c.Whose(), err)
		}
	}
	return nil
}

// HasMetadata reports whether all files of a claim are whole and of a generation.
func (s Store) HasMetadata(c *Claim, generation int64) bool {
	for _, request := range c.MetadataRequests() {
		b, err := atomicfile.Read(s.MetadataFile(c, request), maxFile)
		if err != nil || !whole(b, generation) {
			return false
		}
	}
	return true
}

// whole reports whether b is a complete file of a generation. A writer may have been killed in the middle.
func whole(b []byte, generation int64) bool {
	in := json.NewDecoder(bytes.NewReader(b))
	for _, version := range metadataVersions {
		var m metadata
		if in.Decode(&m) != nil || m.APIVersion != version || m.ObjectMeta.Generation != generation {
			return false
		}
	}
	return errors.Is(in.Decode(&struct{}{}), io.EOF)
}

// UpdateMetadata writes what has become of the devices of a claim, in their order, into its files. There is one writer
// at a time, and no container that reads: those of the sandbox before have ended, and those of this one wait for it.
func (s Store) UpdateMetadata(c *Claim, generation int64, in []InPod) error {
	for _, request := range c.MetadataRequests() {
		b, err := c.metadata(request, generation, in)
		if err == nil {
			err = overwrite(s.MetadataFile(c, request), b)
		}
		if err != nil {
			return fmt.Errorf("write the device metadata of claim %s: %w", c.Whose(), err)
		}
	}
	return nil
}

// overwrite empties a file before it writes: a part of the new content is never taken for all of it.
func overwrite(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	if err = failpoint.Hit("metadata/emptied"); err == nil {
		_, err = f.Write(b)
	}
	return errors.Join(err, f.Close())
}

// metadata is the content of a request's file. Without in no device is in the pod.
func (c *Claim) metadata(request string, generation int64, in []InPod) ([]byte, error) {
	m := metadata{
		Kind: "DeviceMetadata", ObjectMeta: metadataOf{c.Name, c.Namespace, c.UID, generation},
		PodClaimName: c.PodClaimName,
	}
	for i := range c.Devices {
		d := &c.Devices[i]
		if d.BaseRequest() != request {
			continue
		}
		of := metadataDevice{Driver: netconf.Domain, Pool: c.Pool, Name: d.Name, Attributes: d.Attributes}
		if in != nil {
			of.NetworkData = &in[i].NetworkData
			if err := of.rename(in[i].RDMADevice); err != nil {
				return nil, err
			}
		}
		if len(m.Requests) == 0 { // of alternatives one is allocated
			m.Requests = []metadataRequest{{Name: d.Request}}
		}
		m.Requests[0].Devices = append(m.Requests[0].Devices, of)
	}
	var out []byte
	for _, m.APIVersion = range metadataVersions {
		b, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			return nil, err
		}
		out = append(append(out, b...), '\n')
	}
	return out, nil
}

// rename replaces the name of the RDMA device by that in the pod; empty: it has the one of the host.
func (d *metadataDevice) rename(rdma string) error {
	if rdma == "" {
		return nil
	}
	b, err := json.Marshal(map[string]string{"string": rdma})
	d.Attributes = maps.Clone(d.Attributes)
	d.Attributes[attrRDMADevice] = b
	return err
}
