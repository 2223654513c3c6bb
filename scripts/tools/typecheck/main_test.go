package main

import (
	"os"
	"strings"
	"testing"
)

func TestWrong(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod": "module " + module + "\n\ngo 1.26\n",
		"a.go":   "package a\n\nimport \"syscall\"\n\nvar _ = syscall.CLONE_NEWNET\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := wrong(".", "linux/amd64"); err != nil || found != nil {
		t.Errorf("linux: %q, %v", found, err)
	}
	found, err := wrong(".", "windows/amd64")
	if err != nil || len(found) != 1 || !strings.Contains(found[0], "CLONE_NEWNET") {
		t.Errorf("windows: %q, %v", found, err)
	}
	if _, err := wrong("fmt", "linux/amd64"); err == nil {
		t.Error("no package of ours, and no error")
	}
}
