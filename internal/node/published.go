package node

// Published is what the agent of a node tells the cluster about it: the data of one ConfigMap, see PublishedKey.
type Published struct {
	Agent  string `json:"agent"`            // version of fabric-agent
	Plugin string `json:"plugin,omitempty"` // SHA-256 of the installed plugin, in hex; empty: it can't be read
	Node   *Node  `json:"node"`
}

// The ConfigMaps with nodes' inventories, one per node, carry the label. Each has its Published
// as JSON under the key.
const (
	PublishedLabel = "fabric.dev/inventory"
	PublishedName  = "fabric-inventory-" // and the name of the Node
	PublishedKey   = "inventory.json"
)
