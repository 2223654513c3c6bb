package main

import (
	"os"
	"strings"
	"testing"
)

// The committed page is what the definitions say.
func TestPage(t *testing.T) {
	want, err := page("../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../" + out)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the definitions say: make generate", out)
	}
	for _, need := range []string{
		"### Fabric spec.addresses.nodeRanges", "Default: `WholeDevice`", "0 to 63.", "no link has this rate",
		"[object](#fabric-specmatch)", "write 0000:...",
	} {
		if !strings.Contains(want, need) {
			t.Errorf("the page lacks %q", need)
		}
	}
}
