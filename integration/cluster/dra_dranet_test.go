package cluster

import (
	"path/filepath"
	"time"
)

// dranet is the driver of kubernetes-sigs, as its install.yaml starts it. By default it leaves veths alone: here they
// are the rails.
func dranet() *subject {
	return &subject{
		name: "dranet", driver: "dra.net", patience: 20 * time.Second,
		command: func(*draStage) []string {
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
			{name: pointAlone},
			{name: pointBefore},
			{name: "in prepare", arm: atLine(`NodePrepareResources: Claim Request`, 1)},
			{name: pointPrepared, gate: true},
			{name: "attach begins", gate: true, arm: atLine(`RunPodSandbox Pod \S+ UID \S+$`, 1)},
			{name: "half attached", gate: true, arm: atLine(`RunPodSandbox processing Network device`, railsOfPod/2)},
			{name: "attached", gate: true, arm: atLine(`RunPodSandbox Pod .* took`, 0)},
			{name: pointEnd},
		},
	}
}
