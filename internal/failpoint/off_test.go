//go:build !failpoint

package failpoint

import "testing"

// A released binary can't be steered by its environment.
func TestNothingWithoutTheTag(t *testing.T) {
	t.Setenv("FABRIC_FAILPOINT", "point:error")
	if err := Hit("point"); err != nil {
		t.Error(err)
	}
}
