package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root has what the page is made from: cmd, deployments, internal and pkg, and the page in docs.
const root = "../.."

// The committed page is what the code says.
func TestPage(t *testing.T) {
	want, err := page(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, out))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the code says: make generate", out)
	}
	for _, need := range []string{
		"| `PortsHealthy` | `PortDown` |", "| `Published` | `MultusMissing` |", "| `fabric_rdma_counter` | counter |",
		"| `fabric_ready` | gauge |", "| `fabric_cni_duration_seconds` | histogram | `verb` |", "[FabricPortDown](../",
	} {
		if !strings.Contains(want, need) {
			t.Errorf("the page lacks %q", need)
		}
	}
}

// Each reason of a condition of a Fabric stands in the file that the page is made from, but for those with which all is
// well.
func TestReasonsInOneFile(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, filepath.Dir(fabricReasons), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	literal := regexp.MustCompile(`(?i:\breason)(?:, p\.err)?(?:: | = )"(\w+)"`)
	found := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range literal.FindAllStringSubmatch(string(b), -1) {
			found++
			well := []string{"Accepted", "AllHealthy", "DevicesHealthy", "Published", "Ready"}
			if !strings.HasSuffix(file, "_test.go") && !slices.Contains(well, m[1]) {
				t.Errorf("%s: the reason %s must be a constant in %s", file, m[1], fabricReasons)
			}
		}
	}
	if found < 5 {
		t.Errorf("%d reasons in %s: are they spelt differently?", found, filepath.Dir(fabricReasons))
	}
}
