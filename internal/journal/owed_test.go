package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOwed(t *testing.T) {
	for _, f := range []Face{RDMA, Netdev} {
		t.Run(string(f), func(t *testing.T) { testOwed(t, f) })
	}
}

func testOwed(t *testing.T, f Face) {
	s := Store{t.TempDir()}
	const other = "auxiliary/mlx5_core.sf.4"
	wantOwed := func(claim, want string) {
		t.Helper()
		if got, err := s.Owed(f, claim); err != nil || got != want {
			t.Errorf("%s is owed %q, %v, want %q", claim, got, err, want)
		}
	}
	wantDebtors := func(want ...string) {
		t.Helper()
		got, err := s.Debtors(f)
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("debtors: -want +got:\n%s", diff)
		}
	}
	wantOwed(claim, "")
	wantDebtors()
	must(t, s.Settle(f, claim))
	must(t, s.Owe(f, claim, "mlx5_1"))
	must(t, s.Owe(f, claim, "mlx5_0"))
	must(t, s.Owe(f, other, "mlx5_7"))
	wantOwed(claim, "mlx5_0")
	wantDebtors(other, claim)
	must(t, s.Settle(f, claim))
	wantOwed(claim, "")
	wantOwed(other, "mlx5_7")
	must(t, s.Settle(f, other))
	wantDebtors()
	if _, err := os.Stat(filepath.Join(s.Dir, string(f))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty directory is left: %v", err)
	}
}
