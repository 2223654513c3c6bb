package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// controllers are two processes of the controller. One that ends is started again, as kubelet does.
type controllers struct {
	rig  *rig
	file string // kubeconfig
	bin  string

	mu      sync.Mutex
	running map[int]*process // by slot
	stopped bool
	restart int
	peak    int
}

type process struct {
	cmd     *exec.Cmd
	log     string
	metrics string
}

func startControllers(r *rig, bin string, port int) (*controllers, error) {
	file, err := r.kubeconfig("fabric-controller")
	if err != nil {
		return nil, err
	}
	c := &controllers{rig: r, file: file, bin: bin, running: map[int]*process{}}
	for slot := range 2 {
		if err := c.start(slot, port+slot); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *controllers) start(slot, port int) error {
	log, err := os.CreateTemp(c.rig.dir, "controller-*.log")
	if err != nil {
		return err
	}
	defer log.Close()
	p := &process{metrics: fmt.Sprintf("127.0.0.1:%d", port), log: log.Name()}
	p.cmd = exec.Command(c.bin, "controller", // it ends with stop
		"--kubeconfig", c.file, "--namespace", namespace, "--metrics-address", p.metrics, "--health-address", "0")
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	c.mu.Lock()
	c.running[slot] = p
	c.mu.Unlock()
	go func() {
		_ = p.cmd.Wait()
		c.mu.Lock()
		stopped := c.stopped
		c.restart++
		c.mu.Unlock()
		if !stopped {
			pause(context.Background(), time.Second)
			_ = c.start(slot, port)
		}
	}()
	return nil
}

func (c *controllers) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	for _, p := range c.running {
		_ = p.cmd.Process.Kill()
	}
}

// leader is the process that has the lease.
func (c *controllers) leader(ctx context.Context) *process {
	client, err := kubernetes.NewForConfig(c.rig.server.Config)
	if err != nil {
		return nil
	}
	l, err := client.CoordinationV1().Leases(namespace).Get(ctx, "fabric-controller", metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.running {
		// each says once which identity it has
		if b, err := os.ReadFile(p.log); err == nil && strings.Contains(string(b), *l.Spec.HolderIdentity) {
			return p
		}
	}
	return nil
}

// memory describes that of the leader, and keeps the largest peak.
func (c *controllers) memory(ctx context.Context) string {
	p := c.leader(ctx)
	if p == nil {
		return "no leader"
	}
	now, peak := memory(p.cmd.Process.Pid)
	c.mu.Lock()
	c.peak = max(c.peak, peak)
	restarts := c.restart
	c.mu.Unlock()
	return fmt.Sprintf("%d MiB (peak %d, heap %s), %d restarts", now, peak, heap(ctx, p.metrics), restarts)
}

// heap is what a process itself says about it.
func heap(ctx context.Context, address string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return "unknown"
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "unknown"
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		return "unknown"
	}
	f, err := families(b)
	if err != nil {
		return "unknown"
	}
	for _, x := range f["go_memstats_heap_inuse_bytes"].GetMetric() {
		return size(value(x))
	}
	return "unknown"
}
