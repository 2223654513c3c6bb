package cluster

import (
	"path/filepath"
	"regexp"
	"testing"
)

// dranet is the driver of kubernetes-sigs, as its install.yaml starts it. By default it leaves veths alone: here they
// are the rails.
func dranet() *subject {
	return &subject{
		name: "dranet", driver: "dra.net",
		command: func(*testing.B) []string {
			return []string{filepath.Join(current.cache, "dranet", "dranet"), "--v=4", "--hostname-override=rig",
				"--kubeconfig=" + current.run + "/conf/admin.kubeconfig", "--bind-address=127.0.0.1:9177",
				"--cloud-provider-hint=NONE", `--filter="dra.net/ifName" in attributes && ` +
					`attributes["dra.net/ifName"].StringValue.startsWith("rail")`}
		},
		objects: `apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: dra.net}
spec: {selectors: [{cel: {expression: 'device.driver == "dra.net"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: rails}
spec: {spec: {devices: {requests: [{name: rails, exactly: {deviceClassName: dra.net, count: 8}}]}}}
`,
		points: []point{
			{name: pointNone},
			{name: pointBefore},
			{name: "in prepare", line: regexp.MustCompile(`NodePrepareResources: Claim Request`)},
			{name: pointPrepared, gate: true},
			{name: "in the hook", gate: true, line: regexp.MustCompile(`RunPodSandbox Pod \S+ UID \S+$`)},
			{name: "half of the rails", gate: true, nth: railsOfPod / 2,
				line: regexp.MustCompile(`RunPodSandbox processing Network device`)},
			{name: "attached", gate: true, last: true, line: regexp.MustCompile(`RunPodSandbox Pod .* took`)},
			{name: pointEnd},
		},
	}
}
