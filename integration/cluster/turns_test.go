package cluster

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What no group has would never run in a landing, and a group that nothing matches would be a landing without it.
func TestTurns(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var source strings.Builder
	for _, file := range files {
		source.WriteString(read(t, file))
	}
	names := strings.Split(strings.Join(rigGroups, "|"), "|")
	for _, name := range slices.AppendSeq(names, maps.Keys(suiteTests)) {
		if !strings.Contains(source.String(), "\nfunc "+name+"(t *testing.T)") {
			t.Errorf("there is no test %s", name)
		}
	}
	groups := map[string]int{"walk": 0}
	for _, m := range regexp.MustCompile(`l\.part\(t, "([^"]+)"`).FindAllStringSubmatch(source.String(), -1) {
		groups[strings.ReplaceAll(m[1], " ", "_")] = 0
	}
	if len(groups) < 10 {
		t.Errorf("parts of TestNodes: %v", groups)
	}
	for _, g := range nodeGroups {
		part := regexp.MustCompile(g[strings.LastIndex(g, "/")+1:])
		for name := range groups {
			if part.MatchString(name) {
				groups[name]++
			}
		}
	}
	for name, n := range groups {
		if n != 1 {
			t.Errorf("the part %s of TestNodes is in %d groups, want 1", name, n)
		}
	}
}
