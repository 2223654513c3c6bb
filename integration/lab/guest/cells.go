package guest

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// fault is a column of the fault matrix.
type fault struct {
	name string
	what Fault
	gone bool // the pod's network namespace is deleted afterwards
}

var faults = []fault{
	{name: "error", what: FaultError},
	{name: "kill", what: FaultKill},
	{name: "kill+netns", what: FaultKill, gone: true},
}

// The operations a fault strikes.
const (
	opAdd  = "ADD"
	opDel  = "DEL"
	opGone = "DEL-gone" // DEL that finds the network namespace deleted
)

// faultsOf returns the faults of an operation on a kernel. All of them on 6.12; on other kernels those whose outcome
// the kernel decides, because the machine is emulated. A full run has all of them on every kernel.
func faultsOf(op, series string, full bool) []fault {
	names := map[string][]string{"6.1": {"kill"}, "next": {"kill", "kill+netns"}}[series]
	return slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		if op == opGone && f.gone {
			return true // it is gone before
		}
		return names != nil && !full && !slices.Contains(names, f.name)
	})
}

// cell is a failpoint of an operation and the fault that strikes there.
type cell struct {
	fault fault
	point string
}

func (c cell) name() string { return c.fault.name + "_" + strings.ReplaceAll(c.point, "/", "-") }

// cellsOf returns the cells of an operation with these faults, in the order of its points. Unless the run is full, a
// point that finds the state of the one before it has no cell of its own.
func cellsOf(points []string, op string, faults []fault, full bool) []cell {
	var cells []cell
	for _, f := range faults {
		for _, p := range points {
			if full || !sameState(points, p, op, f) {
				cells = append(cells, cell{f, p})
			}
		}
	}
	return cells
}

// sameState reports whether the point before/Y directly follows an after/X, so that both find the same state. A process
// that is killed leaves the same behind at both. So does an error in ADD, which undoes what was done until then; but
// DEL, which goes on after an error, does Y in one case and not in the other.
//
// Neither does it matter for an announcement to the neighbours, whose error ADD ignores. And IPAM runs beside the
// other steps: its points may be anywhere among them.
func sameState(points []string, point, op string, f fault) bool {
	if !strings.HasPrefix(point, "before/") || ofIPAM(point) || f.what == FaultError && op != opAdd {
		return false
	}
	steps := slices.DeleteFunc(slices.Clone(points), ofIPAM)
	i := slices.Index(steps, point)
	if i < 1 || !strings.HasPrefix(steps[i-1], "after/") {
		return false
	}
	return f.what != FaultError || ofAnnounce(point) == ofAnnounce(steps[i-1])
}

func ofIPAM(point string) bool { return strings.HasPrefix(point, "before/ipam-") }

// ofAnnounce reports whether the point belongs to the announcement of addresses, whose error ADD ignores.
func ofAnnounce(point string) bool { return strings.Contains(point, "/announce") }

// piece is the part of a test that this process runs: the guests share long tests. The zero value is the whole test.
type piece struct{ number, of int }

// thisPiece returns the piece that FABRIC_LAB_PIECE names, "2/3" for the second of three.
func thisPiece() (piece, error) {
	text := os.Getenv("FABRIC_LAB_PIECE")
	if text == "" {
		return piece{1, 1}, nil
	}
	var p piece
	if _, err := fmt.Sscanf(text, "%d/%d", &p.number, &p.of); err != nil || p.number < 1 || p.number > p.of {
		return p, fmt.Errorf("FABRIC_LAB_PIECE is %q, want a number and a total such as 2/3", text)
	}
	return p, nil
}

// cells returns the cells of this piece. They are dealt by name: the place of IPAM's points among the others differs
// from run to run.
func (p piece) cells(all []cell) []cell {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.name()
	}
	slices.Sort(names)
	var mine []cell
	for _, c := range all {
		if i, _ := slices.BinarySearch(names, c.name()); i%p.of == p.number-1 {
			mine = append(mine, c)
		}
	}
	return mine
}

// rounds returns the rounds of this piece, of n rounds that are counted from 0: from first to before end.
func (p piece) rounds(n int) (first, end int) { return n * (p.number - 1) / p.of, n * p.number / p.of }
