package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// Colours of a terminal, by what they mean.
const (
	good  = "\x1b[32m"
	bad   = "\x1b[31m"
	warn  = "\x1b[33m"
	dim   = "\x1b[2m"
	plain = "\x1b[0m"
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

// structured writes a value as JSON or YAML.
func (a *app) structured(format string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if format == "yaml" {
		if b, err = yaml.JSONToYAML(b); err != nil {
			return err
		}
		_, err = a.stdout.Write(b)
		return err
	}
	_, err = fmt.Fprintln(a.stdout, string(b))
	return err
}
