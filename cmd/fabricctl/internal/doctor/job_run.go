package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Worker is a pod of a job that runs.
type Worker struct {
	Pod      *Manifest
	Role     string
	Launcher bool
	Log      *RankLog // nil: no log, or it could not be read
	Seen     *Seen    // nil: nothing could be run in it
}

// WorkerRow is what doctor job prints of a worker.
type WorkerRow struct {
	Pod     string       `json:"pod"`
	Node    string       `json:"node,omitempty"`
	Role    string       `json:"role,omitempty"`
	Phase   string       `json:"phase"`
	GPUs    int          `json:"gpus"`
	Has     int          `json:"has"`     // rails; -1: not known
	Uses    []string     `json:"uses"`    // ports, by NCCL's log
	Network string       `json:"network"` // by NCCL's log: IB, Socket, the name of a plugin; empty: not known
	Direct  bool         `json:"gpuDirect"`
	Version string       `json:"nccl,omitempty"`
	Rails   []RailRow    `json:"rails"` // by the counters
	Memory  *MemoryOfPod `json:"memory,omitempty"`
}

// RailRow is the traffic of a port.
type RailRow struct {
	Port      string  `json:"port"`
	State     string  `json:"state"`
	SendGb    float64 `json:"sendGbps"`
	ReceiveGb float64 `json:"receiveGbps"`
	Counted   bool    `json:"counted"`
}

// MemoryOfPod is the memory of the container that was looked into, in bytes.
type MemoryOfPod struct {
	Cgroup   int   `json:"cgroup"` // version
	Limit    int64 `json:"limit"`  // -1: none
	Used     int64 `json:"used"`
	Shm      int64 `json:"shm"`    // of used
	Pinned   int64 `json:"pinned"` // registered with RDMA devices
	OOMKills int64 `json:"oomKills"`
}

func (w *Worker) name() string { return w.Pod.Metadata.Namespace + "/" + w.Pod.Metadata.Name }

func (w *Worker) at() string {
	if w.Pod.Spec.Node == "" {
		return w.name()
	}
	return w.name() + " on " + w.Pod.Spec.Node
}

// Row is what is known of the worker.
func (w *Worker) Row() WorkerRow {
	r := WorkerRow{Pod: w.name(), Node: w.Pod.Spec.Node, Role: w.Role, Phase: w.Pod.Status.Phase, GPUs: w.Pod.gpus(),
		Has: w.has(), Uses: []string{}, Rails: []RailRow{}}
	if w.Log != nil {
		r.Uses, r.Network, r.Version = append(r.Uses, w.Log.used()...), w.Log.network(), w.Log.Version
		r.Direct = w.Log.Direct > 0
	}
	if w.Seen == nil {
		return r
	}
	for _, p := range w.Seen.Ports {
		if p.Given {
			r.Rails = append(r.Rails, RailRow{p.Name, p.State, w.gbps(p.Send), w.gbps(p.Receive),
				p.Counted && w.Seen.Seconds > 0})
		}
	}
	if s := w.Seen; s.Cgroup > 0 {
		r.Memory = &MemoryOfPod{s.Cgroup, s.Limit, s.Used, s.Shm, s.Pinned, s.OOMKills}
	}
	return r
}

// gbps is a rate in Gb/s.
func (w *Worker) gbps(n uint64) float64 {
	if w.Seen.Seconds <= 0 {
		return 0
	}
	const giga, bits, places = 1e9, 8, 100
	return math.Round(float64(n)*bits/giga/w.Seen.Seconds*places) / places
}

// has is how many rails a worker has: what it sees, else its networks; -1: not known.
func (w *Worker) has() (n int) {
	if w.Seen != nil {
		for _, p := range w.Seen.Ports {
			if p.Given {
				n++
			}
		}
		return n
	}
	want, err := networks(w.Pod.Metadata.Annotations[networksAnnotation], w.Pod.Metadata.Namespace)
	if err != nil || len(want) == 0 {
		return -1
	}
	return len(want)
}

// computes reports whether a worker is to use RDMA.
func (w *Worker) computes() bool { return !w.Launcher && (w.Pod.gpus() > 0 || w.Pod.wants(nil)) }

