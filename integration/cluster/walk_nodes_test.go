package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/integration/lab/guest"
)

// walked runs the commands of docs/kubernetes.md word by word: from nodes in shared mode to a job with rails, and back.
// What the page shows is compared with what is printed; what it does not show is asserted after its steps.
func walked(t *testing.T, nodes ...*LabNode) {
	files, host := map[*LabNode]string{}, map[*LabNode]guest.State{}
	for _, n := range nodes {
		t.Cleanup(n.FollowReboots(func(err error) { t.Error(err) }))
		script := ". /out/env; PATH=$CACHE/containerd:$PATH\n" + tagged()
		if err := n.WhenImported(script); err != nil {
			t.Fatal(err)
		}
		on(t, n, script)
		files[n] = on(t, n, installed)
	}
	trainingOperator(t)
	objects := objectsOf(t)
	w := walk(t, "docs/kubernetes.md", "helm", map[string]string{
		"gpu-1": nodes[0].Name, "gpu-2": nodes[1].Name, "v0.3.0": "e2e",
	})
	w.after["3. Set exclusive mode"] = func() {
		for _, n := range nodes {
			host[n] = settled(t, n)
			k(t, "patch", "node", n.Name, "--subresource=status", "--type=merge", "-p",
				`{"status":{"capacity":{"nvidia.com/gpu":"8"},"allocatable":{"nvidia.com/gpu":"8"}}}`)
		}
	}
	w.after["5. Run a job"] = func() {
		var addresses []string
		for _, pod := range []string{"train-worker-0", "train-worker-1"} {
			node := k(t, "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
			i := slices.IndexFunc(nodes, func(n *LabNode) bool { return n.Name == node })
			addresses = append(addresses, hasRails(t, nodes[i], pod)...)
			// The routes of the rails take nothing that goes to Services.
			out := k(t, "exec", pod, "--", "sh", "-c",
				"ip route get 10.96.0.1; nc -w 20 10.96.0.1 443 </dev/null && echo open")
			if !strings.Contains(out, "dev eth0") || !strings.HasSuffix(out, "open\n") {
				t.Errorf("%s and the Service kubernetes: %s", pod, out)
			}
		}
		slices.Sort(addresses)
		if len(addresses) != 8 || len(slices.Compact(addresses)) != 8 {
			t.Errorf("addresses: %v", addresses)
		}
	}
	w.record(t)
	w.run(t)
	for _, n := range nodes {
		if diff := cmp.Diff(strings.Fields(files[n]), strings.Fields(on(t, n, installed))); diff != "" {
			t.Errorf("%s (-before +after):\n%s", n.Name, diff)
		}
		eventually(t, n.Name+" is what it was (-before +after)", func() error {
			now, err := state(n)
			if err != nil {
				return err
			}
			now.Files = nil // of the agent, which was there before: installed has them
			before := host[n]
			before.Files = nil
			if diff := guest.Diff(before, now); diff != "" {
				return textError(diff)
			}
			return nil
		})
	}
	sameObjects(t, objects)
}

// trainingOperator stands for Kubeflow's: it has the kind PyTorchJob, and makes the workers of a job as the operator
// does.
func trainingOperator(t *testing.T) {
	t.Helper()
	apply(t, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pytorchjobs.kubeflow.org}
spec:
  group: kubeflow.org
  scope: Namespaced
  names: {kind: PyTorchJob, plural: pytorchjobs, singular: pytorchjob}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`)
	k(t, "wait", "--for=condition=Established", "crd/pytorchjobs.kubeflow.org")
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for made := map[string]bool{}; ; {
			select {
			case <-end:
				return
			case <-time.After(3 * time.Second):
			}
			out, err := output("kubectl", "get", "pytorchjobs", "-o", "json")
			if err != nil {
				continue // the API server is busy
			}
			if err := makeWorkers(out, made); err != nil {
				t.Errorf("the stand-in for the training operator: %v", err)
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(end)
		<-ended
		removed(t, "crd/pytorchjobs.kubeflow.org")
	})
}

// makeWorkers creates the pods of the jobs of a list that have none yet.
func makeWorkers(out string, made map[string]bool) error {
	var jobs struct {
		Items []struct {
			Metadata struct{ Name, UID string }
			Spec     struct {
				PytorchReplicaSpecs map[string]struct {
					Replicas int
					Template struct {
						Metadata struct{ Annotations map[string]string }
						Spec     json.RawMessage
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &jobs); err != nil {
		return err
	}
	for _, j := range jobs.Items {
		worker := j.Spec.PytorchReplicaSpecs["Worker"]
		for i := range worker.Replicas {
			name := fmt.Sprintf("%s-worker-%d", j.Metadata.Name, i)
			if made[name] {
				continue
			}
			pod, err := json.Marshal(map[string]any{
				"apiVersion": "v1", "kind": "Pod", "spec": worker.Template.Spec,
				"metadata": map[string]any{
					"name": name, "annotations": worker.Template.Metadata.Annotations,
					"labels": map[string]string{
						"training.kubeflow.org/job-name":      j.Metadata.Name,
						"training.kubeflow.org/replica-type":  "worker",
						"training.kubeflow.org/replica-index": fmt.Sprint(i),
					},
					"ownerReferences": []map[string]any{{
						"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": j.Metadata.Name,
						"uid": j.Metadata.UID, "controller": true,
					}},
				},
			})
			if err != nil {
				return err
			}
			if out, err := outputWith(string(pod), "kubectl", "create", "-f", "-"); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			made[name] = true
		}
	}
	return nil
}
