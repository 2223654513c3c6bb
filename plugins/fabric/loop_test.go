package fabric_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An IPAM plugin that is this plugin starts nothing, whatever it is called and however it is reached. Without its
// refusals each of these starts processes until the machine has none left.
func TestIPAMLoop(t *testing.T) {
	bin := filepath.Join(os.Getenv(binDir), "fabric")
	plugin, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	started := filepath.Join(dir, "started")
	script := "#!/bin/sh\necho >> " + started + "\nexec " + bin + "\n"
	for name, put := range map[string]func(file string) error{
		"fabric":  nil,
		"hard":    func(f string) error { return os.Link(bin, f) },
		"soft":    func(f string) error { return os.Symlink(bin, f) },
		"copy":    func(f string) error { return os.WriteFile(f, plugin, 0o755) },
		"through": func(f string) error { return os.WriteFile(f, []byte(script), 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			if put != nil {
				if err := put(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			n := newNode(t)
			c := n.call("ADD", confOf("1.1.0", `"device":"v0","ipam":{"type":"`+name+`"}`))
			c.env = []string{"CNI_PATH=" + dir + ":" + os.Getenv(binDir)}
			if a := n.run(t, c); a.ok || a.Code != 7 || !strings.Contains(a.Msg, "ipam.type") {
				t.Errorf("ADD: %+v", a)
			}
			n.same(t, "after ADD")
			c.command = "DEL"
			n.must(t, c)
			n.same(t, "after DEL")
		})
	}
	if b, err := os.ReadFile(started); err != nil || len(b) > 4 {
		t.Errorf("the script was started %d times, %v; want once for ADD and for each DEL", len(b), err)
	}
}
