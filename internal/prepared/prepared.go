// Package prepared keeps what the agent has prepared for pods with ResourceClaims, from NodePrepareResources to
// NodeUnprepareResources: which devices of the node each claim gives to its pod. The agent writes it, and the plugin
// reads it at ADD, without a call of the API server. It lies beside the journal, on tmpfs: after a boot kubelet has
// claims prepared again.
//
//	prepared/<pod UID>/<claim UID>    JSON
package prepared

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Version is that of the format.
const Version = 1

// Claim is a ResourceClaim that has been prepared for a pod.
type Claim struct {
	Version   int      `json:"version"`
	UID       string   `json:"uid"`
	Namespace string   `json:"namespace"` // of claim and pod
	Name      string   `json:"name"`
	PodUID    string   `json:"podUID"`
	Pod       string   `json:"pod"` // name
	Devices   []Device `json:"devices"`
}

// Device is a device of the node that a claim gives to its pod.
type Device struct {
	Request string         `json:"request"`           // of the claim: "rails", or "rails/subrequest"
	Name    string         `json:"name"`              // in the ResourceSlice
	ShareID string         `json:"shareID,omitempty"` // of a device that several claims have
	Fabric  string         `json:"fabric"`            // and name of the network
	Rail    int            `json:"rail"`
	ID      string         `json:"id"`      // as kubelet, Multus and the plugin's deviceID know it
	Address device.Address `json:"address"` // on the bus
	Netdev  string         `json:"netdev,omitempty"`
	// Network replaces settings of the fabric's network configuration: the claim's opaque parameters, checked.
	Network json.RawMessage `json:"network,omitempty"`
}

// Store is the directory of the prepared claims.
type Store struct{ Dir string }

// In is the store beside the journal of a state directory.
func In(stateDir string) Store { return Store{Dir: filepath.Join(stateDir, "prepared")} }

// uid is what Kubernetes makes UIDs of: those of static pods are hashes. It becomes part of a path.
var uid = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z-]{0,127}$`)

// IsUID tells a UID of a pod or a claim.
func IsUID(s string) bool { return uid.MatchString(s) }

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
	if err == nil {
		err = atomicfile.File{Path: path, Mode: 0o600, DirMode: 0o700, Sync: atomicfile.SyncFile}.Write(b)
	}
	if err != nil {
		return fmt.Errorf("record prepared claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}

// Remove forgets a claim, of whichever pod. What is not there is no error.
func (s Store) Remove(claimUID string) error {
	if !IsUID(claimUID) {
		return fmt.Errorf("forget prepared claim: %q: want a UID", claimUID)
	}
	files, err := filepath.Glob(filepath.Join(s.Dir, "*", claimUID))
	errs := []error{err}
	for _, f := range files {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
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

// Claim returns a prepared claim; fs.ErrNotExist if there is none of this UID.
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
	return load(files[0])
}

// All returns all prepared claims. Those that can't be read are in the joined error, beside the others.
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
		switch {
		case errors.Is(err, fs.ErrNotExist): // unprepared meanwhile
		case err != nil:
			errs = append(errs, err)
		default:
			out = append(out, c)
		}
	}
	return out, errors.Join(errs...)
}

func load(path string) (*Claim, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read prepared claim: %w", err)
	}
	var c Claim
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("read prepared claim %s: %w", path, err)
	}
	if c.Version > Version {
		return nil, fmt.Errorf("read prepared claim %s: version %d is of a newer agent, this knows %d", path, c.Version,
			Version)
	}
	if c.UID != filepath.Base(path) || c.PodUID != filepath.Base(filepath.Dir(path)) {
		return nil, fmt.Errorf("read prepared claim %s: it speaks of claim %q of pod %q", path, c.UID, c.PodUID)
	}
	return &c, nil
}

// OfFabric are the devices of one fabric among prepared claims in the order in which interfaces get them: by rail, then
// by address. So net1 is the same rail in every pod.
func OfFabric(claims []*Claim, fabric string) []Device {
	var out []Device
	for _, c := range claims {
		for _, d := range c.Devices {
			if d.Fabric == fabric {
				out = append(out, d)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Rail, b.Rail), cmp.Compare(a.ID, b.ID), cmp.Compare(a.ShareID, b.ShareID),
			cmp.Compare(a.Request, b.Request))
	})
	return out
}
