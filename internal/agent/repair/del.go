package repair

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/failpoint"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// errMissing is the outcome of a DEL that has ended and left the attachment.
var errMissing = errors.New("what it has is in no network namespace that can be looked into, and keeps its addresses")

// Kept returns an error if the DEL of an attachment has ended and has left it, as what it has was not found.
func Kept(s journal.Store, e *journal.Entry) error {
	if left, err := s.Load(e.Key); err == nil && left.Missing && left.Nonce == e.Nonce {
		return errMissing
	}
	return nil
}

// ownNames has the plugin take names that pods chose off devices that came to the host while their pods live.
func (l *Loop) ownNames(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.CallTimeout)
	defer cancel()
	return inHost(l.HostProc, func() error {
		out, err := exec.CommandContext(ctx, l.Plugin, "own-names").CombinedOutput() // fabric.NamesCommand
		if err != nil {
			return fmt.Errorf("%s own-names: %w %s", l.Plugin, err, bytes.TrimSpace(out))
		}
		return nil
	})
}

// Del calls the plugin at this path with the DEL that an attachment did not get, as the runtime would have done: with
// the configuration, the arguments and the CNI_PATH of its ADD. CNI_NETNS is empty: the namespace is gone, and its
// path may be another pod's. The error is the plugin's own message, if it has one.
func Del(ctx context.Context, plugin string, e *journal.Entry) error {
	conf := []byte(e.Conf)
	if len(conf) == 0 {
		var err error
		conf, err = json.Marshal(map[string]string{"cniVersion": "1.0.0", "name": e.Network, "type": "fabric"})
		if err != nil {
			return fmt.Errorf("encode the configuration of a DEL: %w", err)
		}
	}
	cmd := exec.CommandContext(ctx, plugin)
	cmd.Stdin = bytes.NewReader(conf)
	cmd.Env = []string{
		"PATH=" + ipam.PATH,
		"CNI_COMMAND=DEL", "CNI_CONTAINERID=" + e.ContainerID, "CNI_IFNAME=" + e.IfName, "CNI_NETNS=",
		"CNI_ARGS=" + e.Args, "CNI_PATH=" + e.Path,
	}
	cmd.Env = append(cmd.Env, failpoint.Environ()...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second // an IPAM plugin that outlives it may hold the pipes
	if err := cmd.Run(); err != nil {
		var result struct{ Msg string }
		if json.Unmarshal(stdout.Bytes(), &result) == nil && result.Msg != "" {
			return errors.New(result.Msg)
		}
		return fmt.Errorf("%s DEL: %w %s", plugin, err, strings.TrimSpace(stderr.String()))
	}
	return nil
}
