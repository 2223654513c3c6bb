package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// point is a moment of a pod's way at which the fault happens.
type point struct {
	name string
	gate bool // all pods are prepared, and wait for each other before their first network
	// arm lets the fault happen when one of so many pods is there, and what it returns says whether it has. Without it
	// the fault happens at once: before the pods are created, at the gate, or when they are deleted.
	arm func(d *draDriver, f fault, pods int) (hit func() bool)
}

const (
	pointNone     = "none, all at once"
	pointAlone    = "none, one at a time"
	pointBefore   = "before prepare"
	pointPrepared = "prepared"
	pointEnd      = "pod deleted"
)

// subject is a driver that gives pods their rails, and what its users write.
type subject struct {
	name    string
	driver  string // of its ResourceSlices; empty for a device plugin
	command func(n *draStage) []string
	objects string            // for all pods
	pod     map[string]string // their annotations
	limits  map[corev1.ResourceName]resource.Quantity
	points  []point
	healthy func() error // beside its slices
	begin   func(b *testing.B, n *draStage)
	started func(b *testing.B)
	// how long rails may take to come home
	patience time.Duration
}

// BenchmarkDRA gives pods eight rails each by Dynamic Resource Allocation, while their driver is stopped, killed or
// slowed, and counts pods that run without their rails, and rails that the node lacks afterwards.
//
// FABRIC_DRA_PODS pods in each cell, FABRIC_DRA_BATCH of them at once; FABRIC_DRA_CELLS is a regular expression of
// DRIVER/POINT/FAULT. A fault comes when the first pod of a batch reaches the point.
func BenchmarkDRA(b *testing.B) {
	pods, batch := number(b, "FABRIC_DRA_PODS", 50), number(b, "FABRIC_DRA_BATCH", 10)
	want := regexp.MustCompile(os.Getenv("FABRIC_DRA_CELLS"))
	for _, s := range []*subject{dranet(), ours(), oursByPlugin()} {
		b.Run(s.name, func(b *testing.B) {
			var cells []cell
			for _, p := range s.points {
				for _, f := range faults {
					name := s.name + "/" + p.name + "/" + f.name
					if strings.HasPrefix(p.name, "none") == (f.name == faultNone) && want.MatchString(name) {
						cells = append(cells, cell{point: p, fault: f})
					}
				}
			}
			if len(cells) == 0 {
				return
			}
			n := newDRAStage(b, s, batch)
			for i := range cells {
				n.run(&cells[i], pods)
				b.Log(cells[i].row(s.name))
			}
			b.Log("\n" + table(s.name, cells))
			b.Log(prepareTimes(b))
		})
	}
}

func number(b *testing.B, name string, otherwise int) int {
	b.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	must(b, err)
	return n
}

// cell is what came of one fault at one point.
type cell struct {
	point point
	fault fault

	pods    int
	ran     int // with or without
	without int // ran without all their rails when their container started
	late    int // of these, got them later
	never   int // did not run within the limit
	hit     int // batches in which the point was reached
	batches int

	lost    []string // rails that are not on the node when all pods are gone
	changed int      // rails that came back without their address, or down
	seconds []float64
}

func (c *cell) row(subject string) string {
	slices.Sort(c.seconds)
	at := func(percent int) string {
		if len(c.seconds) == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f", c.seconds[min(len(c.seconds)-1, len(c.seconds)*percent/100)])
	}
	return fmt.Sprintf("| %s | %s | %s | %d | %d | %d | %d | %d | %d | %d | %s | %s | %d/%d |", subject,
		c.point.name, c.fault.name, c.pods, c.ran, c.without, c.late, c.never, len(c.lost), c.changed, at(50), at(99),
		c.hit, c.batches)
}

func table(subject string, cells []cell) string {
	var out strings.Builder
	out.WriteString("| driver | point | fault | pods | ran | without | of these late | not run | rails lost | " +
		"changed | p50 s | p99 s | hit |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range cells {
		out.WriteString(cells[i].row(subject) + "\n")
	}
	return out.String()
}

// draStage is a node with rails and a driver.
type draStage struct {
	b     *testing.B
	s     *subject
	d     *draDriver
	batch int
	round int
}

const railsOfPod = 8

func newDRAStage(b *testing.B, s *subject, batch int) *draStage {
	b.Helper()
	n := &draStage{b: b, s: s, batch: batch}
	n.rails()
	b.Cleanup(n.noRails)
	if s.begin != nil {
		s.begin(b, n)
	}
	if s.objects != "" {
		must(b, current.apply(s.objects))
		b.Cleanup(func() { _, _ = output("kubectl", "delete", "resourceclaimtemplate", "rails") })
	}
	const multus = "/opt/cni/bin/multus"
	must(b, os.Rename(multus, multus+".real"))
	must(b, os.WriteFile(multus, []byte(gated), 0o755))
	b.Cleanup(func() { must(b, os.Rename(multus+".real", multus)) })
	n.d = startDriver(n)
	if s.started != nil {
		s.started(b)
	}
	n.settled()
	return n
}

// run is a cell: batches of pods, one after the other.
func (n *draStage) run(c *cell, pods int) {
	for c.pods < pods {
		n.settled()
		n.round++
		batch := n.batch
		if c.point.name == pointAlone {
			batch = 1
		}
		n.one(c, min(batch, pods-c.pods))
	}
}

