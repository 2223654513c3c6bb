package guest

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// Main is the TestMain of tests for a guest: anywhere else they would change the machine they run on. It does not
// return.
func Main(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.list").Value.String() == "" && os.Getenv("FABRIC_LAB_GUEST") == "" {
		fmt.Fprintln(os.Stderr, "these tests change the kernel they run on; run them with: go test ./integration/lab")
		os.Exit(2)
	}
	os.Exit(m.Run())
}
