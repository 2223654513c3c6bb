package doctor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// planOf reads a file with manifests.
func planOf(t *testing.T, text []byte) *Plan {
	t.Helper()
	p := &Plan{}
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		raw, err := yaml.YAMLToJSON(doc)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Kind  string
			Items []json.RawMessage
		}
		if err := json.Unmarshal(raw, &list); err != nil || list.Kind != "List" {
			list.Items = []json.RawMessage{raw}
		}
		for _, o := range list.Items {
			if err := p.Add(o, "default"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.Ready("default"); err != nil {
		t.Fatal(err)
	}
	return p
}

// Each kind of workload, as people write it: what its pods ask for and what is wrong with them. A file NAME.yaml has
// its report in NAME.txt.
func TestPlans(t *testing.T) {
	files, err := filepath.Glob("testdata/jobs/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rows, list := CheckPlan(planOf(t, b), &Site{})
		var got strings.Builder
		for _, r := range rows {
			fmt.Fprintf(&got, "%s | %s | pods %d | GPUs %d | %s | %s\n", r.Workload, r.Role, r.Pods, r.GPUs,
				strings.Join(r.Networks, ","), strings.Join(r.Devices, ", "))
		}
		for _, f := range list {
			fmt.Fprintf(&got, "%-4s  %s  %s\n", f.Status, f.ID, f.Evidence)
		}
		golden := strings.TrimSuffix(file, ".yaml") + ".txt"
		if *update {
			if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got.String()); d != "" {
			t.Errorf("%s (-is +should be); go test -run Plans -update writes it:\n%s", golden, d)
		}
	}
}

// jobOf is a job of workers with these GPUs and networks.
func jobOf(t *testing.T, workers, gpus int, networks, more string) *Plan {
	t.Helper()
	return planOf(t, fmt.Appendf(nil, `
kind: PyTorchJob
apiVersion: kubeflow.org/v1
metadata: {name: train}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: %d
      template:
        metadata: {annotations: {k8s.v1.cni.cncf.io/networks: "%s"}}
        spec:
          %s
          containers:
          - name: pytorch
            securityContext: {privileged: true}
            env: [{name: NCCL_IB_HCA, value: "mlx5"}]
            resources: {limits: {nvidia.com/gpu: %d, nvidia.com/ib: %d}}
`, workers, networks, more, gpus, strings.Count(networks, ",")+1))
}

// What is known of the nodes is held against the job: the part of the rails that goes with its GPUs, a bond that a name
// catches, and room.
func TestPlanOnNodes(t *testing.T) {
	h20 := host(t, machines.H20()).Node
	rooms := []Room{
		{Name: "a", Labels: map[string]string{"pool": "h20"}, Allocatable: map[string]int{"nvidia.com/gpu": 8,
			"nvidia.com/ib": 4}},
		{Name: "b", Labels: map[string]string{"pool": "h20"}, Allocatable: map[string]int{"nvidia.com/gpu": 8,
			"nvidia.com/ib": 4}, Used: map[string]int{"nvidia.com/gpu": 4, "nvidia.com/ib": 3}},
		{Name: "c", Allocatable: map[string]int{"nvidia.com/gpu": 8, "nvidia.com/ib": 4}, Cordoned: true},
		{Name: "cpu"},
	}
	for _, c := range []struct {
		name, networks, more string
		workers, gpus        int
		site                 *Site
		want                 string
	}{
		{"all rails", "ib,ib,ib,ib", "", 2, 8, &Site{Nodes: []*node.Node{h20}},
			"OK job-rails 8 GPUs and 4 networks"},
		{"half of them with half of the GPUs", "ib,ib", "", 2, 4, &Site{Nodes: []*node.Node{h20}},
			"OK job-rails 4 GPUs and 2 networks"},
		{"one rail for eight GPUs", "ib", "", 2, 8, &Site{Nodes: []*node.Node{h20}},
			"WARN job-rails 8 GPUs and 1 network: h20 has 4 rails of ib-400g for 8 GPUs, the part of these GPUs is 4"},
		{"more rails than any node has", "ib,ib,ib,ib,ib,ib,ib,ib", "", 2, 8, &Site{Nodes: []*node.Node{h20}},
			"FAIL job-rails 8 GPUs and 8 networks: no node that is known has more than 4 rails"},
		{"a name that catches the bond", "ib,ib,ib,ib", "", 2, 8, &Site{Nodes: []*node.Node{h20}},
			"WARN pod-env-hca container pytorch: NCCL_IB_HCA=mlx5: it takes a bond: h20 mlx5_bond_0"},
		{"room", "ib,ib", "", 2, 4, &Site{Rooms: rooms},
			"OK job-fit PyTorchJob default/train: 2 pods with devices, and there is room for them"},
		{"no room now", "ib,ib", "", 3, 4, &Site{Rooms: rooms}, "WARN job-fit PyTorchJob default/train: 3 pods with " +
			"devices, and there is room for 2 now: Worker 1 of 3 pods find no node with nvidia.com/gpu: 4, " +
			"nvidia.com/ib: 2"},
		{"no room ever", "ib,ib,ib,ib", "", 3, 8, &Site{Rooms: rooms}, "FAIL job-fit PyTorchJob default/train: 3 " +
			"pods with devices, and the nodes have room for 2, even if all were free: Worker 1 of 3 pods find no " +
			"node with nvidia.com/gpu: 8, nvidia.com/ib: 4"},
		{"no such node", "ib", "nodeSelector: {pool: h100}", 1, 8, &Site{Rooms: rooms},
			"FAIL job-fit PyTorchJob default/train: 1 pod with devices, and the nodes have room for 0, even if all " +
				"were free: Worker 1 of 1 pod find no node with nvidia.com/gpu: 8, nvidia.com/ib: 1 among those of " +
				"its nodeSelector"},
	} {
		_, list := CheckPlan(jobOf(t, c.workers, c.gpus, c.networks, c.more), c.site)
		got := ""
		for _, f := range list {
			got += fmt.Sprintf("%s %s %s\n", f.Status, f.ID, strings.TrimPrefix(f.Evidence,
				"PyTorchJob default/train, Worker: "))
		}
		if !strings.Contains(got, c.want+"\n") {
			t.Errorf("%s: no %q in\n%s", c.name, c.want, got)
		}
	}
}

// What is no manifest, and what is beyond all bounds, is an error that gives the reason.
func TestWrongPlans(t *testing.T) {
	for _, c := range []struct{ object, want string }{
		{`{"kind":"Service","apiVersion":"v1"}`, "nothing in it makes pods: want CronJob, DaemonSet, Deployment"},
		{`{"kind":"Job","apiVersion":"unknown.io/v1"}`, "nothing in it makes pods"},
		{`{"a":1}`, "an object has no kind: want manifests of Kubernetes"},
		{`[1]`, "an object: json"},
		{`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"d"}}`,
			"Deployment default/d: it has no template of pods"},
		{`{"kind":"Deployment","apiVersion":"apps/v1","spec":{"replicas":-1,"template":{}}}`,
			"-1 pods: want 0 to 100000"},
		{`{"kind":"Deployment","apiVersion":"apps/v1","spec":{"replicas":1000000000,"template":{}}}`,
			"1000000000 pods: want"},
		{`{"kind":"JobSet","apiVersion":"jobset.x-k8s.io/v1","spec":{"replicatedJobs":[
			{"replicas":99999999999,"template":{"spec":{"parallelism":99999999999,"template":{}}}}]}}`,
			"spec.replicatedJobs[0]: 99999999999 times"},
		{`{"kind":"LeaderWorkerSet","apiVersion":"leaderworkerset.x-k8s.io/v1","spec":{"leaderWorkerTemplate":
			{"size":0,"workerTemplate":{}}}}`, "1 groups of 0 pods: want"},
		{`{"kind":"MPIJob","apiVersion":"kubeflow.org/v1","spec":{"mpiReplicaSpecs":{"Worker":null}}}`,
			"Worker: it has no template"},
		{`{"kind":"Pod","apiVersion":"v1","spec":{"containers":"x"}}`, "Pod default/: json: cannot unmarshal string"},
	} {
		p := &Plan{}
		err := p.Add(json.RawMessage(c.object), "default")
		if err == nil {
			err = p.Ready("default")
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.object, err, c.want)
		}
	}
}
