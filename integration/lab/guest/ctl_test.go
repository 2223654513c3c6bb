//go:build labguest

package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ctl runs fabricctl and returns what it prints. 3 is its status for "done, and something is wrong with what was looked
// at".
func ctl(t *testing.T, status int, args ...string) string {
	t.Helper()
	out, got := ctlStatus(t, args...)
	if got != status {
		t.Errorf("fabricctl %s: exit status %d, want %d: %s", strings.Join(args, " "), got, status, out)
	}
	return out
}

// ctlStatus runs fabricctl and returns what it prints, and its exit status.
func ctlStatus(t *testing.T, args ...string) (stdout string, status int) {
	t.Helper()
	cmd := exec.Command(filepath.Join(BinDir(), "fabricctl"), args...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err != nil || strings.Contains(stderr.String(), "goroutine ") {
		t.Logf("fabricctl %s: %s", strings.Join(args, " "), stderr.String())
	}
	if strings.Contains(stderr.String(), "goroutine ") {
		t.Errorf("fabricctl %s has crashed", strings.Join(args, " "))
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// What the node S1 looks like to people, with one rail in a pod.
func TestCtlLooks(t *testing.T) {
	n := S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	a := interfaceOf(pod, "net1", network(config{"device": "ibs108", "ipam": static("10.0.0.1/24")}))
	a.add(t)
	defer a.del(t)

	table := ctl(t, 0, "discover")
	for _, r := range n.Rails {
		if !containsAll(table, r.HCA, r.Netdev) {
			t.Errorf("%s, %s are not in:\n%s", r.HCA, r.Netdev, table)
		}
	}
	var picture map[string]any
	if err := json.Unmarshal([]byte(ctl(t, 0, "discover", "-o", "json")), &picture); err != nil || len(picture) == 0 {
		t.Errorf("discover -o json: %v, %v", picture, err)
	}
	if svg := ctl(
		t,
		0,
		"discover",
		"-o",
		"svg",
	); !strings.HasPrefix(svg, "<svg") ||
		!containsAll(svg, "mlx5_7", "ibs114") {
		t.Errorf("discover -o svg: %.200s", svg)
	}
	if list := ctl(t, 0, "list"); !containsAll(list, "pod", "net1", "fakeib.0", "attached") {
		t.Errorf("list: %s", list)
	}
}

// plan prints what ADD then does, and changes nothing.
func TestCtlPlan(t *testing.T) {
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	file := filepath.Join(t.TempDir(), "conf")
	conf, err := json.Marshal(network(config{"device": "ibs110", "rdmaName": "rail"}))
	if err != nil {
		t.Fatal(err)
	}
	shell(t, "cat >"+file+" <<'CONF'\n"+string(conf)+"\nCONF")
	plan := ctl(t, 0, "plan", "--netns", pod.Path, "-f", file)
	if !containsAll(
		plan,
		"rdma dev set mlx5_3 name rail; rdma dev set rail netns $POD",
		"netns $POD name net1 up",
		"altname ibs110",
		"netns 1",
	) {
		t.Errorf("plan: %s", plan)
	}
	// A port that is down: what ADD would say.
	shell(t, "sed -i s/ibs110/ibs116/ "+file)
	if refused := ctl(t, 3, "plan", "--netns", pod.Path, "-f", file); !containsAll(refused, "refused", "102", "Down") {
		t.Errorf("plan: %s", refused)
	}
}

// A pod that died without DEL: list tells, repair brings its rail home, and never touches one that lives.
func TestCtlRepair(t *testing.T) {
	S1(t)
	before := Unchanged(t)
	dead, alive := NewPod(t, "dead"), NewPod(t, "alive")
	interfaceOf(dead, "net1", network(config{"device": "ibs108", "ipam": static("10.0.0.1/24")})).add(t)
	a := interfaceOf(alive, "net1", network(config{"device": "ibs112"}))
	a.add(t)
	dead.Delete(t)
	if list := ctl(t, 0, "list"); !containsAll(list, "dead   net1", "platform/fakeib.0", "alive", "attached") {
		t.Errorf("list: %s", list)
	}
	if out := ctl(t, 0, "repair", "--dry-run"); !containsAll(out, "dead") || strings.Contains(out, "alive") {
		t.Errorf("repair --dry-run: %s", out)
	}
	ctl(t, 0, "repair", "--plugin", filepath.Join(BinDir(), "fabric"))
	a.call("CHECK").Must(t)
	if list := ctl(t, 0, "list"); strings.Contains(list, "dead") || !containsAll(list, "alive") {
		t.Errorf("list: %s", list)
	}
	a.del(t)
	Same(t, before)
}

// doctor looks at the host: each finding has an id, and the ports that are down are named.
func TestCtlDoctor(t *testing.T) {
	S1(t)
	Unchanged(t)
	if out := ctl(
		t,
		0,
		"doctor",
		"host",
		"--all",
	); !containsAll(
		out,
		"OK ",
		"WARN  host-port-state",
		"mlx5_5:1",
		"mlx5_6:1",
		"cure:",
	) {
		t.Errorf("doctor host: %s", out)
	}
	if out := ctl(t, 3, "doctor", "explain", "Port number 1 state is Down"); len(out) == 0 {
		t.Error("doctor explain says nothing")
	}
}

// In mode rdma plan looks at what the earlier plugin has put into the pod, and prints what ADD then does.
func TestCtlPlanChained(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	first := interfaceOf(pod, "net1", network(config{"device": "ib1", "ipam": static("10.0.0.5/24")}))
	first.conf["type"] = "host-device"
	call := first.call("ADD")
	call.Plugin = "host-device"
	first.prev = json.RawMessage(call.Must(t).Stdout)
	second := interfaceOf(pod, "net1", network(config{"mode": "rdma", "prevResult": first.prev}))
	conf, err := json.Marshal(second.conf)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "conf")
	shell(t, "cat >"+file+" <<'CONF'\n"+string(conf)+"\nCONF")
	plan := ctl(t, 0, "plan", "--netns", pod.Path, "-f", file)
	if !containsAll(
		plan,
		"rdma dev set mlx5_1 netns $POD",
		"ip addr add 10.0.0.5/24",
		"# DEL",
		"rdma dev set mlx5_1 netns 1",
	) {
		t.Errorf("plan: %s", plan)
	}
	pod.hasHCA(t)
	second.add(t)
	pod.has(t, "net1", "10.0.0.5/24")
	pod.hasHCA(t, "mlx5_1")
	unchain(t, first, second)
}
