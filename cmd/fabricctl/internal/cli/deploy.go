package cli

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
)

// deployment is pods that live for one measurement.
type deployment struct {
	wanted    bool
	namespace string
	image     string
	fabric    string
	prefix    string
	cluster   bool
	count     int
	sameNode  bool
	timeout   time.Duration
	made      bool
}

// deployed is the name of the pods, less -a, -b, ...
const deployed = "fabricctl-verify"

func (d *deployment) pods() (out []string) {
	for _, side := range generate.Sides(d.count) {
		out = append(out, deployed+"-"+side)
	}
	return out
}

// deploy makes the pods and waits for them.
func (a *app) deploy(ctx context.Context, d *deployment, recordings []string) error {
	nodes, err := a.nodesOf(ctx, d.cluster, recordings)
	if err != nil {
		return err
	}
	text, err := generate.Generate(
		"perftest-pods",
		nodes,
		generate.Options{
			Namespace: d.namespace,
			Name:      deployed,
			Image:     d.image,
			Fabric:    d.fabric,
			Prefix:    d.prefix,
			Range:     netip.MustParsePrefix("192.168.128.0/18"),
			Workers:   d.count,
			SameNode:  d.sameNode,
		},
	) // the range is the networks', not the pods'
	if err != nil {
		return fmt.Errorf("verify --deploy: %w", err)
	}
	d.made = true
	if err := said(ctx, text, "apply", "-f", "-"); err != nil {
		return fmt.Errorf("verify --deploy: %w", err)
	}
	for _, p := range d.pods() {
		if err := said(
			ctx,
			"",
			"-n",
			d.namespace,
			"wait",
			"--for=condition=Ready",
			"--timeout="+d.timeout.String(),
			"pod/"+p,
		); err != nil {
			return fmt.Errorf(
				"verify --deploy: %w; why: kubectl -n %s describe pod %s | fabricctl doctor explain",
				err,
				d.namespace,
				p,
			)
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
		_ = said(
			ctx,
			"",
			"-n",
			d.namespace,
			"delete",
			"pod",
			p,
			"--ignore-not-found",
			"--wait=false",
		) // nothing more can be done
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
