package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/apiserver"
)

// apiScript answers what a command asks for, from files.
const apiScript = `#!/bin/sh
case "$1 ${2%%\?*}" in
GET*/pods/*/log) cat nccl.log ;;
GET*/pods/*) cat pod.json ;;
GET*/customresourcedefinitions) cat message >&2; exit 1 ;;
GET*/fabricnodes) case $2 in *=g1) cat fabricnode.json ;; *) cat fabricnodes.json ;; esac ;;
GET*/fabrics) cat fabrics.json ;;
GET*/deployments) cat deployments.json ;;
GET*/leases) cat leases.json ;;
"GET /api/v1/pods") cat allpods.json ;;
GET*/pods) cat pods.json ;;
GET*/daemonsets) cat daemonsets.json ;;
GET*/nodes) cat nodes.json ;;
GET*/network-attachment-definitions) cat nads.json ;;
GET*/resourceclaims) cat claims.json ;;
GET*/events) cat events.json ;;
"GET /apis/resource.k8s.io") echo '{"versions":[{"version":"v1"}],"preferredVersion":{"version":"v1"}}' ;;
"GET /api/v1") echo '{"resources":[{"name":"pods","kind":"Pod","namespaced":true}]}' ;;
GET*/resourceslices) cat slices.json ;;
GET*/resourceclaimtemplates|GET*/deviceclasses) echo '{"items":[]}' ;;
GET*/ippools) cat pools.json ;;
"GET /version") cat version.json ;;
"GET /apis/mellanox.com"|"GET /apis/sriovnetwork.openshift.io"|"GET /apis/machineconfiguration.openshift.io"|\
"GET /apis/k8s.cni.cncf.io") echo '{"versions":[{"version":"v1"}],"preferredVersion":{"version":"v1"}}' ;;
"GET /apis/k8s.cni.cncf.io/v1") echo '{"resources":[{"name":"network-attachment-definitions"}]}' ;;
GET*/nicclusterpolicies|GET*/sriovnetworkpoolconfigs|GET*/sriovnetworknodestates|GET*/machineconfigs)
	cat operators.json ;;
GET*/servicecidrs) cat cidrs.json ;;
GET*) exit 1 ;;
*) echo '{}' ;;
esac
`

// podScript is what the pods do.
const podScript = `#!/bin/sh
case "$*" in
*/sys/class/infiniband_verbs/*) cat look ;;
*"ip -j address show") cat addresses.json ;;
*" ping "*) echo '3 packets transmitted, 3 received, 0% packet loss'; cat message ;;
*" sh -c "*) x=$(cat word)
	printf 'partition 0xffff\nport mlx5_0%s 1\nlink_layer InfiniBand\nstate 4: ACTIVE\n' "$x"
	printf 'phys_state 5: LinkUp%s\nrate 200 Gb/sec %s\ngid 0 fe80::2:c903:fa:10 -%s\n' "$x" "$x" "$x"
	printf 'pkey 0 0xffff\npkey 1 0x8001%s\n' "$x" ;;
*" timeout "*) exec sleep 60 ;;
*) echo " Port number 1 state is Down"; cat message; exit 1 ;;
esac
`

