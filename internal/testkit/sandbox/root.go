package sandbox

import (
	"os"
	"strings"
	"testing"
)

// Root skips a test, without root, that does what only root of the machine may do, not one of a user namespace.
func Root(t testing.TB) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	// user_namespaces(7): first number inside, first outside, how many
	if of := strings.Fields(string(b)); os.Geteuid() != 0 || len(of) < 2 || of[1] != "0" {
		t.Skip("needs root")
	}
}
