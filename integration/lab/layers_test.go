package lab

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The files of fakeib are layers, in the order of its Makefile: each calls functions of files before it only.
func TestFakeibLayers(t *testing.T) {
	text, err := os.ReadFile("fakeib/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(strings.ReplaceAll(string(text), "\\\n", " "), "fakeib-y :=")
	list, _, _ = strings.Cut(list, "\n")
	source := map[string]string{}
	layer := map[string]int{} // by function
	function := regexp.MustCompile(`(?m)^\w[\w *]*?\b(\w+)\([^;{]*\)\s*\{`)
	names := strings.Fields(list)
	for i, name := range names {
		names[i] = strings.TrimSuffix(name, ".o") + ".c"
		b, err := os.ReadFile(filepath.Join("fakeib", names[i]))
		if err != nil {
			t.Fatal(err)
		}
		source[names[i]] = string(b)
		for _, m := range function.FindAllStringSubmatch(string(b), -1) {
			if !strings.HasPrefix(m[0], "static ") {
				layer[m[1]] = i
			}
		}
	}
	if files, err := filepath.Glob("fakeib/*.c"); err != nil || len(files) != len(names) || len(layer) < len(names) {
		t.Fatalf("%d files, %d in the Makefile with %d functions, %v", len(files), len(names), len(layer), err)
	}
	word := regexp.MustCompile(`\w+`)
	for i, name := range names {
		seen := map[string]bool{}
		for _, w := range word.FindAllString(source[name], -1) {
			if at, ok := layer[w]; ok && at > i && !seen[w] {
				seen[w] = true
				t.Errorf("%s calls %s of %s, a layer above it", name, w, names[at])
			}
		}
	}
}
