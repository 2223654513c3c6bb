package sbom_test

import (
	"bytes"
	"debug/buildinfo"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"

	"github.com/fabric-cni/fabric-cni/scripts/sbom"
)

func TestWrite(t *testing.T) {
	program := filepath.Join(t.TempDir(), "apidoc") // one of our own, with modules in it
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "../../scripts/apidoc")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d := sbom.Document{
		Name: "test", Namespace: "https://example.com/test", Version: "v1", Created: time.Unix(0, 0),
		Programs: []string{program},
	}
	var first, second bytes.Buffer
	if err := d.Write(&first); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(&second); err != nil || first.String() != second.String() {
		t.Errorf("another document for the same program, %v", err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := spdxjson.Read(&first)
	if err != nil {
		t.Fatal(err)
	}
	modules := sbom.Modules(info)
	if len(modules) < 3 || modules[0].Path != "std" || len(doc.Packages) != len(modules)+1 {
		t.Fatalf("%d packages for %d modules", len(doc.Packages), len(modules))
	}
	for _, m := range modules {
		if !strings.Contains(second.String(), `"`+sbom.PURL(m)+`"`) {
			t.Errorf("%s is not in the list", sbom.PURL(m))
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	err := sbom.Document{Programs: []string{"sbom.go"}}.Write(&bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "sbom.go") {
		t.Errorf("a file that is no program: %v", err)
	}
}
