package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// cell is one field of a table, with its colour.
type cell struct{ text, colour string }

// table is rows under a header; columns are as wide as their widest cell. On a terminal that is narrower the columns of
// spare are left out, the first ones first, and a note says which; what still has no room is wrapped, or goes into a
// second table below, which begins with the first column again. Columns of share are wrapped together, in equal shares
// of what the others leave.
type table struct {
	header []string
	rows   [][]cell
	spare  []string
	share  []string
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
		if row[i].text == "" {
			row[i].text = "-" // so that awk counts right
		}
	}
	t.rows = append(t.rows, row)
}

const (
	between = 2  // columns of a terminal between those of a table
	legible = 30 // columns that a text needs at least to be read when it is wrapped
)

// print prints the table.
func (t *table) print(c *console) {
	all := make([]int, len(t.header))
	for i := range all {
		all[i] = i
	}
	width := t.widths()
	if c.width == 0 || sum(width, all) <= c.width {
		t.band(c, all, width)
		return
	}
	left := t.without(width, all, c.width)
	t.shared(width, left, c.width)
	for i, b := range bands(width, left, c.width) {
		if i > 0 {
			c.stdout.Printf("\n")
		}
		t.band(c, b, width)
	}
	if len(left) < len(all) {
		var names []string
		for i, h := range t.header {
			if !slices.Contains(left, i) {
				names = append(names, h)
			}
		}
		c.stdout.Printf("%s\n", c.coloured(dim, fmt.Sprintf("(not shown in %d columns: %s; -o wide shows all)", c.width,
			strings.Join(names, ", "))))
	}
}

// widths are what the columns need.
func (t *table) widths() []int {
	out := make([]int, len(t.header))
	for i, h := range t.header {
		out[i] = len(h)
		for _, r := range t.rows {
			out[i] = max(out[i], quote.Width(r[i].text))
		}
	}
	return out
}

// sum is what these columns need.
func sum(width, columns []int) int {
	n := between * (len(columns) - 1)
	for _, i := range columns {
		n += width[i]
	}
	return n
}

// without leaves out spare columns, those without anything in them first, until the others have room.
func (t *table) without(width, columns []int, room int) []int {
	for _, empty := range []bool{true, false} {
		for _, name := range t.spare {
			at := slices.IndexFunc(columns, func(i int) bool { return t.header[i] == name })
			if sum(width, columns) <= room || at < 0 {
				continue
			}
			if !empty || t.empty(columns[at]) {
				columns = slices.Delete(slices.Clone(columns), at, at+1)
			}
		}
	}
	return columns
}

// empty tells whether a column has nothing in any row.
func (t *table) empty(column int) bool {
	return !slices.ContainsFunc(t.rows, func(r []cell) bool { return r[column].text != "-" })
}

// shared narrows the columns of share so that all columns have room, if those can be read then.
func (t *table) shared(width, columns []int, room int) {
	var wide []int
	for _, i := range columns {
		if slices.Contains(t.share, t.header[i]) {
			wide = append(wide, i)
			room += width[i]
		}
	}
	if len(wide) == 0 {
		return
	}
	each := (room - sum(width, columns)) / len(wide)
	if each < legible {
		return
	}
	for _, i := range wide {
		width[i] = min(width[i], each)
	}
}

// bands shares columns out to tables that have room, each with the first column. It narrows those that are wrapped.
func bands(width, columns []int, room int) [][]int {
	first := columns[0]
	out := [][]int{{first}}
	used := width[first]
	for _, i := range columns[1:] {
		rest := room - used - between
		switch {
		case width[i] <= rest:
		case rest >= legible:
			width[i] = rest
		default:
			out, used = append(out, []int{first}), width[first]
			if rest = room - used - between; width[i] > rest && rest >= legible {
				width[i] = rest
			}
		}
		last := len(out) - 1
		out[last], used = append(out[last], i), used+between+width[i]
	}
	return out
}

// band prints some of the columns.
func (t *table) band(c *console, columns, width []int) {
	header := make([]cell, len(t.header))
	for i, h := range t.header {
		header[i] = cell{h, dim}
	}
	for _, r := range slices.Insert(slices.Clone(t.rows), 0, header) {
		lines := make([][]string, len(columns))
		most := 0
		for j, i := range columns {
			lines[j] = wrapped(r[i].text, width[i])
			most = max(most, len(lines[j]))
		}
		for n := range most {
			t.line(c, r, columns, width, func(j int) string {
				if n < len(lines[j]) {
					return lines[j][n]
				}
				return ""
			})
		}
	}
}

// line prints one line of a row.
func (t *table) line(c *console, r []cell, columns, width []int, text func(column int) string) {
	last := len(columns) - 1
	for last > 0 && text(last) == "" {
		last--
	}
	for j, i := range columns[:last+1] {
		pad := strings.Repeat(" ", max(0, width[i]-quote.Width(text(j)))+between)
		if j == last {
			pad = ""
		}
		colour := r[i].colour
		if text(j) == "" {
			colour = ""
		}
		c.stdout.Printf("%s%s", c.coloured(colour, text(j)), quote.Raw(pad))
	}
	c.stdout.Printf("\n")
}

// wrapped breaks a text between words. A word that is too long stays as it is: it may be there to be copied.
func wrapped(s string, width int) (lines []string) {
	if quote.Width(s) <= width {
		return []string{s}
	}
	line := ""
	for word := range strings.FieldsSeq(s) {
		switch {
		case line == "":
			line = word
		case quote.Width(line+" "+word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}
