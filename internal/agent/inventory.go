package agent

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/install"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// namespaceFile has the namespace of the pod's service account, where the inventory is published.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// inventoryEvery is how often the inventory is read: it is hundreds of small files on a node with many VFs.
const inventoryEvery = time.Minute

// inventoryReconciler publishes what the node has, for fabricctl generate and fabricctl doctor cluster: when it has
// changed, and every few minutes.
type inventoryReconciler struct {
	cluster *cluster.Client // nil: nothing is published
	version string          // of the agent
	node    string          // name of the Node, which need not be the host's
	plugin  install.Target
	store   journal.Store
	log     *slog.Logger
	now     func() time.Time

	read      time.Time         // when the inventory was last read
	sum       [sha256.Size]byte // of what was last published
	published time.Time         // when that was
}

func (r *inventoryReconciler) reconcile(ctx context.Context) {
	if r.cluster == nil || !r.read.IsZero() && r.now().Sub(r.read) < inventoryEvery {
		return
	}
	namespace, err := os.ReadFile(namespaceFile)
	if errors.Is(err, fs.ErrNotExist) {
		return // not in a pod: there is no place for it
	}
	r.read = r.now()
	if err == nil {
		err = r.publish(ctx, strings.TrimSpace(string(namespace)))
	}
	if err != nil {
		r.log.Error("cannot publish the node's inventory", "error", err)
	}
}

func (r *inventoryReconciler) publish(ctx context.Context, namespace string) error {
	inventory, err := r.inventory()
	if err != nil {
		return err
	}
	text, err := json.Marshal(inventory)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	if sum == r.sum && r.now().Sub(r.published) < reapply {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := r.cluster.Inventory(ctx, namespace, text); err != nil {
		return err
	}
	if r.published.IsZero() {
		r.log.Info("published the node's inventory", "hcas", len(inventory.Node.HCAs))
	}
	r.sum, r.published = sum, r.now()
	return nil
}

// inventory is what fabricctl discover prints on this node, and which plugin is installed.
func (r *inventoryReconciler) inventory() (*node.Published, error) {
	n, err := node.Open(os.DirFS("/"), r.store)
	if err != nil {
		return nil, err
	}
	n.Name = r.node
	p := &node.Published{Agent: r.version, Node: n}
	if sum, err := r.plugin.Sum(); err == nil {
		p.Plugin = sum
	}
	return p, nil
}
