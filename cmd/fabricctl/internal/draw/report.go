package draw

import (
	"fmt"
	"html/template"
	"io"
	"slices"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

// spot is one field of the heat map: a pair on one rail.
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
<h1>Bandwidth between pods: {{.Worst}}</h1>
<p class="note">Part of the slower port's rate, averages of ib_write_bw; from 90 % on a path is good. A field without
a figure was reached by ping only.</p>
{{range .Maps}}<h2>Rail {{.Rail}}</h2>
{{$names := .Names}}<table class="map"><tr><th></th>{{range .Names}}<th>{{.}}</th>{{end}}</tr>
{{range $i, $row := .Rows}}<tr><th>{{index $names $i}}</th>
{{range $row}}<td style="background:{{.Colour}}" title="{{.Title}}">{{.Text}}</td>{{end}}</tr>
{{end}}</table>
{{end}}<h2>All results</h2>
<table class="all"><tr><th>round</th><th>from</th><th>to</th><th>rail</th><th>HCA</th><th>ping</th><th>GID</th>
<th>Gb/s</th><th>of</th><th>latency, us</th><th>verdict</th><th>what it says</th></tr>
{{range .Results}}<tr><td>{{.Round}}</td><td>{{.A}}</td><td>{{.B}}</td><td>{{.Rail}}</td><td>{{.HCA}}</td>
<td>{{.Ping}}</td><td>{{.GID}}</td><td>{{with .Bandwidth}}{{printf "%.1f" .AverageGb}}{{end}}</td><td>{{.RateGb}}</td>
<td>{{with .Latency}}{{.Typical}}{{end}}</td>
<td class="{{if eq .Verdict "good"}}active{{else if ne .Verdict "skipped"}}down{{end}}">{{.Verdict}}</td>
<td>{{.Text}}</td></tr>
{{end}}</table></body></html>
`))

// Report writes one page with a heat map per rail, and every result as text.
func Report(w io.Writer, list []perftest.Result) error {
	var names, rails []string
	add := func(list []string, s string) []string {
		if slices.Contains(list, s) {
			return list
		}
		return append(list, s)
	}
	for _, r := range list {
		names, rails = add(add(names, r.A), r.B), add(rails, r.Rail)
	}
	slices.Sort(names)
	slices.Sort(rails)
	var maps []heat
	for _, rail := range rails {
		h := heat{Rail: rail, Names: names}
		for _, a := range names {
			var row []spot
			for _, b := range names {
				row = append(row, field(list, a, b, rail))
			}
			h.Rows = append(h.Rows, row)
		}
		maps = append(maps, h)
	}
	return reportPage.Execute(w, struct {
		Worst   perftest.Verdict
		Maps    []heat
		Results []perftest.Result
		Style   template.CSS
	}{perftest.Worst(list), maps, list, style})
}

// field is the colour of one pair. A pair is measured once, and shown in both directions.
func field(list []perftest.Result, a, b, rail string) spot {
	i := slices.IndexFunc(
		list,
		func(r perftest.Result) bool { return r.Rail == rail && (r.A == a && r.B == b || r.A == b && r.B == a) },
	)
	if i < 0 {
		return spot{Colour: "#f4f6f8"}
	}
	r := &list[i]
	s := spot{Title: r.Text}
	switch {
	case r.Verdict == perftest.Failed:
		s.Text, s.Colour = "failed", "#d7301f"
	case r.Bandwidth == nil || r.RateGb == 0:
		s.Text, s.Colour = r.Ping, "#dfe5ea"
	default:
		percent := 100 * r.Bandwidth.AverageGb / r.RateGb
		s.Text = fmt.Sprintf("%.0f %%", percent)
		// From red over yellow to green: hue 0 at half the threshold and below, 120 at the threshold.
		hue := max(0, min(1, 2*percent/perftest.Threshold-1)) * 120
		if r.Verdict == perftest.Good { // by another threshold, it may be
			hue = 120
		}
		s.Colour = template.CSS(fmt.Sprintf("hsl(%.0f,65%%,72%%)", hue))
	}
	return s
}
