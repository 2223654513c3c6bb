// Package agent tests on a lab guest what fabric-agent sees and does where there are HCAs. It is apart from the other
// guest tests, whose binary needs no gRPC and no Prometheus.
package agent
