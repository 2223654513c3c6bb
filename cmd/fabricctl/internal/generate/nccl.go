package generate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// inContainer sets what is known in the pod only.
const inContainer = "eval \"$(fabricctl nccl-env)\" in the container"

// takesEnv tells whether NCCL reads the variables of the pods' containers: mpirun hands none of them to its ranks.
func (d *data) takesEnv() bool { return d.kind != "mpijob" && d.kind != "perftest-pods" }

// nccl are the variables that NCCL needs in the workload's pods, and are known before there is a pod, with their
// reasons: none where the pod has its own rails, unless they are planes.
func (d *data) nccl() (vars []corev1.EnvVar, notes map[string]string) {
	notes = map[string]string{}
	add := func(name, value, reason string) {
		vars, notes[name] = append(vars, corev1.EnvVar{Name: name, Value: value}), reason
	}
	if hcas := d.hcas(); len(hcas) > 0 {
		add("NCCL_IB_HCA", "="+strings.Join(hcas, ","), "Shared RDMA mode: the pod sees every HCA of its node. These "+
			"are the rails, on each of the nodes.")
	}
	if d.Planes() && d.RailCount() > 1 {
		add("NCCL_SOCKET_IFNAME", "=eth0", "NCCL's first connections are TCP over one interface. On planes not all "+
			"pods reach each other.")
		add("NCCL_CROSS_NIC", "0", "Planes: a rank must not use one rail here and another one there.")
	}
	return vars, notes
}

// ncclNotes are the comments of the variables, and of those that are not there.
func (d *data) ncclNotes() map[string]string {
	vars, notes := d.nccl()
	at := "resources"
	if len(vars) > 0 {
		at = vars[0].Name
	}
	notes[at] = strings.TrimPrefix(notes[at]+"\n"+d.restOfNCCL(len(vars)), "\n")
	return notes
}

// restOfNCCL says which variables are left to the reader; there are n.
func (d *data) restOfNCCL(n int) string {
	const gid = "NCCL before 2.21 needs NCCL_IB_GID_INDEX, which depends on the pod's addresses: " + inContainer + "."
	switch {
	case d.SharedFabric():
		return "Shared RDMA mode: the pod sees every HCA of its node, and which one it gets is not known before.\n" +
			inContainer + " sets NCCL_IB_HCA."
	case d.Shared && len(d.hcas()) == 0:
		return "Shared RDMA mode: the pod sees every HCA of its node, and the rails have other names on other " +
			"nodes.\n" + inContainer + " sets NCCL_IB_HCA."
	case d.SharedRoCE():
		return gid
	case d.Shared:
		return "Other cases: fabricctl nccl-env in the container."
	case n > 0:
		return "No other NCCL variable is needed: in exclusive RDMA mode the pod sees its own rails only.\n" +
			"Other cases: fabricctl nccl-env in the container."
	}
	return "No NCCL variable is needed: in exclusive RDMA mode the pod sees its own rails only. Other cases: " +
		"fabricctl nccl-env."
}

// hcas are the rails as NCCL_IB_HCA names them, of pods that have all devices of the RDMA shared device plugin; none
// where nodes differ.
func (d *data) hcas() (names []string) {
	if !d.Shared {
		return nil
	}
	of := map[string][]string{}
	for i := range d.Workload {
		for _, r := range d.Workload[i].Rails {
			for j := range r.Ports {
				if p := &r.Ports[j]; p.Kind == "PF" {
					of[p.Node] = append(of[p.Node], p.Name())
				}
			}
		}
	}
	for _, list := range of {
		if names != nil && !slices.Equal(names, list) {
			return nil
		}
		names = list
	}
	return names
}
