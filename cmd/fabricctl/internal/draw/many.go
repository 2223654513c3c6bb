package draw

import (
	"fmt"
	"html"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// drawMany draws the many functions of a PF as one card, with the edges of others behind it.
func drawMany(b *strings.Builder, m *node.Bundle, x, y int) {
	states, active := m.State()
	fill, stroke := "#fff4e0", "#b26a00"
	if active {
		fill, stroke = "#e3f2fd", "#1565c0"
	}
	line := []string{m.PCI(), states}
	if n := m.InPods(); n > 0 {
		line = append(line, fmt.Sprintf("%d in pods", n))
	}
	fmt.Fprintf(b, "<g class=\"card\"><title>%s</title>",
		html.EscapeString(m.Name()+"\n"+strings.Join(line, "\n")))
	for _, shift := range []int{6, 3, 0} {
		fmt.Fprintf(b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"%s\" stroke=\"%s\"/>",
			x+shift, y+shift, hcaW-6, cardH-6, fill, stroke)
	}
	text(b, x+10, y+18, 13, "#1a1a1a", "bold", clip(m.Name(), 36))
	text(b, x+10, y+35, 11, "#444444", "", clip(strings.Join(line, "  "), 46))
	b.WriteString("</g>\n")
}
