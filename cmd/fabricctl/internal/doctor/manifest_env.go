package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// CheckContents checks what the manifest of a pod says by itself, whatever its networks are: requests, /dev/shm,
// memory, users, variables. nodes are those on which the pod may run; there may be none: not known.
func CheckContents(m *Manifest, nodes []*node.Node) (out []Finding) {
	out = slices.Concat(m.requests(), m.users())
	if m.gpus() > 0 || m.wants(nil) {
		out = append(out, slices.Concat(m.shm(), m.memory())...)
	}
	for i := range m.Spec.Containers {
		c := &m.Spec.Containers[i]
		vars := c.vars()
		at := "container " + c.Name + ": "
		out = append(out, envOff(at, func(name string) string { return vars[name].Value })...)
		for _, name := range []string{"NCCL_IB_HCA", "UCX_NET_DEVICES"} {
			if v, set := vars[name]; set {
				out = append(out, m.envHCA(at, name, v, nodes)...)
			}
		}
		out = append(out, m.envSocket(at, vars)...)
		out = append(out, c.hcoll(at, vars)...)
	}
	return out
}

// envOff finds RDMA switched off by a variable.
func envOff(at string, value func(name string) string) (out []Finding) {
	if v := value("NCCL_IB_DISABLE"); v != "" && v != "0" {
		out = append(out, finding("pod-env-off", Fail, at+"NCCL_IB_DISABLE="+v))
	}
	if v := value("NCCL_NET"); strings.EqualFold(v, "socket") {
		out = append(out, finding("pod-env-off", Fail, at+"NCCL_NET="+v))
	}
	return out
}

// envHCA checks names of devices that stand in a manifest: the pods of it are on nodes that have others.
func (m *Manifest) envHCA(at, name string, v setting, nodes []*node.Node) (out []Finding) {
	text := at + v.assign(name)
	exact := strings.HasPrefix(v.Value, "=")
	names, interfaces := deviceNames(strings.TrimPrefix(v.Value, "="))
	if v.How != "" && (v.Value == "" || single(names) && len(names) > 0) {
		without := "NCCL goes over TCP"
		if name == "UCX_NET_DEVICES" {
			without = "UCX does not start"
		}
		return one(finding("pod-env-hca", Warn, text+": all ranks get the names of one pod; in a pod without such a "+
			"device "+without))
	}
	if strings.HasPrefix(v.Value, "^") || len(names) == 0 || name == "UCX_NET_DEVICES" && interfaces {
		return nil
	}
	ours := func(h *node.HCA, n string) bool {
		return h.Name == n || !exact && name == "NCCL_IB_HCA" && strings.HasPrefix(h.Name, n)
	}
	var without, bonds []string
	for _, n := range nodes {
		missing := false
		for _, want := range names {
			i := slices.IndexFunc(n.HCAs, func(h node.HCA) bool { return ours(&h, want) })
			missing = missing || i < 0
		}
		if missing {
			without = append(without, n.Name)
		}
		for i := range n.HCAs {
			h := &n.HCAs[i]
			if h.Bond != "" && slices.ContainsFunc(names, func(w string) bool { return ours(h, w) }) {
				bonds = append(bonds, n.Name+" "+h.Name)
			}
		}
	}
	if len(without) > 0 {
		status := Warn
		if len(without) == len(nodes) {
			status = Fail
		}
		out = append(out, finding("pod-env-hca", status, fmt.Sprintf("%s: not all of these are on %s", text,
			few(without))))
	}
	if len(bonds) > 0 {
		out = append(out, finding("pod-env-hca", Warn, text+": it takes a bond: "+few(bonds)))
	}
	want, err := networks(m.Metadata.Annotations[networksAnnotation], m.Metadata.Namespace)
	if err == nil && len(want) > 0 && len(names) != len(want) && single(names) {
		out = append(out, finding("pod-env-hca", Warn, fmt.Sprintf("%s: %d %s, and the pod has %d %s", text, len(names),
			plural(len(names), "device"), len(want), plural(len(want), "network"))))
	}
	return out
}

