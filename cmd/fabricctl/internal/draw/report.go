package draw

import (
	"fmt"
	"html/template"
	"io"
	"slices"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

// spot is one field of the heat map: a pair on one rail, one way.
type spot struct {
	Text   string
	Title  string
	Colour template.CSS
}

type heat struct {
	Rail  string
	Names []string
	Rows  [][]spot
}

var reportPage = template.Must(template.New("report").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>fabricctl verify</title><style>{{.Style}}
.map td{width:84px;text-align:center}.map th{white-space:nowrap}.all td:nth-child(-n+6){white-space:nowrap}
</style></head><body>
<h1>Bandwidth between pods: {{.Summary.Verdict}}</h1>
<p class="note">{{.Summary}}{{with .Time}}; {{.}}{{end}}. A field is the average of ib_write_bw from
the row to the column, in percent of the slower port's rate: green is good, yellow too slow, red less than half of what
is good. &ndash;: this way was not measured.</p>
{{with .Findings}}<ul>{{range .}}<li class="down">{{.}}</li>{{end}}</ul>{{end}}
{{with .NCCL}}<p>NCCL all_reduce: <b>{{.Verdict}}</b>: {{.Text}}</p>{{end}}
{{range .Maps}}<h2>Rail {{.Rail}}</h2>
{{$names := .Names}}<table class="map"><tr><th></th>{{range .Names}}<th>{{.}}</th>{{end}}</tr>
{{range $i, $row := .Rows}}<tr><th>{{index $names $i}}</th>
{{range $row}}<td style="background:{{.Colour}}" title="{{.Title}}">{{.Text}}</td>{{end}}</tr>
{{end}}</table>
{{end}}<h2>All results</h2>
<table class="all"><tr><th>round</th><th>from</th><th>to</th><th>rail</th><th>HCA</th><th>ping</th><th>GID</th>
<th>Gb/s</th><th>back</th><th>of</th><th>latency, us</th><th>verdict</th><th>what it says</th></tr>
{{range .Results}}<tr><td>{{.Round}}</td><td title="{{.NodeA}}">{{.A}}</td><td title="{{.NodeB}}">{{.B}}</td>
<td>{{.Rails}}</td><td>{{.HCA}}</td>
<td>{{.Ping}}</td><td>{{.GID}}</td><td>{{with .Bandwidth}}{{printf "%.1f" .AverageGb}}{{end}}</td>
<td>{{with .Reverse}}{{printf "%.1f" .AverageGb}}{{end}}</td><td>{{.RateGb}}</td>
<td>{{with .Latency}}{{.Typical}}{{end}}</td>
<td class="{{if eq .Verdict "good"}}active{{else if ne .Verdict "skipped"}}down{{end}}">{{.Verdict}}</td>
<td>{{.Text}}</td></tr>
{{end}}</table>
{{with .NotTested}}<h2>Not tested</h2><ul>{{range .}}<li>{{.}}</li>{{end}}</ul>{{end}}</body></html>
`))

// lane is a rail of the row, and one of the column.
type lane struct{ a, b string }

func (l lane) String() string {
	if l.a == l.b {
		return l.a
	}
	return l.a + " to " + l.b
}

// path is a lane between two ends.
type path struct {
	a, b string
	lane
}

// Report writes one page with a heat map per rail, and every result as text.
func Report(w io.Writer, report *perftest.Report) error {
	var names []string
	var lanes []lane
	known := map[any]bool{}
	paths := map[path]*perftest.Result{}
	for i := range report.Results {
		r := &report.Results[i]
		l := lane{r.Rail, r.RailB}
		if l.b == "" {
			l.b = l.a
		}
		paths[path{r.A, r.B, l}] = r
		for _, name := range []string{r.A, r.B} {
			if !known[name] {
				known[name], names = true, append(names, name)
			}
		}
		if !known[l] {
			known[l], lanes = true, append(lanes, l)
		}
	}
	slices.Sort(names)
	slices.SortFunc(lanes, func(a, b lane) int {
		if (a.a == a.b) != (b.a == b.b) { // own rails first
			if a.a == a.b {
				return -1
			}
			return 1
		}
		return slices.Compare([]string{a.a, a.b}, []string{b.a, b.b})
	})
	var maps []heat
	for _, l := range lanes {
		h := heat{Rail: l.String(), Names: names}
		for _, a := range names {
			var row []spot
			for _, b := range names {
				row = append(row, field(paths, a, b, l))
			}
			h.Rows = append(h.Rows, row)
		}
		maps = append(maps, h)
	}
	return reportPage.Execute(w, struct {
		*perftest.Report
		Maps  []heat
		Style template.CSS
	}{report, maps, style})
}

// field is the colour of one pair on one rail, from a to b. What was measured from b to a says nothing of it.
func field(paths map[path]*perftest.Result, a, b string, l lane) spot {
	r, bandwidth := paths[path{a, b, l}], (*perftest.Bandwidth)(nil)
	if r != nil {
		bandwidth = r.Bandwidth
	} else if r = paths[path{b, a, lane{l.b, l.a}}]; r != nil {
		bandwidth = r.Reverse
	}
	if r == nil {
		return spot{Colour: "#f4f6f8"}
	}
	s := spot{Title: r.Text}
	switch {
	case bandwidth == nil && r.Verdict == perftest.Failed && r.Bandwidth == nil && r.Reverse == nil:
		s.Text, s.Colour = "failed", "#d7301f"
	case bandwidth == nil && r.Verdict == perftest.Good && r.RailB != "" && r.Bandwidth == nil:
		s.Text, s.Colour = "apart", "#dfe5ea"
	case r.Bandwidth == nil && r.Reverse == nil && r.Ping == "reachable" && r.Reached == nil: // ping goes both ways
		s.Text, s.Colour = r.Ping, "#dfe5ea"
	case bandwidth == nil || r.RateGb == 0:
		s.Text, s.Colour = "–", "#dfe5ea"
	default:
		percent := 100 * bandwidth.AverageGb / r.RateGb
		s.Text = fmt.Sprintf("%.0f %%", percent)
		s.Colour = colour(percent, r.Verdict)
	}
	return s
}

// colour is that of a share of the rate: three steps, of which the threshold is a border, so that slow is not green.
func colour(percent float64, v perftest.Verdict) template.CSS {
	switch {
	case percent >= perftest.Threshold, v == perftest.Good: // by another threshold, it may be
		return "#8ae68a"
	case percent >= perftest.Threshold/2:
		return "#ffd54f"
	}
	return "#ef9a9a"
}
