//go:build labguest

package guest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// row counts the cells of one line of the table.
type row struct {
	mode, op, fault    string
	all, cells, passed int // all: the cells of the row, of which this process may run a piece
	begin              time.Time
	spent              time.Duration
}

// rows are the lines of one mode and operation, one for each fault.
type rows []*row

func newRows(mode, op string, all []cell) rows {
	var list rows
	for _, c := range all {
		list.row(mode, op, c.fault.name).all++
	}
	return list
}

func (l *rows) row(mode, op, fault string) *row {
	for _, r := range *l {
		if r.fault == fault {
			return r
		}
	}
	r := &row{mode: mode, op: op, fault: fault}
	*l = append(*l, r)
	return r
}

// begin returns the row of a fault, whose next cell begins now.
func (l *rows) begin(fault string) *row {
	r := l.row("", "", fault)
	r.begin = time.Now()
	return r
}

func (r *row) count(ok bool) {
	r.cells++
	if ok {
		r.passed++
	}
	r.spent += time.Since(r.begin)
}

// report logs the lines and leaves them in the directory for results, where the driver collects the table.
func (l *rows) report(t testing.TB) {
	t.Helper()
	var text strings.Builder
	for _, r := range *l {
		fmt.Fprintf(&text, "MATRIX kernel=%s mode=%s op=%s fault=%s all=%d cells=%d passed=%d seconds=%.1f\n",
			kernel(t), r.mode, r.op, r.fault, r.all, r.cells, r.passed, r.spent.Seconds())
	}
	t.Log("\n" + text.String())
	if err := os.WriteFile("matrix", []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// kernel returns the running kernel's version, as "6.12".
func kernel(t testing.TB) string {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	parts := strings.SplitN(unix.ByteSliceToString(u.Release[:]), ".", 3)
	return strings.Join(parts[:2], ".")
}