// deviceNames are the devices in a list of ports; interfaces: some are interfaces of the network.
func deviceNames(list string) (names []string, interfaces bool) {
	for item := range strings.SplitSeq(list, ",") {
		n, _, port := strings.Cut(strings.TrimSpace(item), ":")
		switch {
		case n == "" || n == "all":
		case strings.HasPrefix(n, "eth") || n == "lo" || strings.HasPrefix(n, "net") && !port:
			interfaces = true
		case !slices.Contains(names, n):
			names = append(names, n)
		}
	}
	return names, interfaces
}

// single reports whether the names are of single devices: mlx5 is the beginning of many.
func single(names []string) bool {
	return !slices.ContainsFunc(names, func(n string) bool {
		return !strings.ContainsAny(n[len(n)-1:], "0123456789") ||
			n == "mlx5" || n == "mlx4"
	})
}

// interfaces are the names that Multus gives to the networks of a pod.
func (m *Manifest) interfaces() (out []string) {
	text := strings.TrimSpace(m.Metadata.Annotations[networksAnnotation])
	var list []struct {
		Interface string `json:"interface"`
	}
	if strings.HasPrefix(text, "[") {
		_ = json.Unmarshal([]byte(text), &list) // networks says what is wrong with it
	} else if text != "" {
		for item := range strings.SplitSeq(text, ",") {
			_, name, _ := strings.Cut(strings.TrimSpace(item), "@")
			list = append(list, struct {
				Interface string `json:"interface"`
			}{name})
		}
	}
	for i, l := range list {
		if l.Interface == "" {
			l.Interface = fmt.Sprintf("net%d", i+1)
		}
		out = append(out, l.Interface)
	}
	return out
}

// envSocket checks by which interface the ranks meet: that of the cluster is eth0 in every pod.
func (m *Manifest) envSocket(at string, vars map[string]setting) (out []Finding) {
	if m.Spec.HostNetwork {
		return nil
	}
	rails := m.interfaces()
	for _, name := range []string{"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"} {
		v, set := vars[name]
		if !set || v.Value == "" || strings.HasPrefix(v.Value, "^") {
			continue
		}
		exact := strings.HasPrefix(v.Value, "=") || name == "GLOO_SOCKET_IFNAME"
		fits := func(is string) bool {
			for w := range strings.SplitSeq(strings.TrimPrefix(v.Value, "="), ",") {
				if w == is || !exact && w != "" && strings.HasPrefix(is, w) {
					return true
				}
			}
			return false
		}
		i := slices.IndexFunc(rails, fits)
		text := at + v.assign(name)
		switch {
		case fits("eth0"):
		case fits("lo"):
			out = append(out, loopback(text))
		case i >= 0:
			out = append(out, finding("pod-env-socket", Warn, text+": "+rails[i]+" is a rail: it needs an address "+
				"that all pods of the job reach, and rails on separate planes have none"))
		case m.label() == "":
			out = append(out, finding("pod-env-socket", Fail, text+" fits no interface of the pod: "+
				strings.Join(append([]string{"eth0"}, rails...), ", ")))
		}
	}
	return out
}

// hcoll finds an mpirun that may take Open MPI's HCOLL.
func (c *container) hcoll(at string, vars map[string]setting) []Finding {
	if c.mpirun() == nil {
		return nil
	}
	for name, v := range vars {
		if strings.HasPrefix(name, "I_MPI_") || strings.Contains(v.How, "env") { // not Open MPI
			return nil
		}
	}
	mca := c.mca()
	off := func(v string) bool { return v == "0" || v == "false" }
	if off(mca["coll_hcoll_enable"]) || off(vars["OMPI_MCA_coll_hcoll_enable"].Value) ||
		strings.HasPrefix(mca["coll"], "^") && strings.Contains(mca["coll"], "hcoll") {
		return one(finding("pod-hcoll", OK, at+"mpirun with HCOLL off"))
	}
	return one(finding("pod-hcoll", Warn, at+"mpirun without -mca coll_hcoll_enable 0: images with HPC-X or MLNX_OFED "+
		"have HCOLL"))
}
