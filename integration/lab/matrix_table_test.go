package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// matrixRow is a line that a guest of the fault matrix leaves with its results.
type matrixRow struct {
	kernel, mode, op, fault string
	all, cells, passed      int // all: the cells of the row, of which a guest may have run a piece
	seconds                 float64
}

func parseRow(line string) (r matrixRow, err error) {
	_, err = fmt.Sscanf(line, "MATRIX kernel=%s mode=%s op=%s fault=%s all=%d cells=%d passed=%d seconds=%f",
		&r.kernel, &r.mode, &r.op, &r.fault, &r.all, &r.cells, &r.passed, &r.seconds)
	return r, err
}

func (r matrixRow) String() string {
	return fmt.Sprintf("MATRIX kernel=%s mode=%s op=%s fault=%s cells=%d passed=%d seconds=%.1f",
		r.kernel, r.mode, r.op, r.fault, r.cells, r.passed, r.seconds)
}

// matrixTable is the whole matrix, the pieces of each row put together.
type matrixTable struct{ rows []matrixRow }

func (m *matrixTable) add(t *testing.T, lines []string) {
	t.Helper()
	for _, line := range lines {
		r, err := parseRow(line)
		if err != nil {
			t.Errorf("line %q of the matrix: %v", line, err)
			continue
		}
		i := slices.IndexFunc(m.rows, func(o matrixRow) bool {
			return o.kernel == r.kernel && o.mode == r.mode && o.op == r.op && o.fault == r.fault
		})
		if i < 0 {
			m.rows = append(m.rows, r)
			continue
		}
		have := &m.rows[i]
		if have.all != r.all {
			t.Errorf("pieces of one row of the matrix count its cells differently: %s, %s", have, r)
		}
		have.cells, have.passed, have.seconds = have.cells+r.cells, have.passed+r.passed, have.seconds+r.seconds
	}
}

// complete wants every cell of each row to have run in one of its pieces.
func (m *matrixTable) complete(t *testing.T) {
	t.Helper()
	for _, r := range m.rows {
		if r.cells != r.all {
			t.Errorf("%d cells of a row of the matrix ran, want %d: %s", r.cells, r.all, r)
		}
	}
}

// text is the table and a total for each kernel.
func (m *matrixTable) text() string {
	var lines, kernels []string
	total := make(map[string]matrixRow)
	for _, r := range m.rows {
		lines = append(lines, r.String()+"\n")
		if !slices.Contains(kernels, r.kernel) {
			kernels = append(kernels, r.kernel)
		}
		s := total[r.kernel]
		s.cells, s.passed, s.seconds = s.cells+r.cells, s.passed+r.passed, s.seconds+r.seconds
		total[r.kernel] = s
	}
	slices.Sort(lines)
	for _, k := range kernels {
		s := total[k]
		lines = append(lines,
			fmt.Sprintf("MATRIX total kernel=%s cells=%d passed=%d seconds=%.0f\n", k, s.cells, s.passed, s.seconds))
	}
	return strings.Join(lines, "")
}

func TestMatrixTable(t *testing.T) {
	var m matrixTable
	m.add(t, []string{
		"MATRIX kernel=6.12 mode=a op=ADD fault=kill all=5 cells=3 passed=3 seconds=1.5",
		"MATRIX kernel=6.1 mode=a op=ADD fault=kill all=4 cells=4 passed=3 seconds=1.0",
	})
	m.add(t, []string{"MATRIX kernel=6.12 mode=a op=ADD fault=kill all=5 cells=2 passed=2 seconds=1.0"})
	m.complete(t)
	const want = `MATRIX kernel=6.1 mode=a op=ADD fault=kill cells=4 passed=3 seconds=1.0
MATRIX kernel=6.12 mode=a op=ADD fault=kill cells=5 passed=5 seconds=2.5
MATRIX total kernel=6.12 cells=5 passed=5 seconds=2
MATRIX total kernel=6.1 cells=4 passed=3 seconds=1
`
	if got := m.text(); got != want {
		t.Errorf("the table is\n%swant\n%s", got, want)
	}
}