// cluster starts an API server, which answers for a cluster.
func (w *hostileWorld) cluster(t *testing.T, n *node.Node) {
	t.Helper()
	x := w.text
	type m = map[string]any
	list := func(items ...any) string { return w.json(t, m{"items": items}) }
	meta := m{"name": "x" + x, "namespace": "ml" + x, "labels": m{"l" + x: x}, "annotations": m{
		"k8s.v1.cni.cncf.io/resourceName": "nvidia.com/r" + x, "k8s.v1.cni.cncf.io/networks": "x" + x + ",ml/y" + x}}
	pod := m{"kind": "Pod", "metadata": meta, "spec": m{"containers": []any{m{"name": "c" + x,
		"resources": m{"limits": m{"nvidia.com/r" + x: "2" + x}}}},
		"resourceClaims": []any{m{"name": "r" + x, "resourceClaimTemplateName": "t" + x},
			m{"name": "s" + x, "resourceClaimName": "c" + x}}}, "status": m{"phase": "Pending"}}
	config := w.json(t, m{"type": "fabric", "device": "ib0" + x, "name": x, "ipam": m{"type": "whereabouts",
		"range": "10.0.0.0/24" + x}})
	nads := list(m{"metadata": meta, "spec": m{"config": config}}, m{"metadata": meta, "spec": m{"config": x}})
	claims := []any{m{"kind": "ResourceClaim", "metadata": m{"name": "c" + x, "namespace": "ml" + x}, "spec": m{
		"devices": m{"requests": []any{m{"name": "q" + x, "exactly": m{"deviceClassName": x + ".fabric.dev",
			"selectors": []any{m{"cel": m{"expression": x}}}}}}}}}}
	slices := []any{m{"kind": "ResourceSlice", "metadata": m{"name": x}, "spec": m{"driver": "fabric.dev",
		"nodeName": "n" + x, "pool": m{"name": x, "resourceSliceCount": 2}, "devices": []any{m{"name": "d" + x,
			"attributes": m{"fabric": m{"string": x}}, "taints": []any{m{"key": x, "value": x, "effect": "NoSchedule"}},
		}}}}}
	event := m{"kind": "Event", "type": "Warning", "reason": "Failed" + x, "message": "cannot allocate all claims " + x,
		"involvedObject": m{"kind": "Pod", "name": "x" + x, "namespace": "ml" + x}}
	w.claims = w.file(t, "claims.json", list(append(append([]any{event}, claims...), slices...)...))
	w.file(t, "slices.json", list(slices...))
	w.file(t, "events.json", list(event))
	w.manifest = w.json(t, pod)
	w.nads = w.file(t, "nads.json", nads)
	w.file(t, "pod.json", w.manifest)
	w.file(t, "message", "Error from server: "+x+"\n")
	w.file(t, "word", x)
	w.file(t, "daemonsets.json", list(m{"metadata": m{"name": "kube-multus" + x, "namespace": "kube-system" + x},
		"status": m{"desiredNumberScheduled": 2, "numberReady": 1, "updatedNumberScheduled": 1}}))
	w.file(t, "nodes.json", list(m{"metadata": m{"name": "g1"}}, m{"metadata": m{"name": "x" + x},
		"status": m{"allocatable": m{"nvidia.com/r" + x: "8" + x}}}))
	conditions := []any{m{"type": "Ready", "status": "False", "reason": "R" + x, "message": x,
		"lastTransitionTime": nil}}
	var items []any
	for _, i := range []any{*n, x, m{"hcas": []any{m{"name": x}}}} { // the node as it is, nonsense, half a node
		items = append(items, m{"metadata": m{"name": "g1"}, "status": m{"agent": "v1" + x, "plugin": m{"sha256": x},
			"rdmaMode": x, "inventory": i, "conditions": conditions, "fabrics": []any{m{"name": "ib",
				"devices": []any{m{"id": x, "hca": x, "pods": []any{x}}}}}}})
	}
	items = append(items, m{"metadata": m{"name": "x" + x}, "spec": x})
	w.file(t, "fabricnodes.json", list(items...))
	w.file(t, "fabricnode.json", list(items[0]))
	w.file(t, "fabrics.json", list(m{
		"metadata": m{"name": "ib", "finalizers": []any{x}, "deletionTimestamp": "2026-01-01T00:00:00Z"},
		"status":   m{"conditions": conditions, "published": []any{"default", x}}},
		m{"metadata": m{"name": "x" + x}, "spec": x}, m{"metadata": m{"name": "y" + x}}))
	w.fabric = w.file(t, "fabric-"+marker+".json", w.json(t, m{"apiVersion": "fabric.dev/v1alpha1", "kind": "Fabric",
		"metadata": m{"name": "x" + x}}))
	w.operator = w.file(t, "operator-"+marker+".json", w.json(t, m{"apiVersion": "v1", "kind": "List", "items": []any{
		m{"apiVersion": "mellanox.com/v1alpha1", "kind": "HostDeviceNetwork", "metadata": m{"name": "hostdev"},
			"spec": m{"networkNamespace": "ml", "resourceName": "hostdev", "new": x}},
		m{"apiVersion": "mellanox.com/v1alpha1", "kind": "MacvlanNetwork", "metadata": m{"name": "b"},
			"spec": m{"networkNamespace": "ml", "master": "ens1" + x, "ipam": `{"type":"` + x}},
	}}))
	w.file(t, "deployments.json", list(m{"metadata": m{"name": "c" + x}, "spec": m{"replicas": 2}}))
	w.file(t, "leases.json", list(m{"metadata": m{"name": "fabric-controller"}, "spec": m{"holderIdentity": x,
		"renewTime": "2026-01-01T00:00:00Z"}}))
	w.jobs(t, meta)
	w.before(t)
	w.file(t, "pools.json", list(m{"metadata": meta, "spec": m{"range": "10.0.0.0/30" + x, "allocations": m{x: m{}}}},
		m{"metadata": meta, "spec": m{"range": "10.0.0.0/30", "allocations": m{"1": m{}, "2": m{}, "3": m{}}}}))
	w.file(t, "cidrs.json", list(m{"metadata": m{"name": "k" + x}, "spec": m{"cidrs": []any{x, "10.96.0.0/16"}}}))
	w.file(t, "addresses.json", w.json(t, []any{m{"ifname": "net1" + x, "link_type": "infiniband",
		"address":   "00:00:00:66:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fa:00:10",
		"addr_info": []any{m{"local": "10.0.0.1", "prefixlen": 24, "scope": "global"}}}}))
	if err := os.Mkdir(filepath.Join(w.dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.file(t, "bin/api", apiScript)
	w.file(t, "bin/pod", podScript)
	server := apiserver.New(w.dir)
	t.Cleanup(server.Close)
	kubeconfig, err := server.Kubeconfig("default")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
}

// before is what preflight finds, beside what others ask for, too: pods that use the HCAs of the host, and operators.
func (w *hostileWorld) before(t *testing.T) {
	t.Helper()
	x := w.text
	type m = map[string]any
	owner := []any{m{"kind": "Job" + x, "name": "o" + x, "controller": true}}
	pod := func(name string, spec m) m {
		return m{"metadata": m{"name": name + x, "namespace": "ml" + x, "ownerReferences": owner}, "spec": spec}
	}
	w.file(t, "allpods.json", w.json(t, m{"items": []any{
		pod("a", m{"containers": []any{m{"resources": m{"limits": m{"rdma/" + x: "1"}}}}}),
		m{"metadata": m{"name": "b" + x}, "spec": m{"volumes": []any{m{"name": "d", "hostPath": m{
			"path": "/dev/infiniband/" + x}}}}},
		m{"metadata": m{"name": "c" + x}, "spec": m{"hostNetwork": true, "containers": []any{m{"env": []any{
			m{"name": "NCCL_IB_" + x}}}}}},
		m{"metadata": m{"name": "d" + x}, "spec": m{"hostNetwork": true}},
		m{"metadata": m{"name": "e"}, "spec": x},
	}}))
	w.file(t, "version.json", w.json(t, m{"gitVersion": "v1.34.2" + x}))
	w.file(t, "operators.json", w.json(t, m{"items": []any{
		m{"metadata": m{"name": "x" + x, "namespace": "n" + x}, "status": m{"system": m{"rdmaMode": x}},
			"spec": m{"rdmaMode": x, "ofedDriver": m{"image": x, "version": x}, "kernelArguments": []any{
				"ib_core.netns_mode=0", x}, "rdmaSharedDevicePlugin": m{"config": w.json(t, m{"configList": []any{
				m{"resourceName": "r" + x, "resourcePrefix": "nvidia.com"}}})}}},
		m{"metadata": x}}}))
}

// jobs are a job before it is applied, and its pods, their logs and what they print of their devices.
func (w *hostileWorld) jobs(t *testing.T, meta map[string]any) {
	t.Helper()
	x := w.text
	type m = map[string]any
	spec := m{"nodeName": "n" + x, "nodeSelector": m{x: x}, "volumes": []any{m{"name": x, "emptyDir": m{"medium": x,
		"sizeLimit": x}}}, "resourceClaims": []any{m{"name": x, "resourceClaimTemplateName": x}},
		"containers": []any{m{"name": "c" + x, "command": []any{"mpirun", "-x", "UCX_NET_DEVICES=mlx5_0" + x, x},
			"args": []any{"export NCCL_NET=Socket NCCL_IB_DISABLE=1" + x},
			"env": []any{m{"name": "NCCL_IB_HCA", "value": "=mlx5_0" + x}, m{"name": x, "value": x},
				m{"name": "GLOO_SOCKET_IFNAME", "value": x}},
			"volumeMounts": []any{m{"name": x, "mountPath": "/dev/shm"}},
			"resources": m{"limits": m{"nvidia.com/gpu" + x: "8", "nvidia.com/ib" + x: "1" + x, "memory": "1Gi" + x},
				"requests": m{"nvidia.com/ib" + x: 2}}}}}
	w.job = w.file(t, "job.json", w.json(t, m{"kind": "PyTorchJob", "apiVersion": "kubeflow.org/v1", "metadata": meta,
		"spec": m{"pytorchReplicaSpecs": m{"Worker" + x: m{"template": m{"metadata": meta, "spec": spec}},
			"Master" + x: m{"template": m{"metadata": m{"labels": m{"fabric.dev/rails": x}}, "spec": spec}}}}}))
	w.file(t, "pods.json", w.json(t, m{"items": []any{
		m{"metadata": meta, "spec": spec, "status": m{"phase": "Running"}},
		m{"metadata": m{"name": "y" + x}, "spec": spec, "status": m{"phase": "Evil" + x}}}}))
	say := func(text string) string { return "train-0:1:2 [0] NCCL INFO " + text + x + "\n" }
	w.file(t, "nccl.log", say("NET/IB : Using [0]mlx5_0"+x+":1/IB")+say("NET/IB : Using [0]mlx5_0:1/IB ")+
		say("NET/Socket : Using [0]eth0:1.2.3.4 [1]"+x+":")+say("NET/IB : No device found.")+say("Using network ")+
		say("NCCL_IB_DISABLE set by environment to ")+say("NCCL version 2.21"+x)+
		say("Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0")+
		"train-0:1:2 [0] x.cc:1 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory "+x+"\n")
	w.file(t, "look", "T 1.0\nU mlx5_0"+x+"\nP mlx5_0"+x+" 1 ACTIVE"+x+" InfiniBand fe80:"+x+" net1"+x+"\nP mlx5_1 1 "+
		"DOWN"+x+
		"\nC mlx5_0 1 1"+x+" 2\nN net1"+x+" "+x+"\nM 2 1"+x+" 2\nK shmem "+x+"\nK oom_kill 1\nV 5"+x+"\nT 2.0\n")
}
