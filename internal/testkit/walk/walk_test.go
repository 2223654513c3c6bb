package walk

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var small = Walk{Seed: 7, Ops: 300, Round: 50, Pods: 2, Devices: 3, Mischief: []string{"harmless", "nasty"}}

// fake is a host without a kernel: who has which device. A bug is planted where one is named.
type fake struct {
	bug string

	mu     sync.Mutex
	holder map[int]Attachment
	nasty  map[int]bool // a mischief that the next DEL does not repair
	dirt   string
	done   []string
}

func (f *fake) Call(c Call) (Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = append(f.done, describe(c, Answer{}))
	if c.Fault == "kill" && c.At%2 == 0 {
		return Answer{Killed: true}, nil
	}
	has, held := f.holder[c.Of.Device]
	switch c.Verb {
	case "ADD":
		if held && f.bug != "shares" {
			return Answer{Text: "in use"}, nil
		}
		f.holder[c.Of.Device] = c.Of
	case "DEL":
		if held && has == c.Of {
			delete(f.holder, c.Of.Device)
			if f.bug == "forgets" && f.nasty[c.Of.Device] {
				f.dirt = fmt.Sprintf("device %d is nasty\n", c.Of.Device)
			}
			f.nasty[c.Of.Device] = false
		}
		return Answer{OK: f.bug != "stuck"}, nil
	case "CHECK":
		return Answer{OK: held && has == c.Of}, nil
	}
	return Answer{OK: true}, nil
}

func (f *fake) Mischief(pod, device int, what string) error {
	if h, ok := f.holder[device]; ok && h.Pod == pod && what == "nasty" {
		f.nasty[device] = true
	}
	return nil
}
func (*fake) EndPod(int, bool) error { return nil }
func (*fake) Unplug(int) error       { return nil }
func (*fake) Plug(int) error         { return nil }

func (f *fake) Home() (string, error) {
	if len(f.holder) > 0 {
		return fmt.Sprint(f.holder), nil
	}
	return f.dirt, nil
}

func newFake(bug string) *fake {
	return &fake{bug: bug, holder: map[int]Attachment{}, nasty: map[int]bool{}}
}

// A world that keeps its promises ends each walk well, and the same seed does the same.
func TestRun(t *testing.T) {
	first, second := newFake(""), newFake("")
	for _, f := range []*fake{first, second} {
		stats, err := small.Run(f)
		if err != nil {
			t.Fatal(err)
		}
		if stats.Ops != small.Ops || stats.Rounds != 6 || stats.Killed == 0 {
			t.Errorf("%s", stats)
		}
		for _, k := range weights {
			if stats.By[k.kind] == 0 {
				t.Errorf("no %s in %s", k.kind, stats)
			}
		}
		slices.Sort(f.done) // of those side by side either may come first
	}
	if diff := cmp.Diff(first.done, second.done); diff != "" {
		t.Errorf("the same seed: -first +second:\n%s", diff)
	}
	other := small
	other.Seed = 8
	if slices.Equal(small.operations(7, 50), other.operations(8, 50)) {
		t.Error("another seed does the same")
	}
}

// A bug is found, and what is left of the walk is what the bug needs.
func TestFindsAndShrinks(t *testing.T) {
	for bug, tt := range map[string]struct {
		problem string
		kinds   []Kind
	}{
		"shares":  {"", []Kind{Add, Add}},
		"forgets": {"is nasty", []Kind{Add, Mischief}},
		"stuck":   {"", []Kind{Add}},
	} {
		t.Run(bug, func(t *testing.T) {
			_, err := small.Run(newFake(bug))
			var f *RoundError
			if !errors.As(err, &f) || !strings.Contains(f.Problem, tt.problem) {
				t.Fatalf("found %v, want %q", err, tt.problem)
			}
			again, err := Parse(Script(f.Ops))
			if diff := cmp.Diff(f.Ops, again); err != nil || diff != "" {
				t.Errorf("the script does not say the same: %v\n%s", err, diff)
			}
			var kinds []Kind
			for _, o := range small.Shrink(f, func() World { return newFake(bug) }) {
				kinds = append(kinds, o.Kind)
			}
			if diff := cmp.Diff(tt.kinds, kinds); diff != "" {
				t.Errorf("left: -want +got:\n%s", diff)
			}
			alone := small
			alone.Seed, alone.Ops = f.Seed, f.Round
			if _, err := alone.Run(newFake(bug)); err == nil {
				t.Error("the round alone does not fail")
			}
		})
	}
}

func TestParse(t *testing.T) {
	ops, err := Parse("# a comment\n\nadd 0 1 kill 317\nendpod 1 0 held\ndel 1 2 beside\n")
	want := []Op{{Kind: Add, Device: 1, Fault: "kill", At: 317}, {Kind: EndPod, Pod: 1, What: "held"},
		{Kind: Del, Pod: 1, Device: 2, Beside: true}}
	if diff := cmp.Diff(want, ops); err != nil || diff != "" {
		t.Errorf("%v: -want +got:\n%s", err, diff)
	}
	for _, s := range []string{"add", "add x 0", "add 0 x", "add 0 0 kill x"} {
		if _, err := Parse(s); err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestTricks(t *testing.T) {
	all := Tricks([]string{"ib", "ether", "rdma"})
	for _, name := range all {
		if script, act := Trick(name); script == "" && act == nil {
			t.Errorf("%s does nothing", name)
		}
	}
	if len(all) != len(tricks) {
		t.Errorf("%d of %d", len(all), len(tricks))
	}
	if script, act := Trick("unheard of"); script != "" || act != nil {
		t.Errorf("a trick that nobody knows: %s", script)
	}
	few := Tricks([]string{"ether"}, "mac")
	if slices.Contains(few, "mac") || slices.Contains(few, "rdma-rename") || !slices.Contains(few, "macvlan") {
		t.Errorf("%v", few)
	}
}

// A DEL that succeeds beside an ADD of the same attachment may have come first: the attachment is owed another one.
func TestAddBesideItsDel(t *testing.T) {
	m := newModel(small)
	add := m.call(Op{Kind: Add})
	del := m.del(add.Of)
	m.answered(del, Answer{OK: true}, false)
	m.answered(add, Answer{OK: true}, false)
	m.overtaken([]Call{del, add})
	if !m.owes(0) {
		t.Error("nobody would return it")
	}
}
