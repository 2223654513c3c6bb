package cli

import (
	"fmt"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
)

// roles prints what the pods of manifests ask for.
func (j *jobCheck) roles(rows []doctor.RoleRow) {
	if len(rows) == 0 {
		return
	}
	t := newTable("WORKLOAD", "ROLE", "PODS", "GPUS", "NETWORKS", "DEVICES")
	for _, r := range rows {
		pods := any(r.Pods)
		if r.Pods < 0 {
			pods = "one per node"
		}
		t.add(r.Workload, r.Role, pods, r.GPUs, strings.Join(r.Networks, ","), strings.Join(r.Devices, ", "))
	}
	t.print(j.console)
}

// workers prints what the pods of a job do.
func (j *jobCheck) workers(rows []doctor.WorkerRow) {
	if len(rows) == 0 {
		return
	}
	t := newTable("WORKER", "NODE", "GPUS", "RAILS", "USES", "NET", "SEND/RECEIVE GB/S OF EACH RAIL")
	for _, r := range rows {
		has, uses := fmt.Sprint(r.Has), fmt.Sprint(len(r.Uses))
		if r.Has < 0 {
			has = ""
		}
		if r.Network == "" {
			uses = ""
		}
		network := cell{text: r.Network}
		switch {
		case r.Network == "Socket":
			network = cell{"TCP", bad}
		case r.Direct:
			network = cell{r.Network + "/GDRDMA", good}
		}
		name := strings.TrimPrefix(r.Pod, j.namespace+"/")
		if r.Phase != "Running" {
			name += " (" + r.Phase + ")"
		}
		t.add(name, r.Node, r.GPUs, has, uses, network, traffic(r.Rails))
	}
	t.print(j.console)
}

// traffic is the traffic of the rails of a worker, in one cell.
func traffic(rails []doctor.RailRow) string {
	var out []string
	for _, r := range rails {
		text := fmt.Sprintf("%s %.1f/%.1f", r.Port, r.SendGb, r.ReceiveGb)
		if !r.Counted {
			text = r.Port + " ?"
		}
		if r.State != "ACTIVE" {
			text += " " + r.State
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}
