package cli

import (
	"fmt"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// cell is one field of a table, with its colour.
type cell struct{ text, colour string }

// table is rows under a header; columns are as wide as their widest cell.
type table struct {
	header []string
	rows   [][]cell
}

func newTable(header ...string) *table { return &table{header: header} }

func (t *table) add(cells ...any) {
	row := make([]cell, len(cells))
	for i, c := range cells {
		var ok bool
		if row[i], ok = c.(cell); !ok {
			row[i].text = fmt.Sprint(c)
		}
		row[i].text = quote.Terminal(row[i].text) // so that the columns are as wide as what is printed
	}
	t.rows = append(t.rows, row)
}

// print prints the table. Empty cells are shown as a dash, so that awk counts right.
func (t *table) print(c *console) {
	width := make([]int, len(t.header))
	for i, h := range t.header {
		width[i] = len(h)
	}
	for _, r := range t.rows {
		for i := range r {
			if r[i].text == "" {
				r[i].text = "-"
			}
			width[i] = max(width[i], quote.Width(r[i].text))
		}
	}
	line := func(i int, text, colour string) {
		if i > 0 {
			c.stdout.Printf("  ")
		}
		pad := strings.Repeat(" ", width[i]-quote.Width(text))
		if i == len(t.header)-1 {
			pad = ""
		}
		c.stdout.Printf("%s%s", c.coloured(colour, text), quote.Raw(pad))
	}
	for i, h := range t.header {
		line(i, h, dim)
	}
	c.stdout.Printf("\n")
	for _, r := range t.rows {
		for i, c := range r {
			line(i, c.text, c.colour)
		}
		c.stdout.Printf("\n")
	}
}
