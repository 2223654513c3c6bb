package cli

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/pkg/generate"
)

// deployment is two pods that live for one measurement.
type deployment struct {
	wanted    bool
	namespace string
	image     string
	fabric    string
	made      bool
}

// deployed is the name of the pods, less -a and -b.
const deployed = "fabricctl-verify"

func (d *deployment) pods() []string { return []string{deployed + "-a", deployed + "-b"} }

// deploy makes the pods and waits for them.
func (a *app) deploy(ctx context.Context, d *deployment, recordings []string) error {
	nodes, err := a.nodes(recordings)
	if err != nil {
		return err
	}
	text, err := generate.Generate("perftest-pods", nodes, generate.Options{Namespace: d.namespace, Name: deployed, Image: d.image, Fabric: d.fabric,
		Prefix: "nvidia.com", Range: netip.MustParsePrefix("192.168.128.0/18"), Workers: 2}) // the range is the networks', not the pods'
	if err != nil {
		return fmt.Errorf("verify --deploy: %w", err)
	}
	d.made = true
	if err := said(ctx, text, "apply", "-f", "-"); err != nil {
		return fmt.Errorf("verify --deploy: %w", err)
	}
	for _, p := range d.pods() {
		if err := said(ctx, "", "-n", d.namespace, "wait", "--for=condition=Ready", "--timeout=180s", "pod/"+p); err != nil {
			return fmt.Errorf("verify --deploy: %w; why: kubectl -n %s describe pod %s | fabricctl doctor explain", err, d.namespace, p)
		}
	}
	return nil
}

// remove deletes the pods, also when the measurement was interrupted.
func (d *deployment) remove() {
	if !d.made {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, p := range d.pods() {
		_ = said(ctx, "", "-n", d.namespace, "delete", "pod", p, "--ignore-not-found", "--wait=false") // nothing more can be done
	}
}

// said runs kubectl and returns what it says if it fails.
func said(ctx context.Context, stdin string, args ...string) error {
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
