package attach

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Whatever a user has written into a NetworkAttachmentDefinition, CNI_ARGS or a prevResult: what netconf accepts is
// decided on, for each kind of device, with one line for each refusal, or with steps that can be printed.
func FuzzDecide(f *testing.F) {
	files, err := filepath.Glob("../../pkg/netconf/testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no configurations: %v", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, d := range decisions {
			f.Add(b, "MAC=02:00:00:00:00:01;IP=10.0.0.1", d.kind)
		}
	}
	f.Fuzz(func(t *testing.T, stdin []byte, args, kind string) {
		env := netconf.Env{Command: "ADD", ContainerID: "c1", IfName: "net1", Netns: "/run/netns/pod", Args: args}
		c, err := netconf.Parse(stdin, env)
		if err != nil {
			return
		}
		if c.PrevResult != nil { // an error of its own, later
			_, _ = result.Parse(c.PrevResult, c.CNIVersion)
		}
		facts := deviceFacts()
		for _, d := range decisions {
			if d.kind == kind {
				facts = d.usual()
			}
		}
		facts.Config = c
		facts.Unselected = c.Selector.Kind == netconf.ByNothing && c.Master == ""
		d := Decide(facts)
		for _, r := range d.Refusals {
			oneLine(t, r.Message)
			oneLine(t, r.Hint)
			if r.Message == "" {
				t.Errorf("a refusal that says nothing: %+v", r)
			}
		}
		for _, w := range d.Warnings {
			oneLine(t, w)
		}
		if len(d.Refusals) > 0 {
			return
		}
		if d.Attachment == nil {
			t.Fatal("neither refused nor anything to do")
		}
		for _, s := range d.Steps(nil, false) {
			for line := range strings.SplitSeq(s.String(), "\n") { // a step may be several commands
				if strings.ContainsFunc(line, unicode.IsControl) || line == "" {
					t.Errorf("step %q", s)
				}
			}
		}
	})
}

// oneLine checks what is printed for people: a configuration can't add lines, and does not fill the log.
func oneLine(t *testing.T, s string) {
	t.Helper()
	if strings.ContainsFunc(s, unicode.IsControl) || len(s) > 4096 {
		t.Errorf("not a line: %.300q", s)
	}
}
