package generate

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// A pod with its own rails has no NCCL variable, unless they are planes; one that sees every HCA of its node has those
// that are known before it starts. All kinds say the same.
func TestNCCL(t *testing.T) {
	const planes = "NCCL_SOCKET_IFNAME==eth0 NCCL_CROSS_NIC=0"
	variable := regexp.MustCompile(`- name: (NCCL_[A-Z_]+)\n\s+value: "?([^"\n]*)|- (NCCL_[A-Z_]+)=(.*)`)
	for _, c := range []struct {
		name    string
		nodes   []string
		set     func(o *Options)
		want    string
		mpi     string
		comment string
	}{
		{"own rails", []string{"h20"}, func(*Options) {}, "", "", "# No NCCL variable is needed: in exclusive"},
		{"own rails of a claim", []string{"h20"}, func(o *Options) { o.DRA = true }, "", "", "# No NCCL variable is"},
		{"planes", []string{"roce"}, func(*Options) {}, planes, planes, "# No other NCCL variable is needed: in"},
		{"one plane", []string{"roce"}, func(o *Options) { o.Rails = 1 }, "", "", "# No NCCL variable is needed"},
		{"shared", []string{"h20"}, func(o *Options) { o.Shared, o.Prefix = true, SharedPrefix },
			"NCCL_IB_HCA==mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_7:1", "", "# Shared RDMA mode: the pod sees every HCA of " +
				"its node. These"},
		{"shared by RoCE", []string{"roce"}, func(o *Options) { o.Shared, o.Prefix = true, SharedPrefix },
			"NCCL_IB_HCA==mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1 " + planes, planes, "# NCCL before 2.21 needs"},
		{"shared, with other names", []string{"v100", "v100-7"}, func(o *Options) {
			o.Shared, o.Prefix = true, SharedPrefix
		}, "", "", "the rails have other names on other nodes"},
		{"a share of a Fabric", []string{"gb200"}, func(o *Options) { o.Prefix = AgentPrefix }, "", "",
			"which one it gets is not known before"},
	} {
		for _, kind := range []string{"pod", "deployment", "pytorchjob", "mpijob", "volcano"} {
			o := options()
			c.set(&o)
			nodes := open(t, c.nodes...)
			for i := range nodes[len(nodes)-1].HCAs {
				if len(nodes) > 1 {
					nodes[len(nodes)-1].HCAs[i].Name = fmt.Sprintf("mlx5_%d", 20+i)
				}
			}
			text, err := Generate(kind, nodes, o)
			if err != nil {
				t.Errorf("%s, %s: %v", c.name, kind, err)
				continue
			}
			want, comment := c.want, c.comment
			if kind == "mpijob" {
				want, comment = strings.TrimSpace("NCCL_DEBUG=INFO "+c.mpi), "RDMA mode the pod sees"
			}
			first, _, _ := strings.Cut(text, "    Worker:\n      replicas: 1") // of the pods of a PyTorchJob
			var got []string
			for _, m := range variable.FindAllStringSubmatch(first, -1) {
				got = append(got, m[1]+m[3]+"="+m[2]+m[4])
			}
			if strings.Join(got, " ") != want || !strings.Contains(text, comment) {
				t.Errorf("%s, %s: %q, want %q and %q in:\n%s", c.name, kind, got, want, comment, text)
			}
		}
	}
}
