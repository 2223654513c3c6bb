package draw

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/subnet"
)

// Sizes of the picture of a fabric in pixels, and how many of each it shows.
const (
	fabricW   = 1200 // at least: the switches of a level are side by side, so that no line runs over one
	switchW   = 104
	groupW    = 220
	faultyW   = 374
	mostBoxes = 40 // switches of a level, and groups
	mostBad   = 30 // nodes with faults
	mostHosts = 16 // so many nodes are shown one by one, more as groups
)

// Colours of what is in order, and of what is not.
const (
	calm, calmEdge     = "#f4f6f8", "#8a949e"
	host, hostEdge     = "#e3f2fd", "#1565c0"
	faulty, faultyEdge = "#fbe9e7", "#b3261e"
)

// chart is a picture in the making: lines are below boxes.
type chart struct {
	lines, boxes strings.Builder
	y            int
	width        int
	at           map[string][2]int // middle of a switch' box
}

// box is one card, with what it says and which switches it has lines to.
type box struct {
	title, hover string
	lines        []string
	fill, edge   string
	to           []line
}

type line struct {
	to    string
	bad   bool
	hover string
}

// TopologySVG draws the fabric: spines above leaves, below them the nodes; what is wrong is red.
func TopologySVG(w io.Writer, t *subnet.Topology) error {
	c := chart{y: 84, width: fabricW, at: map[string][2]int{}}
	top, count := 0, map[int]int{}
	for i := range t.Switches {
		level := t.Switches[i].Level
		count[level]++
		top, c.width = max(top, level), max(c.width, 2*margin+min(count[level], mostBoxes)*(switchW+gap)-gap)
	}
	for level := top; level >= 0; level-- {
		c.level(t, level)
	}
	var good, wrong []box
	nodes := map[string]*subnet.NodePlace{}
	for i := range t.Nodes {
		n := &t.Nodes[i]
		nodes[n.Node] = n
		if len(n.Faults) > 0 {
			wrong = append(wrong, faultyBox(n))
		}
	}
	for i := range t.Groups {
		g := &t.Groups[i]
		if len(t.Nodes) > mostHosts {
			good = append(good, groupBox(g, fmt.Sprintf("%d nodes", len(g.Nodes)), g.Nodes[0]+" to "+
				g.Nodes[len(g.Nodes)-1]))
			continue
		}
		for _, name := range g.Nodes {
			if n := nodes[name]; n == nil || len(n.Faults) == 0 {
				good = append(good, groupBox(g, name, "in order"))
			}
		}
	}
	c.row("nodes that are cabled alike", good, groupW, mostBoxes)
	c.row("nodes with faults", wrong, faultyW, mostBad)
	height := c.y + margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="fabric">`, c.width, height, c.width,
		height)
	fmt.Fprintf(&b, "\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", c.width, height)
	found := map[doctor.Status]int{}
	for _, f := range t.Findings {
		found[f.Status]++
	}
	text(&b, margin, 32, 20, "#1a1a1a", "bold", fmt.Sprintf("%d nodes, %d ports of HCAs, %d switches", len(t.Nodes),
		len(t.Ports), len(t.Switches)))
	text(&b, margin, 54, 13, "#555555", "", clip(fmt.Sprintf("%d wrong, %d to look at; %s", found[doctor.Fail],
		found[doctor.Warn], t.Reason), 150))
	b.WriteString(c.lines.String() + c.boxes.String() + "</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// level draws the switches of a level. Those that lack links come first where not all have room.
func (c *chart) level(t *subnet.Topology, level int) {
	var list []box
	for _, bad := range []bool{true, false} {
		for i := range t.Switches {
			if s := &t.Switches[i]; s.Level == level && s.Bad == bad {
				list = append(list, switchBox(s))
			}
		}
	}
	if len(list) <= mostBoxes {
		slices.SortStableFunc(list, func(a, b box) int { return cmp.Compare(order(t, a.title), order(t, b.title)) })
	}
	name := map[int]string{0: "no HCA below", 1: "leaves", 2: "spines", 3: "core"}[level]
	c.row(fmt.Sprintf("level %d: %s", level, name), list, switchW, mostBoxes)
}

func order(t *subnet.Topology, name string) int {
	return slices.IndexFunc(t.Switches, func(s subnet.SwitchPlace) bool { return s.Name == name })
}

func switchBox(s *subnet.SwitchPlace) box {
	b := box{title: s.Name, hover: s.ID + "\n" + s.Description, fill: calm, edge: calmEdge,
		lines: []string{fmt.Sprintf("%d HCA ports", s.Hosts)}}
	if s.Hosts == 0 {
		b.lines = []string{"switch"}
	}
	usual := 0
	for _, u := range s.Above {
		usual = max(usual, u.Links)
	}
	if s.Bad {
		b.fill, b.edge = faulty, faultyEdge
		b.lines = append(b.lines, fmt.Sprintf("%d uplinks", s.Uplinks))
	}
	for _, u := range s.Above {
		b.to = append(b.to, line{u.Switch, s.Bad && u.Links < usual, fmt.Sprintf("%s to %s: %d links", s.Name, u.Switch,
			u.Links)})
	}
	return b
}

func groupBox(g *subnet.GroupPlace, title, what string) box {
	b := box{title: title, hover: strings.Join(g.Nodes[:min(len(g.Nodes), 100)], "\n"), fill: host, edge: hostEdge}
	var leaves []string
	for _, r := range g.Rails {
		if r.Leaf != "" && !slices.Contains(leaves, r.Leaf) {
			leaves = append(leaves, r.Leaf)
			b.to = append(b.to, line{to: r.Leaf, hover: r.Rail + " on " + r.Leaf})
		}
	}
	b.lines = []string{what, fmt.Sprintf("rails: %d, leaves: %d", len(g.Rails), len(leaves))}
	return b
}

func faultyBox(n *subnet.NodePlace) box {
	b := box{title: n.Node, hover: n.Node, fill: faulty, edge: faultyEdge}
	const most = 8
	for i, f := range n.Faults {
		if i == most {
			b.lines = append(b.lines, fmt.Sprintf("and %d more", len(n.Faults)-most))
			break
		}
		at := ""
		if f.Leaf != "" {
			at = ", is on " + f.Leaf
			b.to = append(b.to, line{f.Leaf, true, n.Node + ": " + f.Text})
		}
		b.lines = append(b.lines, f.Text+at)
	}
	return b
}

// row draws boxes side by side, in as many rows as they need, and lines to switches that are drawn.
func (c *chart) row(title string, list []box, width, most int) {
	if len(list) == 0 {
		return
	}
	more := len(list) - most
	if more > 0 {
		list = list[:most]
		title += fmt.Sprintf(" (%d of %d)", most, most+more)
	}
	text(&c.boxes, margin, c.y, 12, "#777777", "", title)
	c.y += 10
	per := (c.width - 2*margin + gap) / (width + gap)
	for rows := range slices.Chunk(list, per) {
		height := 0
		for i := range rows {
			height = max(height, 28+16*len(rows[i].lines))
		}
		left := (c.width - len(rows)*(width+gap) + gap) / 2
		for i := range rows {
			c.draw(&rows[i], left+i*(width+gap), width, height)
		}
		c.y += height + gap
	}
	c.y += 44
}

func (c *chart) draw(b *box, x, width, height int) {
	fmt.Fprintf(
		&c.boxes,
		"<g class=\"card\"><title>%s</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" "+
			"fill=\"%s\" stroke=\"%s\"/>",
		html.EscapeString(clip(b.hover, 4096)),
		x,
		c.y,
		width,
		height,
		b.fill,
		b.edge,
	)
	room := (width - 12) / 7
	text(&c.boxes, x+6, c.y+18, 12, "#1a1a1a", "bold", clip(b.title, room-1))
	for i, l := range b.lines {
		text(&c.boxes, x+6, c.y+35+16*i, 11, "#444444", "", clip(l, room))
	}
	c.boxes.WriteString("</g>\n")
	for _, l := range b.to {
		to, ok := c.at[l.to]
		if !ok {
			continue
		}
		stroke, thick := "#c5ccd3", "1"
		if l.bad {
			stroke, thick = faultyEdge, `2" stroke-dasharray="5 3`
		}
		fmt.Fprintf(
			&c.lines,
			"<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"%s\"><title>%s"+
				"</title></line>\n",
			x+width/2,
			c.y,
			to[0],
			to[1],
			stroke,
			thick,
			html.EscapeString(l.hover),
		)
	}
	if width == switchW {
		c.at[b.title] = [2]int{x + width/2, c.y + height}
	}
}

var topologyPage = template.Must(template.New("topology").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>fabricctl topology</title><style>{{.Style}}</style></head><body>
{{.Picture}}
{{range .T.Notes}}<p class="note">{{.}}</p>
{{end}}{{if .T.Findings}}<h2>Findings</h2>
<table><tr><th>status</th><th>id</th><th>evidence</th><th>cure</th></tr>
{{range .T.Findings}}<tr><td class="{{if eq .Status "OK"}}active{{else}}down{{end}}">{{.Status}}</td><td>{{.ID}}</td>
<td>{{.Evidence}}</td><td>{{.Cure}}</td></tr>
{{end}}</table>{{end}}
<h2>Switches</h2>
<div class="wide"><table><tr><th>switch</th><th>level</th><th>HCA ports</th><th>uplinks</th><th>Gb/s down</th>
<th>Gb/s up</th><th>id</th><th>description</th></tr>
{{range .T.Switches}}<tr><td{{if .Bad}} class="down"{{end}}>{{.Name}}</td><td>{{.Level}}</td><td>{{.Hosts}}</td>
<td>{{.Uplinks}}</td><td>{{.DownGb}}</td><td>{{.UpGb}}</td><td>{{.ID}}</td><td>{{.Description}}</td></tr>
{{end}}</table></div></body></html>
`))

// TopologyHTML writes one page with the picture, the findings and the switches.
func TopologyHTML(w io.Writer, t *subnet.Topology) error {
	var picture strings.Builder
	if err := TopologySVG(&picture, t); err != nil {
		return err
	}
	return topologyPage.Execute(w, struct {
		T       *subnet.Topology
		Picture template.HTML
		Style   template.CSS
	}{t, template.HTML(picture.String()), style})
}
