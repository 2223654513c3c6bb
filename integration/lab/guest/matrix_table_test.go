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
	mode, op, fault string
	cells, passed   int
	begin           time.Time
}

func startRow(mode, op, fault string) *row {
	return &row{mode: mode, op: op, fault: fault, begin: time.Now()}
}

func (r *row) count(ok bool) {
	r.cells++
	if ok {
		r.passed++
	}
}

// report logs the line and leaves it in the directory for results, where the driver collects the table.
func (r *row) report(t testing.TB) {
	t.Helper()
	line := fmt.Sprintf("MATRIX kernel=%s mode=%s op=%s fault=%s cells=%d passed=%d seconds=%.1f",
		kernel(t), r.mode, r.op, r.fault, r.cells, r.passed, time.Since(r.begin).Seconds())
	t.Log(line)
	f, err := os.OpenFile("matrix", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, werr := fmt.Fprintln(f, line)
	if err := f.Close(); err != nil || werr != nil {
		t.Fatal(werr, err)
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
