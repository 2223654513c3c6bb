package agent

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// namespaceFile has the namespace of the pod's service account, where the inventory is published.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// pictureEvery is how often the whole picture of the node is read: it is hundreds of small files on a node with many
// VFs.
const pictureEvery = time.Minute

// inventory is what has been published of the node.
type inventory struct {
	version string // of the agent
	looked  time.Time
	sum     [sha256.Size]byte
	applied time.Time
}

// publishInventory tells the cluster what the node has, when that has changed and every few minutes: fabricctl generate
// and fabricctl doctor cluster work with it. Without a service account there is no place for it.
func (l *looker) publishInventory(ctx context.Context) {
	i := &l.inventory
	if l.cluster == nil || !i.looked.IsZero() && l.now().Sub(i.looked) < pictureEvery {
		return
	}
	b, err := os.ReadFile(namespaceFile)
	if err != nil {
		return // outside of a pod
	}
	i.looked = l.now()
	p, err := l.picture()
	if err != nil {
		l.log.Error("cannot read the node's inventory", "error", err)
		return
	}
	text, err := json.Marshal(p)
	if err != nil {
		l.log.Error("cannot encode the node's inventory", "error", err)
		return
	}
	sum := sha256.Sum256(text)
	if sum == i.sum && l.now().Sub(i.applied) < reapply {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := l.cluster.Inventory(ctx, strings.TrimSpace(string(b)), text); err != nil {
		l.log.Error("cannot publish the node's inventory", "error", err)
		return
	}
	if i.applied.IsZero() {
		l.log.Info("published the node's inventory", "hcas", len(p.Node.HCAs))
	}
	i.sum, i.applied = sum, l.now()
}

// picture is what fabricctl discover would say on this node.
func (l *looker) picture() (*node.Published, error) {
	n, err := node.Open(os.DirFS("/"), l.o.store())
	if err != nil {
		return nil, err
	}
	n.Name = l.o.Node // the Node's name need not be the host's
	p := &node.Published{Agent: l.inventory.version, Node: n}
	if b, err := os.ReadFile(l.o.target().Path()); err == nil {
		p.Plugin = fmt.Sprintf("%x", sha256.Sum256(b))
	}
	return p, nil
}
