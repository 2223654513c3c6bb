package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Spec says what to run in a guest and with what hardware.
type Spec struct {
	// Script is a shell script, run as root with sh in /out. Its output goes to Output, its exit status to the Result.
	Script string
	// OutDir is shared read-write as the guest's /out. Run creates it; empty: a temporary directory, removed on
	// success.
	OutDir string
	// Append extends the kernel's command line. Module parameters go here too: "ib_core.netns_mode=0".
	Append []string
	// Devices are further QEMU arguments: see VirtioNet, E1000e.
	Devices   []string
	NewQEMU   bool          // the QEMU of "lab-setup.sh igb" instead of the installed one
	MemoryMiB int           // 0: 1024
	Counted   bool          // guest time passes by instructions executed (2 ns each), not by this machine's clock
	Timeout   time.Duration // of one attempt, from power on to power off; 0: 5 minutes
	Output    io.Writer     // receives the script's output while it runs; nil: only the file "output" in OutDir
	Console   io.Writer     // receives the guest's console while it runs; nil: only the file "console" in OutDir
	Once      bool          // a guest that dies after its script has started is not booted again: what it held is gone

	started func() // called when the script has started and the guest's clock is right
}

// Result is what a finished guest left.
type Result struct {
	Status   int           // exit status of the script
	Attempts int           // 2 if the first guest never finished; a guest with a wrong clock does not count
	Boot     time.Duration // power on until the script started
	Total    time.Duration // of the last attempt
	CPU      time.Duration // of this machine, used by the last attempt
	OutDir   string        // "" if it was temporary
	Dmesg    string
}

// GuestError is a guest that did not finish or whose kernel complained.
type GuestError struct {
	Kernel  Kernel
	Reason  string
	Lines   []string // of the kernel log, if these are the reason
	Console string   // its end
	Dmesg   string   // its end
}

func (e *GuestError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "guest %s: %s", e.Kernel, e.Reason)
	for _, line := range e.Lines {
		b.WriteString("\n  " + line)
	}
	if e.Dmesg != "" {
		b.WriteString("\n--- end of the kernel log\n" + e.Dmesg)
	}
	if e.Console != "" {
		b.WriteString("\n--- end of the console\n" + e.Console)
	}
	return b.String()
}

// errUnfinished marks an attempt that is worth another one: emulation loses a guest now and then.
var errUnfinished = errors.New("guest did not finish")

// errClock marks a guest that was given up as soon as it had booted, see fastClock.
var errClock = fmt.Errorf("%w: its clock goes too fast, this machine was too busy when it booted", errUnfinished)

// Run boots k and runs spec.Script in it. A guest that never finishes is tried once more. A script's exit status is
// not an error; a guest that does not finish, and a kernel log with a BUG, WARNING or leak, are (*GuestError).
func Run(ctx context.Context, k Kernel, spec Spec) (Result, error) {
	free, err := takeSlot(ctx, nil)
	if err != nil {
		return Result{}, err
	}
	defer free()
	out, temporary := spec.OutDir, false
	if out == "" {
		dir, err := os.MkdirTemp("", "fabric-lab-out-")
		if err != nil {
			return Result{}, fmt.Errorf("create directory for results: %w", err)
		}
		out, temporary = dir, true
	}
	var res Result
	for attempt, clocks := 1, 0; attempt <= 2; attempt++ {
		res, err = boot(ctx, k, spec, out)
		res.Attempts = attempt
		if !errors.Is(err, errUnfinished) || ctx.Err() != nil {
			break
		}
		if spec.Once && res.Boot > 0 && !errors.Is(err, errClock) {
			break
		}
		if errors.Is(err, errClock) && clocks < clockRetries {
			clocks++
			attempt--
		}
	}
	res.OutDir = out
	if errors.Is(err, errUnfinished) {
		return res, &GuestError{
			Kernel:  k,
			Reason:  err.Error(),
			Console: tail(filepath.Join(out, "console")),
			Dmesg:   tail(filepath.Join(out, "dmesg")),
		}
	}
	if err != nil {
		return res, err
	}
	if lines := Complaints(res.Dmesg); len(lines) > 0 {
		return res, &GuestError{
			Kernel: k,
			Reason: "kernel complains",
			Lines:  lines,
			Dmesg:  tail(filepath.Join(out, "dmesg")),
		}
	}
	if temporary {
		res.OutDir = ""
		if err := os.RemoveAll(out); err != nil {
			return res, fmt.Errorf("remove results: %w", err)
		}
	}
	return res, nil
}

