// Package draw makes pictures of a node and of measurements: SVG, and HTML pages that need nothing else.
package draw

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// Sizes in pixels of the picture.
const (
	gpuW, hcaW = 190, 306
	cardH      = 50
	gap        = 12
	boxW       = gpuW + hcaW + 3*gap
	margin     = 20
)

// Colours that tell rails and fabrics apart, also for people who see red and green alike.
var palette = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#666666"}

// place is one PCI root with what hangs off it.
type place struct {
	root  string
	ports []port
	gpus  []*node.GPU
}

// port is one port of an HCA, which gets a card of its own: the ports of a card may be in two fabrics. p is nil for an
// HCA without any.
type port struct {
	*node.HCA
	p    *node.Port
	many *node.Bundle // all functions of a PF, of which this is the first
}

// name is the HCA's, with the port's number where there are several.
func (p port) name() string {
	if len(p.Ports) < 2 {
		return p.Name
	}
	return fmt.Sprintf("%s:%d", p.Name, p.p.Number)
}

// is tells whether a port of a fabric is this one.
func (p port) is(f *topology.Port) bool { return p.p != nil && f.HCA == p.Name && f.Port == p.p.Number }

type numa struct {
	id     int
	places []place
}

func (p *place) rows() int { return max(len(p.ports), len(p.gpus), 1) }

func (p *place) height() int { return 26 + p.rows()*(cardH+gap) }

func (n *numa) height() int {
	h := 34
	for i := range n.places {
		h += n.places[i].height() + gap
	}
	return h
}

// layout sorts devices into NUMA nodes and PCI roots.
func layout(n *node.Node) []numa {
	type key struct {
		numa int
		root string
	}
	at := map[key]*place{}
	get := func(id int, path []string) *place {
		k := key{numa: id}
		if len(path) > 0 {
			k.root = path[0]
		}
		if at[k] == nil {
			at[k] = &place{root: k.root}
		}
		return at[k]
	}
	for _, b := range n.Bundles() {
		h := b.HCAs[0]
		p := get(h.NUMA, h.Place().Path)
		switch {
		case b.Many():
			p.ports = append(p.ports, port{h, nil, &b})
			continue
		case len(h.Ports) == 0:
			p.ports = append(p.ports, port{h, nil, nil})
		}
		for j := range h.Ports {
			p.ports = append(p.ports, port{h, &h.Ports[j], nil})
		}
	}
	for i := range n.GPUs {
		p := get(n.GPUs[i].NUMA, n.GPUs[i].Path)
		p.gpus = append(p.gpus, &n.GPUs[i])
	}
	byNUMA := map[int]*numa{}
	byPlace := func(a, b key) int { return cmp.Or(cmp.Compare(a.numa, b.numa), cmp.Compare(a.root, b.root)) }
	for _, k := range slices.SortedFunc(maps.Keys(at), byPlace) {
		if byNUMA[k.numa] == nil {
			byNUMA[k.numa] = &numa{id: k.numa}
		}
		byNUMA[k.numa].places = append(byNUMA[k.numa].places, *at[k])
	}
	var out []numa
	for _, id := range slices.Sorted(maps.Keys(byNUMA)) {
		out = append(out, *byNUMA[id])
	}
	return out
}

