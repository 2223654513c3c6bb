// Package prepared keeps what the agent has prepared for pods with ResourceClaims, from NodePrepareResources to
// NodeUnprepareResources: which devices of the node each claim gives to its pod. The agent writes it, and the plugin
// reads it at ADD, without a call of the API server. It lies beside the journal, on tmpfs: after a boot kubelet has
// claims prepared again.
//
//	prepared/<pod UID>/<claim UID>    JSON
//
// What containers may know of their devices is beside it: metadata.go.
package prepared

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Version is that of the format.
const Version = 1

// Claim is a ResourceClaim that has been prepared for a pod.
type Claim struct {
	Version   int    `json:"version"`
	UID       string `json:"uid"`
	Namespace string `json:"namespace"` // of claim and pod
	Name      string `json:"name"`
	PodUID    string `json:"podUID"`
	Pod       string `json:"pod"` // name
	// PodClaimName is what the pod calls a claim that has been made of a template for it; empty: its name.
	PodClaimName string   `json:"podClaimName,omitempty"`
	Pool         string   `json:"pool,omitempty"` // of the devices: that of this node
	Devices      []Device `json:"devices"`
	// Networks are the configurations of the devices' networks, by fabric, as they were when the claim was prepared: a
	// container with the claim does not start before each device is attached by one of them. None: an older agent has
	// prepared the claim, and only Multus attaches its devices.
	Networks map[string]json.RawMessage `json:"networks,omitempty"`
}

// Device is a device of the node that a claim gives to its pod.
type Device struct {
	Request string `json:"request"`           // of the claim: "rails", or "rails/subrequest"
	Name    string `json:"name"`              // in the ResourceSlice
	ShareID string `json:"shareID,omitempty"` // of a device that several claims have
	Fabric  string `json:"fabric"`            // and name of the network
	Rail    int    `json:"rail"`
	ID      string `json:"id"` // as kubelet, Multus and the plugin's deviceID know it
	// Address is where it sits on its bus. A virtual netdev has none: its bus is Virtual, and its name that of the
	// netdev. So Address.String() is always what the journal calls the device.
	Address device.Address `json:"address"`
	Netdev  string         `json:"netdev,omitempty"`
	// Shared is set for a share of an HCA: its pod gets an IPoIB child, and the HCA stays on the host. Otherwise the
	// whole device goes into the pod.
	Shared bool `json:"shared,omitempty"`
	// Network replaces settings of the fabric's network configuration: the claim's opaque parameters, checked.
	Network json.RawMessage `json:"network,omitempty"`
	// Interface names the interface in the pod: a name, or one that ends with %d for a number from 0. Empty: what the
	// pod's annotation or the order of the pod's devices makes it.
	Interface InterfaceName `json:"interface,omitempty"`
	// Attributes are for the containers of the pod. None: an older agent has prepared the claim.
	Attributes Attributes `json:"attributes,omitempty"`
}

// Virtual is the bus of devices that are on none, such as a veth.
const Virtual = device.Virtual

// Whose says which claim a device belongs to, for messages: namespace/name, quoted if that is no name.
func (c *Claim) Whose() string { return name(c.Namespace) + "/" + name(c.Name) }

// ForPod is the pod of a claim, for messages.
func (c *Claim) ForPod() string { return name(c.Namespace) + "/" + name(c.Pod) }

// name is a name of Kubernetes for a message; any other text is quoted.
func name(s string) string {
	other := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.' }
	if s == "" || len(s) > maxName || strings.ContainsFunc(s, other) {
		return strconv.Quote(s[:min(len(s), maxName)])
	}
	return s
}

// maxName bounds the names of objects (RFC 1123 subdomain).
const maxName = 253

// Store is the directory of the prepared claims.
type Store struct{ Dir string }

// In is the store beside the journal of a state directory.
func In(stateDir string) Store { return Store{Dir: filepath.Join(stateDir, "prepared")} }

