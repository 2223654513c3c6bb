package cli

import (
	"io"
	"strconv"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/draw"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

// print prints the report in the format of --output.
func (v *verification) print(report *perftest.Report) error {
	switch v.format {
	case "json", "yaml":
		return v.structured(v.format, *report)
	case "junit":
		return v.document(func(w io.Writer) error { return printJUnit(w, report) })
	case "html":
		return v.document(func(w io.Writer) error { return draw.Report(w, report) })
	}
	v.printTable(report)
	return nil
}

var verdictColours = map[perftest.Verdict]string{perftest.Good: good, perftest.Slow: warn, perftest.Failed: bad}

func (v *verification) printTable(report *perftest.Report) {
	t := newTable("ROUND", "A", "B", "RAIL", "HCA", "PING", "VERDICT", "RESULT")
	if v.format == "wide" {
		t.header = append(t.header, "RTT-MS", "RPING", "GID", "GBPS", "BACK", "GPU", "OF", "LATENCY-US", "NODE-A",
			"NODE-B")
	}
	for i := range report.Results {
		r := &report.Results[i]
		row := []any{r.Round, r.A, r.B, r.Rails(), r.HCA, r.Ping,
			cell{string(r.Verdict), verdictColours[r.Verdict]}, r.Text}
		if v.format == "wide" {
			latency := 0.0
			if r.Latency != nil {
				latency = r.Latency.Typical
			}
			row = append(row, figure(r.RTT), r.RPing, r.GID, averageOf(r.Bandwidth), averageOf(r.Reverse),
				averageOf(r.GPU), figure(r.RateGb), figure(latency), r.NodeA, r.NodeB)
		}
		t.add(row...)
	}
	t.print(v.console)
	if n := report.NCCL; n != nil {
		v.stdout.Printf("NCCL all_reduce: %s: %s\n", v.coloured(verdictColours[n.Verdict], string(n.Verdict)), n.Text)
	}
	for _, f := range report.Findings {
		v.stdout.Printf("finding: %s\n", v.coloured(bad, f))
	}
	v.stdout.Printf("%s\n", v.coloured(verdictColours[report.Summary.Verdict], report.Summary.String()))
	for _, text := range report.NotTested {
		v.stdout.Printf("%s\n", v.coloured(dim, text))
	}
}

// averageOf is what was measured, or nothing.
func averageOf(b *perftest.Bandwidth) string {
	if b == nil {
		return ""
	}
	return figure(b.AverageGb)
}

// figure is a number as people write it, and nothing for none.
func figure(v float64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
