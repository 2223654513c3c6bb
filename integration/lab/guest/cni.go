package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/fabric-cni/fabric-cni/internal/apply"
)

// BinDir holds the plugins that the driver built, statically linked.
func BinDir() string { return os.Getenv("FABRIC_BIN_DIR") }

// Call is one execution of a CNI plugin.
type Call struct {
	Plugin      string // file in BinDir, "fabric" if empty
	Command     string // ADD, DEL, CHECK, STATUS, GC, VERSION
	ContainerID string
	Netns       string
	IfName      string
	Args        string // CNI_ARGS
	Config      any    // the configuration: text, []byte, or a value to encode as JSON
	Env         []string
	Timeout     time.Duration // 0: one minute; the plugin is killed then
}

// Outcome is what a plugin did.
type Outcome struct {
	Result   *current.Result // nil if standard output has none, or one of another type
	Err      *types.Error    // the CNI error, if there is one
	Stdout   string
	Stderr   string
	Exit     int // -1 if it was killed
	Killed   bool
	Duration time.Duration
	MaxRSS   int64 // KiB
}

// Failed says whether the plugin did not succeed, for whatever reason.
func (o Outcome) Failed() bool { return o.Exit != 0 }

func (o Outcome) String() string {
	switch {
	case o.Killed:
		return "killed"
	case o.Err != nil:
		return fmt.Sprintf("CNI error %d: %s; %s", o.Err.Code, o.Err.Msg, o.Err.Details)
	case o.Exit != 0:
		return fmt.Sprintf("exit %d: %s%s", o.Exit, o.Stdout, o.Stderr)
	}
	return strings.TrimSpace(o.Stdout)
}

// Exec runs the plugin as a runtime would. It returns whatever the plugin does; only a plugin that can't be started
// fails the test.
func (c Call) Exec(t testing.TB) Outcome {
	t.Helper()
	out, err := c.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Must runs the plugin and fails the test unless it succeeds.
func (c Call) Must(t testing.TB) Outcome {
	t.Helper()
	out := c.Finish(t)
	if out.Failed() {
		t.Fatalf("%s %s: %s\n%s", c.Command, c.ContainerID, out, out.Stderr)
	}
	return out
}

// Finish is Exec, but calls the DEL of a pod whose namespace is gone once more if the first did not find what the pod
// had. The kernel takes down one dead namespace after the other, at times for longer than a DEL waits.
func (c Call) Finish(t testing.TB) Outcome {
	t.Helper()
	out := c.Exec(t)
	said := out.String()
	missing := strings.Contains(said, apply.ErrMissing.Error()) && !strings.Contains(said, "did not list")
	if c.Command != "DEL" || !missing {
		return out
	}
	if _, err := os.Stat(c.Netns); err == nil || c.Netns == "" {
		return out
	}
	t.Logf("the first DEL: %s", out)
	return c.Exec(t)
}

func (c Call) run(ctx context.Context) (Outcome, error) {
	stdin, err := c.stdin()
	if err != nil {
		return Outcome{}, err
	}
	timeout := c.Timeout
	if timeout == 0 {
		timeout = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	plugin := c.Plugin
	if plugin == "" {
		plugin = "fabric"
	}
	cmd := exec.CommandContext(ctx, filepath.Join(BinDir(), plugin))
	cmd.Env = append([]string{
		"PATH=" + os.Getenv(
			"PATH",
		),
		"CNI_PATH=" + BinDir(),
		"CNI_COMMAND=" + c.Command,
		"CNI_CONTAINERID=" + c.ContainerID,
		"CNI_NETNS=" + c.Netns,
		"CNI_IFNAME=" + c.IfName,
		"CNI_ARGS=" + c.Args,
	}, c.Env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	// A killed plugin may leave an IPAM plugin behind that holds its output open.
	cmd.WaitDelay = 5 * time.Second
	begin := time.Now()
	err = cmd.Run()
	out := Outcome{Stdout: stdout.String(), Stderr: stderr.String(), Duration: time.Since(begin)}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return out, fmt.Errorf("run plugin %s: %w", plugin, err)
	}
	out.Exit = cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		out.Killed = ws.Signaled()
	}
	if ru, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		out.MaxRSS = ru.Maxrss
	}
	out.parse(stdout.Bytes())
	return out, nil
}

func (c Call) stdin() ([]byte, error) {
	switch v := c.Config.(type) {
	case nil:
		return nil, nil
	case string:
		return []byte(v), nil
	case []byte:
		return v, nil
	default:
		data, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("encode configuration: %w", err)
		}
		return data, nil
	}
}

// parse reads standard output as an error or as a result of any version.
func (o *Outcome) parse(stdout []byte) {
	if o.Exit != 0 {
		var e types.Error
		if json.Unmarshal(stdout, &e) == nil && e.Code != 0 {
			o.Err = &e
		}
		return
	}
	var version struct {
		CNIVersion string `json:"cniVersion"`
	}
	if json.Unmarshal(stdout, &version) != nil {
		return
	}
	result, err := current.NewResult(stdout)
	if err != nil {
		return
	}
	if r, err := current.GetResult(result); err == nil {
		o.Result = r
	}
}