// runScript is what init continues with. The exit status is written last: a guest without it did not finish.
const runScript = `export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb
export FABRIC_LAB_GUEST=1
hostname labguest
cd /out
echo "@@ script $(cut -d' ' -f1 /proc/uptime)"
/bin/sh /out/script.sh >/out/output 2>&1
rc=$?
dmesg >/out/dmesg
echo $rc >/out/rc
echo "@@ end $rc $(cut -d' ' -f1 /proc/uptime)"
/run/busybox poweroff -f
`

// boot makes one attempt.
func boot(ctx context.Context, k Kernel, spec Spec, out string) (Result, error) {
	if err := prepareOut(out, spec.Script); err != nil {
		return Result{}, err
	}
	console, err := newConsole(filepath.Join(out, "console"), spec.Console)
	if err != nil {
		return Result{}, err
	}
	defer console.Close()
	timeout := spec.Timeout
	if timeout == 0 {
		timeout = 5 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var clockErr error
	accelerated := kvmWorks(ctx, k)
	begin := time.Now()
	console.onStart = func(uptime time.Duration) {
		if wall := time.Since(begin); !spec.Counted && tooFast(uptime, wall) {
			clockErr = fmt.Errorf("%w: up for %s after %s", errClock, uptime, wall.Round(10*time.Millisecond))
			cancel()
		} else if spec.started != nil {
			spec.started()
		}
	}
	// A guest that gets stuck while booting is not worth the whole timeout.
	watchdog := time.AfterFunc(min(timeout, 3*time.Minute), func() {
		if console.Started().IsZero() {
			cancel()
		}
	})
	defer watchdog.Stop()

	stopTail := follow(filepath.Join(out, "output"), spec.Output)
	var res Result
	qemuErr := qemu(ctx, qemuProgram(spec.NewQEMU), qemuArgs(k, spec, out, accelerated), console, &res.CPU)
	stopTail()
	res.Total = time.Since(begin)
	if started := console.Started(); !started.IsZero() {
		res.Boot = started.Sub(begin)
	}
	if clockErr != nil {
		return res, clockErr
	}
	if log, err := os.ReadFile(filepath.Join(out, "dmesg")); err == nil {
		res.Dmesg = string(log)
	}
	rc, err := os.ReadFile(filepath.Join(out, "rc"))
	if err != nil {
		return res, fmt.Errorf("%w in %s (qemu: %s)", errUnfinished, res.Total.Round(time.Second), fmt.Sprint(qemuErr))
	}
	res.Status, err = strconv.Atoi(strings.TrimSpace(string(rc)))
	if err != nil {
		return res, fmt.Errorf("%w: exit status %q", errUnfinished, rc)
	}
	return res, nil
}

func prepareOut(out, script string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("create directory for results: %w", err)
	}
	for _, old := range []string{"rc", "dmesg", "output", "console", "matrix"} {
		if err := os.Remove(filepath.Join(out, old)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove results of an earlier guest: %w", err)
		}
	}
	for name, text := range map[string]string{"run.sh": runScript, "script.sh": script} {
		if err := os.WriteFile(filepath.Join(out, name), []byte(text), 0o755); err != nil {
			return fmt.Errorf("write guest script: %w", err)
		}
	}
	return nil
}

// qemuProgram returns the QEMU to run: $FABRIC_LAB_QEMU, the installed one, or that of "lab-setup.sh igb".
func qemuProgram(newer bool) string {
	if newer {
		return filepath.Join(Cache(), "qemu", "bin", "qemu")
	}
	return cmp.Or(os.Getenv("FABRIC_LAB_QEMU"), "qemu-system-x86_64")
}

// qemu runs QEMU until the guest powers off or ctx ends, and never leaves it behind. It sets used to the CPU time.
func qemu(ctx context.Context, program string, args []string, console io.Writer, used *time.Duration) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.WaitDelay = 10 * time.Second
	// The death signal follows the thread that started QEMU, so this goroutine keeps it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if cmd.ProcessState != nil {
		*used = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("killed: %w", ctx.Err())
		}
		return fmt.Errorf("run %s: %w", program, err)
	}
	return nil
}
