package cluster

import (
	"bufio"
	"cmp"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"
)

// fault is what happens to a driver. Killed, it starts again after a while, as kubelet would see to it.
type fault struct {
	name string
	stop time.Duration // 0: killed
}

const (
	faultNone = "none"
	restarts  = 5 * time.Second
	registers = 4 * time.Second
)

var faults = []fault{
	{name: faultNone},
	{name: "stopped 10 s", stop: 10 * time.Second},
	{name: "killed, back after 5 s"},
	{name: "slowed by 3 s", stop: 3 * time.Second},
}

// draDriver is a driver's process, with what it logs.
type draDriver struct {
	log  string
	args []string

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended bool
	line  func(string) // sees each line of the log
	until time.Time    // the fault is over
}

func startDriver(n *draStage) *draDriver {
	n.b.Helper()
	d := &draDriver{log: filepath.Join(current.run, "log", n.s.name+".log"), args: n.s.command(n)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for d.once() {
			time.Sleep(restarts)
		}
	}()
	n.b.Cleanup(func() {
		d.mu.Lock()
		d.ended = true
		d.mu.Unlock()
		d.kill()
		<-done
	})
	return d
}

// once runs the process to its end, and says whether there is another one.
func (d *draDriver) once() bool {
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	defer log.Close()
	d.mu.Lock()
	if d.ended {
		d.mu.Unlock()
		return false
	}
	cmd := exec.Command(d.args[0], d.args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, out, err := os.Pipe()
	if err == nil {
		cmd.Stdout, cmd.Stderr = out, out
		err = cmd.Start()
		out.Close()
	}
	if err != nil {
		d.mu.Unlock()
		_, _ = io.WriteString(log, err.Error())
		return false
	}
	d.cmd = cmd
	d.mu.Unlock()
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		d.mu.Lock()
		if d.line != nil {
			d.line(scan.Text())
		}
		d.mu.Unlock()
		_, _ = io.WriteString(log, scan.Text()+"\n")
	}
	if err := scan.Err(); err != nil {
		_, _ = io.WriteString(log, err.Error()+"\n")
	}
	_ = cmd.Wait()
	in.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cmd = nil
	_, _ = io.WriteString(log, "---- ended\n")
	return !d.ended
}

// atLine is a point told by a line of the driver's log: when it is written so often, or once for each pod (0).
func atLine(line string, times int) func(*draDriver, fault, int) func() bool {
	want := regexp.MustCompile(line)
	return func(d *draDriver, f fault, pods int) func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		left := cmp.Or(times, pods)
		d.line = func(text string) {
			if left > 0 && want.MatchString(text) {
				if left--; left == 0 {
					d.struck(f)
				}
			}
		}
		return func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return left == 0
		}
	}
}

func (d *draDriver) disarm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.line = nil
}

func (d *draDriver) strike(f fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.struck(f)
}

func (d *draDriver) struck(f fault) {
	if f.name == faultNone || d.cmd == nil {
		return
	}
	d.until = time.Now().Add(f.stop + registers)
	process := d.cmd.Process
	if f.stop == 0 {
		d.until = d.until.Add(restarts)
		_ = process.Kill()
		return
	}
	_ = process.Signal(syscall.SIGSTOP)
	time.AfterFunc(f.stop, func() { _ = process.Signal(syscall.SIGCONT) })
}

// recovered waits until the fault is over, and the driver had time to register with kubelet and the runtime: what
// happens at the end of pods is another point.
func (d *draDriver) recovered() {
	d.mu.Lock()
	until := d.until
	d.mu.Unlock()
	time.Sleep(time.Until(until))
}

func (d *draDriver) kill() { d.strike(fault{name: "killed"}) }

func (d *draDriver) tail() string {
	b, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(b), 30)
}
