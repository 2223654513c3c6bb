// Package cluster runs a real Kubernetes on one machine without Docker, for tests: etcd, API server, controller
// manager, scheduler, kubelet, containerd, Multus and whereabouts, in namespaces of their own over a throw-away view of
// /etc, /var and /opt. See README.md.
package cluster