// CheckWorkers says what is wrong with a job that runs.
func CheckWorkers(list []Worker) (out []Finding) {
	var work []Worker
	for _, w := range list {
		if w.computes() {
			work = append(work, w)
		}
	}
	if len(work) == 0 {
		return one(finding("job-devices", Warn, "its pods ask neither for GPUs nor for RDMA devices"))
	}
	for _, check := range []func([]Worker) []Finding{jobRunning, jobNet, jobDebug, jobContents, jobRails, jobDiffers,
		jobGDR, jobWarnings, jobTraffic, jobMemory} {
		out = append(out, bounded(check(work))...)
	}
	return out
}

func jobRunning(list []Worker) (out []Finding) {
	for _, w := range list {
		switch phase := w.Pod.Status.Phase; phase {
		case "Running", "Succeeded", "":
		case "Failed":
			out = append(out, finding("job-running", Fail, w.at()+" is Failed"))
		default:
			out = append(out, finding("job-running", Warn, w.at()+" is "+phase))
		}
	}
	return pass(out, "job-running", fmt.Sprintf("%d %s", len(list), plural(len(list), "pod")))
}

// spoken are the workers whose logs say something of the network.
func spoken(list []Worker) (out []Worker) {
	for _, w := range list {
		if w.Log != nil && w.Log.spoken() {
			out = append(out, w)
		}
	}
	return out
}

func jobNet(list []Worker) (out []Finding) {
	said := spoken(list)
	for _, w := range said {
		l := w.Log
		if !l.tcp() && l.network() != "Socket" {
			continue
		}
		text := w.at() + ": NCCL uses TCP (NET/Socket"
		if len(l.Socket) > 0 {
			text += " over " + few(l.Socket)
		}
		text += ")"
		if l.None {
			text += "; NET/IB : No device found"
		}
		for _, k := range []string{"NCCL_IB_DISABLE", "NCCL_NET", "NCCL_IB_HCA"} {
			if v := l.Env[k]; v != "" {
				text += "; " + k + "=" + v
			}
		}
		if n := w.has(); n > 0 {
			text += fmt.Sprintf("; the pod has %d %s", n, plural(n, "rail"))
		}
		status := Fail
		if l.Nodes == 1 || len(list) == 1 && len(l.Via) == 0 { // nothing leaves the node
			status, text = Warn, text+"; all ranks are on one node, so nothing goes over it yet"
		}
		out = append(out, finding("job-net", status, text))
	}
	if len(said) == 0 {
		return nil
	}
	return pass(out, "job-net", fmt.Sprintf("%d of %d workers say that they use %s", len(said), len(list),
		cmp.Or(said[0].Log.network(), "RDMA")))
}

func jobDebug(list []Worker) []Finding {
	var silent []string
	why := ""
	for _, w := range list {
		started := w.Pod.Status.Phase == "Running" || w.Pod.Status.Phase == "Succeeded"
		if started && (w.Log == nil || !w.Log.spoken()) {
			silent = append(silent, w.name())
			why = cmp.Or(why, w.debug())
		}
	}
	if len(silent) == 0 {
		return nil
	}
	return one(finding("job-debug", Warn, fmt.Sprintf("%d of %d workers: nothing of NCCL's network in the log (%s): %s",
		len(silent), len(list), why, few(silent))))
}

// debug is what the manifest says of NCCL's log. A launcher may have set it for the workers.
func (w *Worker) debug() string {
	for _, c := range w.Pod.working() {
		vars := c.vars()
		level := vars["NCCL_DEBUG"].Value
		switch file := vars["NCCL_DEBUG_FILE"].Value; {
		case file != "":
			return "NCCL_DEBUG_FILE=" + file + " takes it"
		case strings.EqualFold(level, "INFO") || strings.EqualFold(level, "TRACE"):
			return "NCCL_DEBUG=" + level + " is set"
		case level != "":
			return "NCCL_DEBUG=" + level + " is too little: INFO"
		}
	}
	return "the manifest does not set NCCL_DEBUG"
}

// jobContents judges the manifest of one worker of each role, as before a job is applied.
func jobContents(list []Worker) (out []Finding) {
	seen := map[string]bool{}
	for _, w := range list {
		if seen[w.Role] {
			continue
		}
		seen[w.Role] = true
		for _, f := range CheckContents(w.Pod, nil) {
			if f.Status != OK {
				f.Evidence = w.name() + ": " + f.Evidence
				out = append(out, f)
			}
		}
	}
	return out
}