// one is a batch. The fault ends by itself, or with the batch.
func (n *draStage) one(c *cell, count int) {
	n.b.Helper()
	c.batches++
	c.pods += count
	p := c.point
	hit := func() bool { return true }
	act := func() {
		if p.arm != nil {
			hit = p.arm(n.d, c.fault, count)
		} else {
			n.d.strike(c.fault)
		}
	}
	if !p.gate && p.name != pointEnd {
		act()
	}
	open := closeGate(n.b, p.gate)
	pods := n.create(count)
	if p.gate {
		n.atGate(count)
		act()
	}
	open()
	n.await(pods)
	if c.fault.name != faultNone {
		time.Sleep(2 * time.Second) // for rails that come late
	}
	c.count(pods)
	n.d.recovered()
	if p.name == pointEnd && p.arm != nil {
		hit = p.arm(n.d, c.fault, count)
	} else if p.name == pointEnd {
		n.d.strike(c.fault)
	}
	n.remove(pods)
	if hit() {
		c.hit++
	}
	n.d.disarm()
	lost, changed := n.inventory()
	c.lost = append(c.lost, lost...)
	c.changed += changed
	n.rails()
}

// count adds what became of pods.
func (c *cell) count(pods []*draPod) {
	for _, p := range pods {
		p.look()
		if len(p.seen) == 0 {
			c.never++
			continue
		}
		c.ran++
		ready := p.ready()
		if p.seen[0].rails < railsOfPod {
			c.without++
			if ready > 0 {
				c.late++
			}
		}
		if ready > 0 {
			c.seconds = append(c.seconds, ready)
		}
	}
}

// gated is Multus, which is called when a pod is prepared, behind a gate.
const gated = `#!/bin/sh
if [ "$CNI_COMMAND" = ADD ] && [ -e /run/gate/closed ]; then
  in=$(cat)
  touch "/run/gate/$CNI_CONTAINERID"
  while [ -e /run/gate/closed ]; do sleep 0.05; done
  printf %s "$in" | "$0.real"
  exit
fi
exec "$0.real"
`

func closeGate(b *testing.B, want bool) (open func()) {
	b.Helper()
	if !want {
		return func() {}
	}
	must(b, os.RemoveAll("/run/gate"))
	must(b, os.Mkdir("/run/gate", 0o755))
	must(b, os.WriteFile("/run/gate/closed", nil, 0o600))
	return func() { must(b, os.Remove("/run/gate/closed")) }
}

// atGate waits until all pods are there.
func (n *draStage) atGate(count int) {
	n.b.Helper()
	if err := poll("all pods are prepared", time.Minute, soon, func() error {
		list, err := os.ReadDir("/run/gate")
		if err == nil && len(list) < count+1 {
			err = textError(fmt.Sprintf("%d of %d", len(list)-1, count))
		}
		return err
	}); err != nil {
		n.b.Log(err)
	}
}

// offered is the number of rails that pods can ask for.
func (n *draStage) offered() (count int, err error) {
	for name := range n.s.limits {
		out, err := output("kubectl", "get", "node", "rig", "-o", "jsonpath={.status.allocatable."+
			strings.ReplaceAll(string(name), ".", `\.`)+"}")
		if err != nil || out == "" {
			return 0, err
		}
		return strconv.Atoi(out)
	}
	slices, err := clientset(n.b).ResourceV1().ResourceSlices().List(context.Background(), listAll)
	if err != nil {
		return 0, err
	}
	for i := range slices.Items {
		if s := &slices.Items[i].Spec; s.Driver == n.s.driver {
			count += len(s.Devices)
		}
	}
	return count, nil
}

// prepareTimes is how long kubelet and the agent, since each started, have taken to prepare pods' claims.
func prepareTimes(b *testing.B) string {
	b.Helper()
	kubelet, err := output("kubectl", "get", "--raw", "/api/v1/nodes/rig/proxy/metrics")
	must(b, err)
	var agent []byte
	if res, err := http.Get("http://" + agentMetrics + "/metrics"); err == nil { // dranet's are of no use here
		agent, err = io.ReadAll(res.Body)
		must(b, errors.Join(err, res.Body.Close()))
	}
	out := "prepare, in seconds:\n"
	for line := range strings.Lines(kubelet + string(agent)) {
		if strings.HasPrefix(line, "dra_operations_duration_seconds_") && !strings.Contains(line, "bucket") ||
			strings.HasPrefix(line, "fabric_prepare_duration_seconds_") {
			out += line
		}
	}
	return out
}

// settled waits until the driver offers all rails. One that does not is started again, as its owner would.
func (n *draStage) settled() {
	n.b.Helper()
	offered := func() error {
		count, err := n.offered()
		if err != nil {
			return err
		}
		if count != n.batch*railsOfPod {
			return textError(fmt.Sprintf("%s offers %d devices, not %d", n.s.name, count, n.batch*railsOfPod))
		}
		if n.s.healthy != nil {
			return n.s.healthy()
		}
		return nil
	}
	for range 3 {
		err := poll("the driver offers all rails", time.Minute, soon, offered)
		if err == nil {
			return
		}
		n.b.Logf("started again: %v", err)
		n.d.kill()
	}
	n.b.Fatalf("%s: %s", n.s.name, n.d.tail())
}
