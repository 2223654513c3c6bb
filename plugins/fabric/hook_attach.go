package fabric

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// attachPod attaches what the claims of a pod give it and no attachment in its network namespace has, in the order of
// rails, as a runtime would by ADD for each. What it has attached when it fails stays with the pod: the runtime tries
// again with the next start of the container, and the devices return when the pod ends.
func (p Plugin) attachPod(podUID string, in container) error {
	store := journal.Store{Dir: p.StateDir}
	claims, err := prepared.In(p.StateDir).Of(podUID)
	if err != nil {
		return err
	}
	at := attachments{store: store, here: in.id, used: map[journal.Key]bool{}}
	var rest []*prepared.Claim // what is left of the claims to attach
	for _, c := range claims {
		r := *c
		r.Devices = nil
		for _, d := range at.lacking(c) {
			r.Devices = append(r.Devices, *d)
		}
		rest = append(rest, &r)
	}
	names, err := p.namesIn(in.netns)
	if err != nil {
		return err
	}
	holds := journal.Holds{Store: store}
	if err := holds.Hold(in.netns, in.id); err != nil {
		return err
	}
	in.netns = p.mounted(in, holds.Path(in.id))
	for _, d := range prepared.InOrder(rest) {
		ifName := at.unfinished(in.containerID(podUID), &d)
		if ifName == "" {
			ifName = d.Interface.Next(func(name string) bool { return names[name] })
		}
		names[ifName] = true
		if err := p.addClaimed(&d, ifName, in); err != nil {
			reason := strings.TrimPrefix(err.Error(), "fabric: ")
			return fmt.Errorf("%s: %s", gives(d.Claim, &d.Device), reason)
		}
	}
	return holds.Hold(in.netns, in.id) // ReleaseAll may have come before the first entry
}

// containerID is that of the hook's attachments: the pod's UID and its namespace's number. What a runtime says of its
// sandbox is in annotations, which a pod may have as well.
func (c container) containerID(podUID string) string { return fmt.Sprintf("%s-%d", podUID, c.id.Ino) }

// unfinished is the interface of a device whose ADD was killed in this sandbox; empty: none was.
func (a *attachments) unfinished(containerID string, d *prepared.ClaimDevice) string {
	want := claimDeviceOf(d.Claim, &d.Device)
	for _, e := range a.store.Of(containerID) {
		if !e.Attached && e.FromClaim != nil && e.FromClaim.Same(want) {
			return e.IfName
		}
	}
	return ""
}

// namesIn are the names that interfaces have in the network namespace at path, altnames too.
func (p Plugin) namesIn(path string) (map[string]bool, error) {
	c := p.newCall(&netconf.Config{}, netconf.Env{})
	defer c.close()
	side, err := c.openSide(path)
	if err != nil {
		return nil, err
	}
	list, err := side.Link.List("")
	out := map[string]bool{}
	for i := range list {
		out[list[i].Name] = true
		for _, name := range list[i].AltNames {
			out[name] = true
		}
	}
	return out, err
}

// mounted is where the container runtime has mounted the container's network namespace: as long as it is there, the
// sandbox is. Without a mount it is where the container's process has it.
func (p Plugin) mounted(in container, held string) string {
	paths, err := netns.Mounts(p.Proc, in.id)
	for _, path := range paths {
		if id, ierr := netns.IDOf(path); err == nil && ierr == nil && id == in.id && path != held {
			return path
		}
	}
	return in.netns
}

// addClaimed attaches a device of a claim as a runtime would, by an ADD for its pod.
func (p Plugin) addClaimed(d *prepared.ClaimDevice, ifName string, in container) error {
	conf, err := p.confOf(d)
	if err != nil {
		return err
	}
	for _, name := range []string{d.Claim.Namespace, d.Claim.Pod} {
		if strings.ContainsAny(name, ";=") { // Kubernetes allows neither
			return fmt.Errorf("pod %s: want a namespace and a name without ';' and '='", d.Claim.ForPod())
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the directory of the plugin: %w", err)
	}
	p.Command, p.Stdout = "ADD", io.Discard
	began := time.Now()
	add := p.verb(func(c *call) error {
		c.claimed = claimDeviceOf(d.Claim, &d.Device)
		return add(c)
	})
	err = add(&skel.CmdArgs{
		ContainerID: in.containerID(d.Claim.PodUID), Netns: in.netns, IfName: ifName, Path: filepath.Dir(exe),
		StdinData: conf,
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=" + d.Claim.Namespace + ";K8S_POD_NAME=" + d.Claim.Pod +
			";K8S_POD_UID=" + d.Claim.PodUID,
	})
	var e *types.Error
	errors.As(err, &e)
	p.note(began, e)
	return err
}

// confOf is the configuration of a device's network: the one that the agent has published for this node now, which has
// the node's own addresses, else the one with which the claim was prepared.
func (p Plugin) confOf(d *prepared.ClaimDevice) ([]byte, error) {
	conf := []byte(d.Claim.Networks[d.Fabric])
	b, err := policy.ReadPublished(p.StateDir, d.Fabric)
	switch {
	case err == nil:
		conf = b
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read the network's configuration: %w", err)
	}
	var of struct {
		Name string `json:"name"`
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	if err := json.Unmarshal(conf, &of); err != nil {
		return nil, fmt.Errorf("read the configuration of network %.64q: %w", d.Fabric, err)
	}
	if of.Name != d.Fabric {
		return nil, fmt.Errorf("the configuration of network %.64q is that of %.64q", d.Fabric, of.Name)
	}
	if of.IPAM.Type == "whereabouts" {
		return nil, fmt.Errorf("its addresses are whereabouts', whose reconciler takes those of pods without the "+
			"annotation k8s.v1.cni.cncf.io/network-status, which is Multus's: name the network %s in the annotation "+
			"k8s.v1.cni.cncf.io/networks of the pod, or give the Fabric addresses.nodeRanges", d.Fabric)
	}
	return conf, nil
}
