package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// matrixTable gathers the lines that the guests of the fault matrix leave with their results.
type matrixTable struct {
	mu    sync.Mutex
	lines []string
}

// matrixLines is the table of this run of TestLab.
var matrixLines matrixTable

// add takes the lines of one guest, of which most have none.
func (m *matrixTable) add(t *testing.T, out string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(out, "matrix"))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = append(m.lines, strings.Split(strings.TrimSpace(string(data)), "\n")...)
}

// log prints the whole table and a total for each kernel.
func (m *matrixTable) log(t *testing.T) {
	t.Helper()
	if len(m.lines) == 0 {
		return
	}
	slices.Sort(m.lines)
	type sum struct {
		cells, passed int
		seconds       float64
	}
	total := make(map[string]*sum)
	var kernels []string
	for _, line := range m.lines {
		var kernel, mode, op, fault string
		var s sum
		if _, err := fmt.Sscanf(line, "MATRIX kernel=%s mode=%s op=%s fault=%s cells=%d passed=%d seconds=%f",
			&kernel, &mode, &op, &fault, &s.cells, &s.passed, &s.seconds); err != nil {
			t.Errorf("line %q of the matrix: %v", line, err)
			continue
		}
		if total[kernel] == nil {
			total[kernel] = &sum{}
			kernels = append(kernels, kernel)
		}
		k := total[kernel]
		k.cells, k.passed, k.seconds = k.cells+s.cells, k.passed+s.passed, k.seconds+s.seconds
	}
	for _, k := range kernels {
		s := total[k]
		m.lines = append(
			m.lines,
			fmt.Sprintf("MATRIX total kernel=%s cells=%d passed=%d seconds=%.0f", k, s.cells, s.passed, s.seconds),
		)
	}
	t.Log("\n" + strings.Join(m.lines, "\n"))
}
