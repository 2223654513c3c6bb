package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
)

// NodeAddressesFile is the file in the state directory in which the agent notes by which addresses the cluster knows
// the node. It is not the policy: that is its owner's alone.
const NodeAddressesFile = "node-addresses.json"

// maxAddressesFile bounds it: a node has a handful of addresses.
const maxAddressesFile = 64 << 10

// NodeAddresses is the file's content. Fields that this version does not know are left alone: the agent may be newer.
type NodeAddresses struct {
	Addresses []netip.Addr `json:"addresses"`
	// Fabrics says that Fabrics are in force here: pods get what kubelet gives them. Resources are those of the devices
	// that are in one, by their names in the journal.
	Fabrics   bool              `json:"fabrics,omitempty"`
	Resources map[string]string `json:"resources,omitempty"`
	// DevicePluginDir is kubelet's, if it is another one than usual.
	DevicePluginDir string `json:"devicePluginDir,omitempty"`
}

// loadAddresses reads what the agent has noted. Without an agent there is no file. A damaged one is an error, as a
// damaged policy is: an unreadable address must not make the node's own interface a free one.
func loadAddresses(stateDir string) (NodeAddresses, error) {
	if stateDir == "" {
		return NodeAddresses{}, nil
	}
	file := filepath.Join(stateDir, NodeAddressesFile)
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return NodeAddresses{}, nil
	}
	if err != nil {
		return NodeAddresses{}, fmt.Errorf("read the node's addresses: %w", err)
	}
	var n *NodeAddresses
	if len(b) > maxAddressesFile {
		err = fmt.Errorf("%d bytes are too many", len(b))
	} else if err = json.Unmarshal(b, &n); err == nil && (n == nil || n.Addresses == nil) {
		err = errors.New(`want an object with "addresses"`)
	}
	if err != nil {
		return NodeAddresses{}, fmt.Errorf("the node's addresses in %s, which fabric-agent writes: %w; remove the "+
			"file, and the agent writes it again", file, err)
	}
	for i, a := range n.Addresses {
		n.Addresses[i] = a.Unmap()
	}
	return *n, nil
}
