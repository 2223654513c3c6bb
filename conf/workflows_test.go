package conf_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	uses   = regexp.MustCompile(`(?m)^\s*(?:- )?(?:&\w+ )?uses: (.*)$`)
	pinned = regexp.MustCompile(`^([\w.-]+/[\w./-]+)@([0-9a-f]{40}) # (v[0-9]+\.[0-9]+\.[0-9]+)$`)
)

// TestWorkflows: a tag of an action can be moved to other code, a commit can not. Nothing is written with more rights
// than the step needs, and no token is left in the working tree.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(root + ".github/workflows/*.yml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%q, %v", files, err)
	}
	versions := map[string]string{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		for _, m := range uses.FindAllStringSubmatch(string(b), -1) {
			if strings.HasPrefix(m[1], "./.github/workflows/") {
				continue // of the same commit
			}
			p := pinned.FindStringSubmatch(m[1])
			if p == nil {
				t.Errorf("%s: uses: %s: want owner/action@<40 hex digits> # v1.2.3", name, m[1])
				continue
			}
			if other, ok := versions[p[1]]; ok && other != p[2]+" "+p[3] {
				t.Errorf("%s: %s is %s %s here and %s elsewhere", name, p[1], p[2], p[3], other)
			}
			versions[p[1]] = p[2] + " " + p[3]
		}
		if strings.Count(string(b), "actions/checkout@") != strings.Count(string(b), "persist-credentials: false") {
			t.Errorf("%s: a checkout without persist-credentials: false", name)
		}
		var w struct {
			Permissions map[string]string `json:"permissions"`
		}
		if err := yaml.Unmarshal(b, &w); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if w.Permissions == nil {
			t.Errorf("%s: permissions of all jobs: want {} or contents: read", name)
		}
		for what, right := range w.Permissions {
			if right != "read" {
				t.Errorf("%s: all jobs may %s %s: say so at the job that needs it", name, right, what)
			}
		}
	}
	if len(versions) == 0 {
		t.Error("no action is used")
	}
}