// IsUID tells a UID of a pod or a claim by what Kubernetes makes them of: letters, digits and '-'; those of static pods
// are hashes. It becomes part of a path. No regular expression: each exec of the plugin would compile it.
func IsUID(s string) bool {
	other := func(r rune) bool { return (r|0x20 < 'a' || r|0x20 > 'z') && (r < '0' || r > '9') && r != '-' }
	return s != "" && len(s) <= 128 && s[0] != '-' && !strings.ContainsFunc(s, other)
}

func (s Store) path(podUID, claimUID string) (string, error) {
	for _, u := range []string{podUID, claimUID} {
		if !IsUID(u) {
			return "", fmt.Errorf("%q: want a UID", u)
		}
	}
	return filepath.Join(s.Dir, podUID, claimUID), nil
}

// Save writes a claim, whole or not at all.
func (s Store) Save(c *Claim) error {
	path, err := s.path(c.PodUID, c.UID)
	if err != nil {
		return fmt.Errorf("record prepared claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	c.Version = Version
	b, err := json.MarshalIndent(c, "", " ")
	file := atomicfile.File{Path: path, Mode: 0o600, DirMode: 0o700, Sync: atomicfile.SyncFile}
	if err == nil {
		err = s.put(c.PodUID, file, b)
	}
	if err != nil {
		return fmt.Errorf("record prepared claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}

// put writes a file of a pod. What has the pod's name and is no directory is foreign.
func (s Store) put(podUID string, file atomicfile.File, b []byte) error {
	err := file.Write(b)
	pod := filepath.Join(s.Dir, podUID)
	if st, e := os.Lstat(pod); err != nil && e == nil && !st.IsDir() {
		if err = os.Remove(pod); err == nil {
			err = file.Write(b)
		}
	}
	return err
}

// Remove forgets a claim, of whichever pod, whatever has its name. What is not there is no error.
func (s Store) Remove(claimUID string) error {
	if !IsUID(claimUID) {
		return fmt.Errorf("forget prepared claim: %q: want a UID", claimUID)
	}
	files, err := filepath.Glob(filepath.Join(s.Dir, "*", claimUID))
	metadata, merr := filepath.Glob(filepath.Join(s.Dir, "*", claimUID+metadataDir))
	errs := []error{err, merr}
	for _, f := range append(metadata, files...) { // the claim last: as long as it is there, it is taken back again
		errs = append(errs, os.RemoveAll(f))
		_ = os.Remove(filepath.Dir(f)) // as soon as it is empty
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("forget prepared claim %s: %w", claimUID, err)
	}
	return nil
}

// Of returns the claims that are prepared for a pod, none if it has none. A claim that can't be read is an error: a pod
// must not start with fewer devices than it was given.
func (s Store) Of(podUID string) ([]*Claim, error) {
	if !IsUID(podUID) {
		return nil, fmt.Errorf("prepared claims of pod %q: want a UID", podUID)
	}
	return s.dir(podUID)
}

// ErrDamaged means that something has the name of a prepared claim, and that nothing is known of it.
var ErrDamaged = errors.New("it is damaged")

// Claim returns a prepared claim; fs.ErrNotExist if none has this UID, ErrDamaged for a file that says nothing.
func (s Store) Claim(claimUID string) (*Claim, error) {
	if !IsUID(claimUID) {
		return nil, fmt.Errorf("prepared claim %q: want a UID", claimUID)
	}
	files, err := filepath.Glob(filepath.Join(s.Dir, "*", claimUID))
	if err != nil {
		return nil, fmt.Errorf("find prepared claim %s: %w", claimUID, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("claim %s is not prepared on this node: %w", claimUID, fs.ErrNotExist)
	}
	c, err := load(files[0])
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Has tells whether something has the name of a prepared claim, damaged or not.
func (s Store) Has(claimUID string) bool {
	files, err := filepath.Glob(filepath.Join(s.Dir, "*", claimUID))
	return err == nil && len(files) > 0
}

// All returns all prepared claims. Those that can't be read, and what else lies there, are in the joined error, beside
// the others, which don't depend on them. One whose devices can be read, and nothing else be relied on (a newer version
// wrote it), is in both.
func (s Store) All() ([]*Claim, error) {
	pods, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list prepared claims: %w", err)
	}
	var out []*Claim
	var errs []error
	for _, p := range pods {
		if !IsUID(p.Name()) {
			continue
		}
		if !p.IsDir() {
			path := filepath.Join(s.Dir, p.Name())
			errs = append(errs, fmt.Errorf("list prepared claims: %w: %s is no directory", ErrDamaged, path))
			continue
		}
		claims, err := s.dir(p.Name())
		out, errs = append(out, claims...), append(errs, err)
	}
	return out, errors.Join(errs...)
}

func (s Store) dir(podUID string) ([]*Claim, error) {
	files, err := os.ReadDir(filepath.Join(s.Dir, podUID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list prepared claims of pod %s: %w", podUID, err)
	}
	var out []*Claim
	var errs []error
	for _, f := range files {
		if !IsUID(f.Name()) { // a temporary file
			continue
		}
		c, err := load(filepath.Join(s.Dir, podUID, f.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // else it was unprepared meanwhile
			errs = append(errs, err)
		}
		if c != nil {
			out = append(out, c)
		}
	}
	return out, errors.Join(errs...)
}

// load reads a claim. It returns one that can be read but must not be acted on beside the error: its devices are not
// for others.
func load(path string) (*Claim, error) {
	b, err := atomicfile.Read(path, maxFile)
	if errors.Is(err, atomicfile.ErrForeign) {
		return nil, fmt.Errorf("read prepared claim: %w: %w", ErrDamaged, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read prepared claim: %w", err)
	}
	var c Claim
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("read prepared claim %s: %w: %w", path, ErrDamaged, err)
	}
	if c.UID != filepath.Base(path) || c.PodUID != filepath.Base(filepath.Dir(path)) {
		return nil, fmt.Errorf("read prepared claim %s: %w: it speaks of claim %.130q of pod %.130q", path, ErrDamaged,
			c.UID, c.PodUID)
	}
	if c.Version > Version {
		return &c, fmt.Errorf("read prepared claim %s: version %d is of a newer agent, this knows %d", path, c.Version,
			Version)
	}
	for i, d := range c.Devices {
		if d.ID == "" || d.Fabric == "" || d.Address.Bus == "" || d.Address.Name == "" {
			return &c, fmt.Errorf("read prepared claim %s: device %d has no id, fabric or address", path, i)
		}
	}
	return &c, nil
}

// maxFile bounds a file: a claim has at most 32 devices, and their parameters at most 10 KiB each.
const maxFile = 1 << 20

// ClaimDevice is a device with the claim that gives it.
type ClaimDevice struct {
	Device
	Claim *Claim
}

// OfFabric are the devices of one fabric among prepared claims, in the order of InOrder.
func OfFabric(claims []*Claim, fabric string) []ClaimDevice {
	return slices.DeleteFunc(InOrder(claims), func(d ClaimDevice) bool { return d.Fabric != fabric })
}

// InOrder are the devices of prepared claims in the order in which interfaces get them: by fabric, by rail, then by
// address. So net1 is the same rail in every pod.
func InOrder(claims []*Claim) []ClaimDevice {
	var out []ClaimDevice
	for _, c := range claims {
		for _, d := range c.Devices {
			out = append(out, ClaimDevice{d, c})
		}
	}
	slices.SortStableFunc(out, func(a, b ClaimDevice) int {
		return cmp.Or(cmp.Compare(a.Fabric, b.Fabric), cmp.Compare(a.Rail, b.Rail), a.Address.Compare(b.Address),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.ShareID, b.ShareID), cmp.Compare(a.Claim.UID, b.Claim.UID),
			cmp.Compare(a.Request, b.Request))
	})
	return out
}
