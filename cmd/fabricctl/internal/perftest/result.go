package perftest

// Result is the outcome for one rail of one pair.
type Result struct {
	Round     int        `json:"round"` // from 1
	A         string     `json:"a"`
	B         string     `json:"b"`
	Rail      string     `json:"rail"` // interface
	HCA       string     `json:"hca,omitempty"`
	Ping      string     `json:"ping"`          // what ICMP said, in words
	RTT       float64    `json:"rtt,omitempty"` // ms, average
	GID       string     `json:"gid,omitempty"` // whether the two GIDs can reach each other, in words
	RateGb    float64    `json:"rateGb"`        // of the slower port
	Bandwidth *Bandwidth `json:"bandwidth,omitempty"`
	Latency   *Latency   `json:"latency,omitempty"`
	Verdict   Verdict    `json:"verdict"`
	Text      string     `json:"text"`
}

// Worst is the worst verdict of all: failed, slow, good; skipped only if all are.
func Worst(list []Result) Verdict {
	worst := Skipped
	rank := map[Verdict]int{Skipped: 0, Good: 1, Slow: 2, Failed: 3}
	for _, r := range list {
		if rank[r.Verdict] > rank[worst] {
			worst = r.Verdict
		}
	}
	return worst
}
