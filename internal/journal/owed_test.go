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
	s := Store{t.TempDir()}
	const other = "auxiliary/mlx5_core.sf.4"
	wantOwed := func(claim, want string) {
		t.Helper()
		if got, err := s.Owed(claim); err != nil || got != want {
			t.Errorf("%s is owed %q, %v, want %q", claim, got, err, want)
		}
	}
	wantDebtors := func(want ...string) {
		t.Helper()
		got, err := s.Debtors()
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("debtors: -want +got:\n%s", diff)
		}
	}
	wantOwed(claim, "")
	wantDebtors()
	must(t, s.Settle(claim))
	must(t, s.Owe(claim, "mlx5_1"))
	must(t, s.Owe(claim, "mlx5_0"))
	must(t, s.Owe(other, "mlx5_7"))
	wantOwed(claim, "mlx5_0")
	wantDebtors(other, claim)
	must(t, s.Settle(claim))
	wantOwed(claim, "")
	wantOwed(other, "mlx5_7")
	must(t, s.Settle(other))
	wantDebtors()
	if _, err := os.Stat(filepath.Join(s.Dir, "names")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty directory is left: %v", err)
	}
}
