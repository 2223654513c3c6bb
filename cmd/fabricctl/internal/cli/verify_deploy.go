package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/pflag"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/generate"
)

// testPods are the pods of verify --deploy, which exist for one measurement.
type testPods struct {
	from      sources
	namespace string
	image     string
	fabric    string
	prefix    string
	count     int
	sameNode  bool
	timeout   time.Duration // until they are Ready
	made      bool
}

func (p *testPods) flags(f *pflag.FlagSet) {
	f.IntVar(&p.count, "workers", 2, "--deploy: so many pods: as many as there are nodes measures every pair of nodes")
	f.BoolVar(&p.sameNode, "same-node", false, "--deploy: the pods may be on one node")
	f.DurationVar(&p.timeout, "timeout", 3*time.Minute, "--deploy: how long the pods may take to be Ready")
	f.BoolVar(&p.from.cluster, "cluster", false, "--deploy: rails of the Fabrics of the cluster")
	f.StringVar(&p.prefix, "resource-prefix", "nvidia.com",
		"prefix of the resources of these pods; "+generate.AgentPrefix+" for those of fabric-agent, as with --cluster")
	f.StringVar(&p.image, "image", "example.com/perftest:latest", "image of these pods")
	f.StringVar(&p.fabric, "fabric", "", "fabric of these pods (default: the one with the most bandwidth)")
}

// check checks the flags.
func (p *testPods) check() error {
	return errors.Join(imageRule.check("image", p.image), domainRule.check("resource-prefix", p.prefix))
}

// testPodName is the name of the pods, without -a, -b, ...
const testPodName = "fabricctl-verify"

func (p *testPods) names() (out []string) {
	for _, side := range generate.Sides(p.count) {
		out = append(out, testPodName+"-"+side)
	}
	return out
}

// deploy creates the pods, and waits until they are Ready.
func (p *testPods) deploy(ctx context.Context) error {
	text, err := p.from.generate(ctx, "verify --deploy", "perftest-pods", generate.Options{
		Namespace: p.namespace, Name: testPodName, Image: p.image, Fabric: p.fabric, Prefix: p.prefix,
		Range:   netip.MustParsePrefix("192.168.128.0/18"), // for networks: pods have none
		Workers: p.count, SameNode: p.sameNode,
	})
	if err != nil {
		return err
	}
	p.made = true
	if err := kubectl(ctx, text, "apply", "-f", "-"); err != nil {
		return fmt.Errorf("verify --deploy: %w", err)
	}
	for _, name := range p.names() {
		err := kubectl(ctx, "", "-n", p.namespace, "wait", "--for=condition=Ready", "--timeout="+p.timeout.String(),
			"pod/"+name)
		if err != nil {
			return fmt.Errorf("verify --deploy: %w; why: kubectl -n %s describe pod %s | fabricctl doctor explain",
				err, p.namespace, name)
		}
	}
	return nil
}

// remove deletes the pods, also if the measurement was interrupted.
func (p *testPods) remove() {
	if !p.made {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// If this fails, nothing more can be done. Pods of Fabrics with allocation DRA have claims.
	_ = kubectl(ctx, "", "-n", p.namespace, "delete", "resourceclaimtemplates.resource.k8s.io", testPodName,
		"--ignore-not-found", "--wait=false")
	for _, name := range p.names() {
		_ = kubectl(ctx, "", "-n", p.namespace, "delete", "pod", name, "--ignore-not-found", "--wait=false")
	}
}
