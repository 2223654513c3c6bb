package perftest

// Report is everything that one run has found.
type Report struct {
	Time      string        `json:"time"`    // of the end, RFC 3339
	Seconds   float64       `json:"seconds"` // that it took
	Summary   Summary       `json:"summary"`
	Findings  []string      `json:"findings"`  // what is wrong and no single result says
	NotTested []string      `json:"notTested"` // what was left out, and why; nothing that was asked for
	Nodes     []NodeVerdict `json:"nodes"`
	NCCL      *NCCL         `json:"nccl,omitempty"`
	Results   []Result      `json:"results"`
}

// NewReport judges results. The notes say what was not tested.
func NewReport(list []Result, notes []string) *Report {
	r := &Report{Results: list, Findings: Wiring(list), NotTested: notes}
	r.Sum()
	return r
}

// Sum counts again, after results have changed. Lists are never null in JSON.
func (r *Report) Sum() {
	r.Summary, r.Nodes = Summarize(r.Results), Nodes(r.Results)
	if len(r.Findings) > 0 {
		r.Summary.Verdict = Worse(r.Summary.Verdict, Slow)
	}
	if r.NCCL != nil {
		r.Summary.Verdict = Worse(r.Summary.Verdict, r.NCCL.Verdict)
	}
	for _, list := range []*[]string{&r.Findings, &r.NotTested} {
		if *list == nil {
			*list = []string{}
		}
	}
	if r.Nodes == nil {
		r.Nodes = []NodeVerdict{}
	}
	if r.Results == nil {
		r.Results = []Result{}
	}
}
