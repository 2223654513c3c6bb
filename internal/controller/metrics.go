package controller

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// shown is what the controller exports: what stands in the status of the Fabrics. Only the one that leads has any.
type shown struct {
	mu  sync.Mutex
	now []prometheus.Metric
}

var (
	nodesDesc = prometheus.NewDesc("fabric_nodes", "Nodes that have devices of a fabric.", []string{"fabric"}, nil)

	devicesDesc = prometheus.NewDesc("fabric_devices",
		"Devices of a fabric in the cluster: all (total), those that pods may use (healthy), those whose port was "+
			"never Active (not_connected), and those that are in pods (attached).", []string{"fabric", "state"}, nil)

	addressesDesc = prometheus.NewDesc("fabric_addresses",
		"Addresses of a fabric in the cluster: those there are to give "+
			"(capacity), and those that are given (allocated), as far as its IPAM plugin tells.",
		[]string{"fabric", "state"}, nil)

	conditionDesc = prometheus.NewDesc("fabric_condition", "1 for the status that a condition of a Fabric has.",
		[]string{"fabric", "type", "status"}, nil)

	notReadyDesc = prometheus.NewDesc("fabric_nodes_not_ready",
		"Nodes whose FabricNode is not Ready, by the reason that it gives.", []string{"reason"}, nil)
)

// maxReasons is how many reasons are shown, and maxReason how long one is: a node writes its own. The rest are
// otherReason.
const (
	maxReasons  = 20
	maxReason   = 40
	otherReason = "other"
)

// notReady counts the nodes that are not Ready by their reasons.
func notReady(nodes []v1alpha1.FabricNode) map[string]int {
	out := map[string]int{}
	for i := range nodes {
		ready := apimeta.FindStatusCondition(nodes[i].Status.Conditions, v1alpha1.FabricNodeReady)
		if nodes[i].Spec.Gone != nil || ready == nil || ready.Status != metav1.ConditionFalse {
			continue
		}
		reason := ready.Reason
		if _, known := out[reason]; len(reason) > maxReason || !known && len(out) >= maxReasons {
			reason = otherReason
		}
		out[reason]++
	}
	return out
}

// Describe implements prometheus.Collector.
func (*shown) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{nodesDesc, devicesDesc, addressesDesc, conditionDesc, notReadyDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (s *shown) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.now {
		out <- m
	}
}

// set replaces what is shown.
func (s *shown) set(all []judged, nodes []v1alpha1.FabricNode) {
	var out []prometheus.Metric
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		if m, err := prometheus.NewConstMetric(d, prometheus.GaugeValue, v, labels...); err == nil {
			out = append(out, m)
		}
	}
	for i := range all {
		name, st := all[i].object.Name, &all[i].object.Status
		gauge(nodesDesc, float64(st.Nodes), name)
		gauge(devicesDesc, float64(st.Devices.Total), name, "total")
		gauge(devicesDesc, float64(st.Devices.Healthy), name, "healthy")
		gauge(devicesDesc, float64(st.Devices.NotConnected), name, "not_connected")
		gauge(devicesDesc, float64(st.Devices.Attached), name, "attached")
		gauge(addressesDesc, float64(st.Addresses.Capacity), name, "capacity")
		gauge(addressesDesc, float64(st.Addresses.Allocated), name, "allocated")
		for k := range st.Conditions {
			for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse} {
				is := 0.0
				if st.Conditions[k].Status == status {
					is = 1
				}
				gauge(conditionDesc, is, name, st.Conditions[k].Type, string(status))
			}
		}
	}
	for reason, n := range notReady(nodes) {
		gauge(notReadyDesc, float64(n), reason)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = out
}

// Exported is a collector that describes what the controller exports, and has none of it.
func Exported() prometheus.Collector { return &shown{} }
