package selftest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// The interface and the network of the tests, and how long one call of the plugin may take.
const (
	ifName   = "net1"
	network  = "fabric-selftest"
	longCall = 2 * time.Minute
)

// conf is a network configuration.
type conf map[string]any

// outcome is what a call did.
type outcome struct {
	result json.RawMessage
	code   uint // of the CNI error
	killed bool
	took   time.Duration
	err    error // nil: it has succeeded
}

// call is a call of the plugin, as a runtime makes it.
type call struct {
	verb      string
	container string
	netns     string
	conf      any
	killAfter time.Duration // 0: it is not killed
}

// do makes the call. A ^C on the terminal is for fabricctl only: the plugin goes on to its end.
func (c call) do(ctx context.Context, plugin string) outcome {
	stdin, err := json.Marshal(c.conf)
	if err != nil {
		return outcome{err: err}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longCall)
	defer cancel()
	cmd := exec.CommandContext(ctx, plugin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second // an IPAM plugin that outlives it may hold its output open
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Env = []string{
		"PATH=" + ipam.PATH, "CNI_COMMAND=" + c.verb, "CNI_CONTAINERID=" + c.container, "CNI_NETNS=" + c.netns,
		"CNI_IFNAME=" + ifName, "CNI_PATH=" + filepath.Dir(plugin),
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return outcome{err: fmt.Errorf("start the plugin: %w", err)}
	}
	if c.killAfter > 0 {
		kill := time.AfterFunc(c.killAfter, func() { _ = cmd.Cancel() }) // it may have ended
		defer kill.Stop()
	}
	err = cmd.Wait()
	out := outcome{result: stdout.Bytes(), took: time.Since(begun)}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		out.killed = ws.Signaled()
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() {
		return out
	}
	var said struct {
		Code         uint
		Msg, Details string
	}
	switch {
	case ctx.Err() != nil:
		out.err = fmt.Errorf("%s did not end in %s", c.verb, longCall)
	case json.Unmarshal(stdout.Bytes(), &said) == nil && said.Msg != "":
		out.code = said.Code
		out.err = fmt.Errorf("%s: code %d: %s", c.verb, said.Code, join(said.Msg, said.Details))
	default:
		out.err = fmt.Errorf("%s: %w: %s", c.verb, err, quote.Clip(stdout.String()+stderr.String(), maxText))
	}
	return out
}

func join(msg, details string) string {
	if details == "" {
		return msg
	}
	return msg + "; " + details
}