func jobRails(list []Worker) (out []Finding) {
	n := 0
	for _, w := range spoken(list) {
		has, uses := w.has(), w.Log.used()
		if has <= 0 || w.Log.tcp() || len(uses) == 0 {
			continue
		}
		if n++; len(uses) < has {
			text := fmt.Sprintf("%s: NCCL uses %d of %d rails: %s", w.at(), len(uses), has, few(uses))
			if w.Seen != nil {
				text += "; not " + few(w.unused(uses))
			}
			if v := w.Log.Env["NCCL_IB_HCA"]; v != "" {
				text += "; NCCL_IB_HCA=" + v
			}
			out = append(out, finding("job-rails", Warn, text))
		}
	}
	if n == 0 {
		return nil
	}
	return pass(out, "job-rails", "NCCL uses each rail that the workers have")
}

// unused are the rails that NCCL does not use, with their state if it is not Active.
func (w *Worker) unused(uses []string) (out []string) {
	for _, p := range w.Seen.Ports {
		if p.Given && !slices.Contains(uses, p.Name) {
			text := p.Name
			if p.State != "ACTIVE" {
				text += " (" + p.State + ")"
			}
			out = append(out, text)
		}
	}
	return out
}

// jobDiffers finds workers that differ from most.
func jobDiffers(list []Worker) (out []Finding) {
	for _, what := range []struct {
		name string
		of   func(w *Worker) string
	}{
		{"rails", func(w *Worker) string {
			if n := w.has(); n >= 0 {
				return fmt.Sprint(n)
			}
			return ""
		}},
		{"rails that NCCL uses", func(w *Worker) string {
			if w.Log == nil || !w.Log.spoken() || w.Log.tcp() {
				return ""
			}
			return fmt.Sprint(len(w.Log.used()))
		}},
		{"network", func(w *Worker) string {
			if w.Log == nil || w.Log.tcp() { // jobNet says it
				return ""
			}
			return w.Log.network()
		}},
		{"version of NCCL", func(w *Worker) string {
			if w.Log == nil {
				return ""
			}
			return w.Log.Version
		}},
	} {
		by := map[string][]string{}
		for i := range list {
			if v := what.of(&list[i]); v != "" {
				by[v] = append(by[v], list[i].name())
			}
		}
		if len(by) < 2 {
			continue
		}
		values := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(by[b]), len(by[a])), cmp.Compare(a, b))
		})
		most := len(by[values[0]])
		if most == len(by[values[1]]) { // unknown which is right
			out = append(out, finding("job-differs", Warn, fmt.Sprintf("%s: %s of %s; %s of %s", what.name, values[0],
				few(by[values[0]]), values[1], few(by[values[1]]))))
			continue
		}
		for _, v := range values[1:] {
			out = append(out, finding("job-differs", Warn, fmt.Sprintf("%s: %s of %s, and %s of %d "+
				"others", what.name, v,
				few(by[v]), values[0], most)))
		}
	}
	return out
}

func jobGDR(list []Worker) []Finding {
	var without []string
	n := 0
	for _, w := range spoken(list) {
		if len(w.Log.Via) == 0 || w.Log.tcp() || w.Pod.gpus() == 0 {
			continue
		}
		if n++; w.Log.Direct == 0 {
			without = append(without, w.name())
		}
	}
	switch {
	case n == 0:
		return nil
	case len(without) > 0:
		return one(finding("job-gdr", Warn, fmt.Sprintf("%d of %d workers have no channel with GDRDMA: "+
			"%s", len(without),
			n, few(without))))
	}
	return one(finding("job-gdr", OK, fmt.Sprintf("%d workers", n)))
}

// jobWarnings explains what NCCL complained about.
func jobWarnings(list []Worker) (out []Finding) {
	seen := map[string]int{}
	for _, w := range list {
		if w.Log == nil || len(w.Log.Warned) == 0 {
			continue
		}
		for _, x := range Explain(strings.Join(w.Log.Warned, "\n")) {
			i, ok := seen[x.ID]
			if !ok {
				seen[x.ID] = len(out)
				f := finding("job-messages", Fail, w.at()+": "+x.Line)
				f.Cause, f.Cure, f.Docs = x.Cause, x.Cure, x.Docs
				out = append(out, f)
			} else if !strings.HasSuffix(out[i].Evidence, " and others") {
				out[i].Evidence += "; and others"
			}
		}
	}
	return out
}
