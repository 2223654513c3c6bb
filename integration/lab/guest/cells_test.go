//go:build !labguest

package guest

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var addPoints = []string{
	"journal/save", "before/move-rdma", "after/move-rdma", "before/ipam-add", "before/move-netdev", "after/move-netdev",
	"before/announce", "after/announce", "journal/save#2",
}

func names(cells []cell) (list []string) {
	for _, c := range cells {
		list = append(list, c.name())
	}
	return list
}

func TestCellsOf(t *testing.T) {
	errorFault, kill := faults[:1], faults[1:2]
	for _, c := range []struct {
		name   string
		op     string
		faults []fault
		full   bool
		want   []string
	}{
		{"kill", opAdd, kill, false, []string{
			"kill_journal-save", "kill_before-move-rdma", "kill_after-move-rdma", "kill_before-ipam-add",
			"kill_after-move-netdev", "kill_after-announce", "kill_journal-save#2",
		}},
		{"error in ADD: announcements are errors of another kind", opAdd, errorFault, false, []string{
			"error_journal-save", "error_before-move-rdma", "error_after-move-rdma", "error_before-ipam-add",
			"error_after-move-netdev", "error_before-announce", "error_after-announce", "error_journal-save#2",
		}},
		{"error in DEL", opDel, errorFault, false, names(cellsOf(addPoints, opDel, errorFault, true))},
	} {
		if diff := cmp.Diff(c.want, names(cellsOf(addPoints, c.op, c.faults, c.full))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if got := len(cellsOf(addPoints, opAdd, faults, true)); got != 3*len(addPoints) {
		t.Errorf("a full run has %d cells, want every point with each of three faults", got)
	}
}

func TestFaultsOf(t *testing.T) {
	for _, c := range []struct {
		op, series string
		full       bool
		want       int
	}{
		{opAdd, "6.12", false, 3}, {opAdd, "6.1", false, 1}, {opAdd, "next", false, 2}, {opGone, "6.12", false, 2},
		{opGone, "next", false, 1}, {opAdd, "6.1", true, 3}, {opGone, "6.1", true, 2}, {opAdd, "next", true, 3},
	} {
		if got := faultsOf(c.op, c.series, c.full); len(got) != c.want {
			t.Errorf("%s on %s (full: %t) has %d faults, want %d", c.op, c.series, c.full, len(got), c.want)
		}
	}
}

// Each cell and each round belongs to exactly one piece, also when the points come in another order.
func TestPieces(t *testing.T) {
	all := cellsOf(addPoints, opDel, faults, true)
	other := slices.Clone(all)
	slices.Reverse(other)
	for of := 1; of <= 7; of++ {
		var cells []string
		next := 0
		for number := 1; number <= of; number++ {
			p := piece{number, of}
			list := all
			if number%2 == 0 {
				list = other
			}
			cells = append(cells, names(p.cells(list))...)
			first, end := p.rounds(25)
			if first != next {
				t.Errorf("piece %d of %d begins with round %d, want %d", number, of, first, next)
			}
			next = end
		}
		want := names(all)
		slices.Sort(want)
		slices.Sort(cells)
		if diff := cmp.Diff(want, cells); diff != "" || next != 25 {
			t.Errorf("%d pieces, %d rounds (-want +got):\n%s", of, next, diff)
		}
	}
}

func TestThisPiece(t *testing.T) {
	for text, want := range map[string]piece{"": {1, 1}, "2/3": {2, 3}, "1/1": {1, 1}} {
		t.Setenv("FABRIC_LAB_PIECE", text)
		if got, err := thisPiece(); err != nil || got != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"0/3", "4/3", "x", "1"} {
		t.Setenv("FABRIC_LAB_PIECE", text)
		if got, err := thisPiece(); err == nil {
			t.Errorf("%q is accepted as %v", text, got)
		}
	}
}

func TestBatches(t *testing.T) {
	got := batches([][]string{
		{"ip", "link", "set", "ib0", "alias", "rail 0, leaf 1"}, {"ip", "link", "set", "ib0", "up"},
		{"ip", "-6", "rule", "flush"}, {"modprobe", "dummy"}, {"ip", "rule", "flush"},
	})
	want := []batch{
		{[]string{"ip", "-batch", "-"}, []string{`link set ib0 alias "rail 0, leaf 1"`, "link set ib0 up"}},
		{[]string{"ip", "-6", "-batch", "-"}, []string{"rule flush"}},
		{[]string{"modprobe", "dummy"}, nil},
		{[]string{"ip", "-batch", "-"}, []string{"rule flush"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(batch{})); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
}