// SVG draws the node: NUMA nodes side by side, in each the PCI roots with their GPUs and HCAs, a badge for fabric and
// rail.
func SVG(w io.Writer, n *node.Node, f topology.Fabrics) error {
	var b strings.Builder
	numas := layout(n)
	width, height := 2*margin+max(1, len(numas))*(boxW+2*gap)+max(0, len(numas)-1)*gap, 0
	for i := range numas {
		height = max(height, numas[i].height())
	}
	top := 64
	height += top + 40 + 20*(len(f.Fabrics)+1)
	fmt.Fprintf(
		&b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="system-ui, `+
			`sans-serif" font-size="13" role="img" aria-label="node %s">`,
		width,
		height,
		width,
		height,
		html.EscapeString(n.Name),
	)
	fmt.Fprintf(&b, "\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", width, height)
	text(&b, margin, 30, 20, "#1a1a1a", "bold", n.Name)
	text(
		&b,
		margin,
		50,
		13,
		"#555555",
		"",
		fmt.Sprintf("%d RDMA devices, %d GPUs, RDMA mode %s", len(n.HCAs), len(n.GPUs), cmp.Or(n.RDMAMode, "unknown")),
	)
	x := margin
	for i := range numas {
		drawNUMA(&b, &numas[i], x, top, height-top-30-20*(len(f.Fabrics)+1), f)
		x += boxW + 3*gap
	}
	if len(numas) == 0 {
		text(&b, margin, top+20, 14, "#555555", "", "no RDMA device and no GPU")
	}
	legend(&b, margin, height-20*len(f.Fabrics)-12, width/8, f)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func drawNUMA(b *strings.Builder, n *numa, x, y, height int, f topology.Fabrics) {
	fmt.Fprintf(
		b,
		"<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#f4f6f8\" stroke=\"#c5ccd3\"/>\n",
		x,
		y,
		boxW+2*gap,
		height,
	)
	name := "NUMA node " + strconv.Itoa(n.id)
	if n.id < 0 {
		name = "NUMA node unknown"
	}
	text(b, x+gap, y+22, 14, "#333333", "bold", name)
	y += 34
	for i := range n.places {
		p := &n.places[i]
		fmt.Fprintf(
			b,
			"<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" fill=\"#ffffff\" stroke=\"#d9dee3\"/>\n",
			x+gap,
			y,
			boxW,
			p.height(),
		)
		text(b, x+2*gap, y+17, 11, "#777777", "", cmp.Or(p.root, "no PCI"))
		for j, g := range p.gpus {
			drawGPU(b, g, x+2*gap, y+24+j*(cardH+gap))
		}
		for j, h := range p.ports {
			if h.many != nil {
				drawMany(b, h.many, x+3*gap+gpuW, y+24+j*(cardH+gap))
				continue
			}
			drawPort(b, h, x+3*gap+gpuW, y+24+j*(cardH+gap), f)
		}
		y += p.height() + gap
	}
}

func drawGPU(b *strings.Builder, g *node.GPU, x, y int) {
	fmt.Fprintf(b, "<g class=\"card\"><title>%s</title>", html.EscapeString(g.PCI+" "+g.ID))
	fmt.Fprintf(
		b,
		"<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"#e8f0e0\" stroke=\"#76923c\"/>",
		x,
		y,
		gpuW,
		cardH,
	)
	text(b, x+10, y+20, 13, "#2f3e12", "bold", "GPU "+strconv.Itoa(g.Index))
	text(b, x+10, y+38, 11, "#4a5a2a", "", clip(cmp.Or(g.Model, g.ID)+"  "+g.PCI, 28))
	b.WriteString("</g>\n")
}

func drawPort(b *strings.Builder, h port, x, y int, f topology.Fabrics) {
	fill, stroke, state := "#fbe9e7", "#b3261e", "no port"
	netdev, rate := "", ""
	if p := h.p; p != nil {
		state, netdev = p.State, p.Netdev
		switch {
		case p.Active():
			fill, stroke, rate = "#e3f2fd", "#1565c0", strconv.FormatFloat(p.RateGb, 'f', -1, 64)+" Gb/s"
		case state != "Down":
			fill, stroke = "#fff4e0", "#b26a00"
		}
		if h.Bond != "" {
			fill, stroke = "#eeeeee", "#757575"
		}
	}
	fmt.Fprintf(
		b,
		"<g class=\"card\"><title>%s</title>",
		html.EscapeString(
			strings.Join(
				[]string{h.name(), h.PCI, h.ID, h.Model, "firmware " + h.Firmware, h.PCIe, h.InPod, why(f, h)},
				"\n",
			),
		),
	)
	dash := ""
	if h.InPod != "" {
		dash = ` stroke-dasharray="5 3"`
	}
	fmt.Fprintf(
		b,
		"<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"%s\" stroke=\"%s\"%s/>",
		x,
		y,
		hcaW,
		cardH,
		fill,
		stroke,
		dash,
	)
	text(b, x+10, y+20, 13, "#1a1a1a", "bold", clip(h.name(), 18))
	line := []string{netdev, h.Model, state, rate}
	if h.InPod != "" {
		line = []string{netdev, state, "in " + h.InPod}
	}
	text(
		b,
		x+10,
		y+38,
		11,
		"#444444",
		"",
		clip(strings.Join(slices.DeleteFunc(line, func(s string) bool { return s == "" }), "  "), 46),
	)
	if name, rail, colour := badge(f, h); name != "" {
		fmt.Fprintf(
			b,
			"<rect class=\"badge\" x=\"%d\" y=\"%d\" width=\"120\" height=\"18\" rx=\"9\" fill=\"%s\"/>",
			x+hcaW-128,
			y+6,
			colour,
		)
		fmt.Fprintf(
			b,
			"<text x=\"%d\" y=\"%d\" font-size=\"11\" fill=\"#ffffff\" text-anchor=\"middle\">%s rail %d</text>",
			x+hcaW-68,
			y+19,
			html.EscapeString(clip(name, 11)),
			rail,
		)
	} else if h.Bond != "" {
		text(b, x+hcaW-68, y+19, 11, "#555555", "", clip(h.Bond, 10))
	}
	b.WriteString("</g>\n")
}

// badge is fabric and rail of a port in one, and the fabric's colour.
func badge(f topology.Fabrics, at port) (name string, rail int, colour string) {
	for i, f := range f.Fabrics {
		for _, r := range f.Rails {
			for j := range r.Ports {
				if at.is(&r.Ports[j]) {
					return f.Name, r.Index, palette[i%len(palette)]
				}
			}
		}
	}
	return "", 0, ""
}

func why(f topology.Fabrics, at port) string {
	for i := range f.Left {
		if l := &f.Left[i]; at.is(&l.Port) {
			return "in no fabric: " + l.Reason
		}
	}
	return ""
}

// clip shortens what has no room; the whole of it is in the tooltip, or on the page.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func legend(b *strings.Builder, x, y, room int, f topology.Fabrics) {
	for i, f := range f.Fabrics {
		fmt.Fprintf(
			b,
			"<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" rx=\"3\" fill=\"%s\"/>\n",
			x,
			y+20*i,
			palette[i%len(palette)],
		)
		note := f.Name + ": " + f.Reason
		if f.Planes {
			note += "; planes"
		}
		text(b, x+22, y+20*i+12, 12, "#333333", "", clip(note, room))
	}
}

func text(b *strings.Builder, x, y, size int, fill, weight, s string) {
	if weight != "" {
		weight = ` font-weight="` + weight + `"`
	}
	fmt.Fprintf(
		b,
		"<text x=\"%d\" y=\"%d\" font-size=\"%d\" fill=\"%s\"%s>%s</text>",
		x,
		y,
		size,
		fill,
		weight,
		html.EscapeString(s),
	)
}
