package share

import (
	"regexp"
	"strings"
	"testing"
)

func TestRotate(t *testing.T) {
	t.Setenv("FABRIC_LAB_FULL", "")
	t.Setenv("FABRIC_SEED", "")
	if skip, note := Rotate("suite", 1, "TestA", "TestB|TestC"); skip != "" || note != "" {
		t.Errorf("without a seed %q is left out: %s", skip, note)
	}
	t.Setenv("FABRIC_SEED", "65ebc24")
	skip, note := Rotate("suite", 1, "TestA", "TestB|TestC", "TestD")
	pattern := regexp.MustCompile(skip)
	ran := 0
	for _, group := range []string{"TestA", "TestB|TestC", "TestD"} {
		all := strings.Split(group, "|")
		for _, name := range all {
			if pattern.MatchString(name) != pattern.MatchString(all[0]) || pattern.MatchString(name+"More") {
				t.Errorf("skip %q: %s goes another way than its group", skip, name)
			}
		}
		if !pattern.MatchString(all[0]) {
			ran++
		}
		if !strings.Contains(note, group) {
			t.Errorf("the note has nothing of %s: %s", group, note)
		}
	}
	if ran != 1 {
		t.Errorf("%d groups run, want 1: %q", ran, skip)
	}
}
