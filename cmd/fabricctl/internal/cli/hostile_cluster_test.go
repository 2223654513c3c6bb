package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// kubectlScript answers what a command asks for, from files.
const kubectlScript = `#!/bin/sh
cd "$(dirname "$0")/.." || exit
case "$*" in
*" get pod "*) cat pod.json ;;
*"get crd"*) cat message >&2; exit 1 ;;
*"get configmaps"*) cat inventories.json ;;
*"get daemonsets"*-o\ json) cat daemonsets.json ;;
*"get nodes"*json) cat nodes.json ;;
*"get network-attachment-definitions"*) cat nads.json ;;
*"get ippools"*json) cat pools.json ;;
*" exec "*) case "$*" in
	*"ip -j address show") cat addresses.json ;;
	*" ping "*) echo '3 packets transmitted, 3 received, 0% packet loss'; cat message ;;
	*" sh -c "*) x=$(cat word)
		printf 'partition 0xffff\nport mlx5_0%s 1\nlink_layer InfiniBand\nstate 4: ACTIVE\n' "$x"
		printf 'phys_state 5: LinkUp%s\nrate 200 Gb/sec %s\ngid 0 fe80::2:c903:fa:10 -%s\n' "$x" "$x" "$x"
		printf 'pkey 0 0xffff\npkey 1 0x8001%s\n' "$x" ;;
	*" timeout "*) exec sleep 60 ;;
	*) echo " Port number 1 state is Down"; cat message; exit 1 ;;
	esac ;;
*) cat message ;;
esac
`

// cluster puts a kubectl into PATH that answers for a cluster.
func (w *hostileWorld) cluster(t *testing.T, n *node.Node) {
	t.Helper()
	x := w.text
	type m = map[string]any
	list := func(items ...any) string { return w.json(t, m{"items": items}) }
	meta := m{"name": "x" + x, "namespace": "ml" + x, "labels": m{"l" + x: x}, "annotations": m{
		"k8s.v1.cni.cncf.io/resourceName": "nvidia.com/r" + x, "k8s.v1.cni.cncf.io/networks": "x" + x + ",ml/y" + x}}
	pod := m{"kind": "Pod", "metadata": meta, "spec": m{"containers": []any{m{"name": "c" + x,
		"resources": m{"limits": m{"nvidia.com/r" + x: "2" + x}}}}}}
	config := w.json(t, m{"type": "fabric", "device": "ib0" + x, "name": x, "ipam": m{"type": "whereabouts",
		"range": "10.0.0.0/24" + x}})
	nads := list(m{"metadata": meta, "spec": m{"config": config}}, m{"metadata": meta, "spec": m{"config": x}})
	w.manifest = w.json(t, pod)
	w.nads = w.file(t, "nads.json", nads)
	w.file(t, "pod.json", w.manifest)
	w.file(t, "message", "Error from server: "+x+"\n")
	w.file(t, "word", x)
	w.file(t, "daemonsets.json", list(m{"metadata": m{"name": "kube-multus" + x, "namespace": "kube-system" + x},
		"status": m{"desiredNumberScheduled": 2, "numberReady": 1, "updatedNumberScheduled": 1}}))
	nodes := []any{m{"metadata": m{"name": n.Name}, "status": m{"allocatable": m{"nvidia.com/r" + x: "8" + x}}}}
	var items []any
	for _, change := range []func(*node.Node){ // one without a text that is refused, and one in each place
		func(*node.Node) {}, func(o *node.Node) { o.HCAs, o.Name = n.HCAs, "g1" },
	} {
		other := *n
		change(&other)
		inventory := w.json(t, m{"agent": "v1" + x, "plugin": "sum" + x, "node": other})
		items = append(items, m{"metadata": m{"name": "fabric-inventory-" + other.Name},
			"data": m{"inventory.json": inventory}}, m{"metadata": m{"name": x}, "data": m{"inventory.json": x}})
		nodes = append(nodes, m{"metadata": m{"name": other.Name}})
	}
	w.file(t, "inventories.json", list(items...))
	w.file(t, "nodes.json", list(nodes...))
	w.file(t, "pools.json", list(m{"metadata": meta, "spec": m{"range": "10.0.0.0/30" + x, "allocations": m{x: m{}}}},
		m{"metadata": meta, "spec": m{"range": "10.0.0.0/30", "allocations": m{"1": m{}, "2": m{}, "3": m{}}}}))
	w.file(t, "addresses.json", w.json(t, []any{m{"ifname": "net1" + x, "link_type": "infiniband",
		"address":   "00:00:00:66:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fa:00:10",
		"addr_info": []any{m{"local": "10.0.0.1", "prefixlen": 24, "scope": "global"}}}}))
	if err := os.Mkdir(filepath.Join(w.dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.file(t, "bin/kubectl", kubectlScript)
	t.Setenv("PATH", filepath.Join(w.dir, "bin")+":"+os.Getenv("PATH"))
}
