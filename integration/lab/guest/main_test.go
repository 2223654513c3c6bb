//go:build labguest

package guest

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.list").Value.String() == "" && os.Getenv("FABRIC_LAB_GUEST") == "" {
		fmt.Fprintln(os.Stderr, "these tests change the kernel they run on; run them with: go test ./integration/lab")
		os.Exit(2)
	}
	os.Exit(m.Run())
}
