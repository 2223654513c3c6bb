package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
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
		if c, ok := c.(cell); ok {
			row[i] = c
			continue
		}
		row[i].text = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row)
}

// print writes the table. Empty cells are shown as a dash, so that awk counts right.
func (t *table) print(w io.Writer, colours bool) {
	width := make([]int, len(t.header))
	for i, h := range t.header {
		width[i] = len(h)
	}
	for _, r := range t.rows {
		for i := range r {
			if r[i].text == "" {
				r[i].text = "-"
			}
			width[i] = max(width[i], utf8.RuneCountInString(r[i].text))
		}
	}
	var b strings.Builder
	line := func(i int, text, colour string) {
		if i > 0 {
			b.WriteString("  ")
		}
		pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(text))
		if i == len(t.header)-1 {
			pad = ""
		}
		if colours && colour != "" {
			text = colour + text + plain
		}
		b.WriteString(text + pad)
	}
	for i, h := range t.header {
		line(i, h, dim)
	}
	b.WriteByte('\n')
	for _, r := range t.rows {
		for i, c := range r {
			line(i, c.text, c.colour)
		}
		b.WriteByte('\n')
	}
	fmt.Fprint(w, b.String())
}
