package controller

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shown is what the controller exports: what stands in the status of the Fabrics. Only the one that leads has any.
type shown struct {
	mu  sync.Mutex
	now []prometheus.Metric
}

var (
	nodesDesc = prometheus.NewDesc("fabric_nodes", "Nodes that have devices of a fabric.", []string{"fabric"}, nil)

	devicesDesc = prometheus.NewDesc("fabric_devices",
		"Devices of a fabric in the cluster: all (total), those that pods may "+
			"use (healthy), and those that are in pods (attached).", []string{"fabric", "state"}, nil)

	addressesDesc = prometheus.NewDesc("fabric_addresses",
		"Addresses of a fabric in the cluster: those there are to give "+
			"(capacity), and those that are given (allocated), as far as its IPAM plugin tells.",
		[]string{"fabric", "state"}, nil)

	conditionDesc = prometheus.NewDesc("fabric_condition", "1 for the status that a condition of a Fabric has.",
		[]string{"fabric", "type", "status"}, nil)
)

// Describe implements prometheus.Collector.
func (*shown) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{nodesDesc, devicesDesc, addressesDesc, conditionDesc} {
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
func (s *shown) set(all []judged) {
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = out
}

// Exported is a collector that describes what the controller exports, and has none of it.
func Exported() prometheus.Collector { return &shown{} }
