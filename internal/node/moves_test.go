package node

import "testing"

// A driver of which it is known until which kernel it can't move its devices counts up to that one only, and no other
// text than that of a kernel counts.
func TestStays(t *testing.T) {
	for _, c := range []struct{ driver, kernel, want string }{
		{"efa", "6.12.0-48-amd64", "driver efa"},
		{"efa", "", "driver efa"},
		{"bnxt_en", "6.1.0-31-amd64", "driver bnxt_re of Linux 6.1.0-31-amd64"},
		{"bnxt_en", "5.15.0-91-generic", "driver bnxt_re of Linux 5.15.0-91-generic"},
		{"bnxt_en", "6.12.57+deb13-amd64", ""},
		{"bnxt_en", "7.0-rc1", ""},
		{"bnxt_en", "unknown", ""},
		{"mlx5_core", "5.4.0", ""},
		{"", "6.1.0", ""},
	} {
		if got := (&HCA{Driver: c.driver}).Stays(c.kernel); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.driver, c.kernel, got, c.want)
		}
	}
}
