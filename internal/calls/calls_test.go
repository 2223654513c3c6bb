package calls_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/calls"
)

func take(t *testing.T, dir string) []calls.Call {
	t.Helper()
	list, err := calls.Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestNoteAndTake(t *testing.T) {
	dir := t.TempDir()
	if list := take(t, dir); len(list) != 0 {
		t.Errorf("%v", list)
	}
	want := []calls.Call{{Verb: "ADD", Took: 12 * time.Millisecond}, {Verb: "DEL", Code: 105, Took: time.Microsecond}}
	for _, c := range want {
		calls.Note(dir, c)
	}
	if list := take(t, dir); len(list) != 0 {
		t.Errorf("read while somebody may still write: %v", list)
	}
	third := calls.Call{Verb: "GC", Code: 11, Took: time.Minute}
	calls.Note(dir, third)
	if d := cmp.Diff(want, take(t, dir)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]calls.Call{third}, take(t, dir)); d != "" {
		t.Error(d)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// Calls side by side, and an agent that takes meanwhile: each call is counted once.
func TestSideBySide(t *testing.T) {
	dir := t.TempDir()
	const writers, each = 8, 200
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for j := range each {
				calls.Note(dir, calls.Call{Verb: "ADD", Code: uint(i), Took: time.Duration(j) * time.Microsecond})
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	seen := map[calls.Call]int{}
	takes := 0
	count := func() {
		takes++
		for _, c := range take(t, dir) {
			seen[c]++
		}
	}
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(20 * time.Millisecond): // the agent waits for seconds
			count()
		}
	}
	count()
	count()
	missing := 0
	for i := range writers {
		for j := range each {
			switch n := seen[calls.Call{Verb: "ADD", Code: uint(i), Took: time.Duration(j) * time.Microsecond}]; {
			case n == 0:
				missing++
			case n > 1:
				t.Errorf("call %d of %d was counted %d times", j, i, n)
			}
		}
	}
	if missing > takes*writers ||
		len(seen) == 0 { // read while it was being written: a line of each writer at most, and only in this haste
		t.Errorf("%d of %d calls were not counted in %d rounds", missing, writers*each, takes)
	}
}

func TestNothingGoesWrong(t *testing.T) {
	dir := t.TempDir()
	c := calls.Call{Verb: "ADD"}
	calls.Note(filepath.Join(dir, "nowhere"), c)
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("whole"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(dir, calls.File)); err != nil {
		t.Fatal(err)
	}
	calls.Note(dir, c)
	if b, err := os.ReadFile(victim); err != nil || string(b) != "whole" {
		t.Errorf("written through a symbolic link: %q, %v", b, err)
	}
	if err := os.Remove(filepath.Join(dir, calls.File)); err != nil {
		t.Fatal(err)
	}
	text := "ADD 0 5\nnonsense\nADD -1 5\nADD 0 -5\nVERSION 0 1\n\x00\nADD 0 5 6\nDEL 7 9\nNEWER 3 2\nADD 0"
	if err := os.WriteFile(filepath.Join(dir, calls.File), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	take(t, dir)
	want := []calls.Call{
		{Verb: "ADD", Took: 5 * time.Microsecond},
		{Verb: "DEL", Code: 7, Took: 9 * time.Microsecond},
		{Verb: "NEWER", Code: 3, Took: 2 * time.Microsecond},
	}
	if d := cmp.Diff(want, take(t, dir)); d != "" {
		t.Error(d)
	}
}

// Each verb that a plugin can have is counted under its own name; what is no verb is counted as Other.
func TestVerbs(t *testing.T) {
	dir := t.TempDir()
	var want []calls.Call
	for f := range reflect.TypeFor[skel.CNIFuncs]().Fields() {
		want = append(want, calls.Call{Verb: strings.ToUpper(f.Name), Took: time.Millisecond})
	}
	for _, c := range want {
		calls.Note(dir, c)
	}
	for _, verb := range []string{"VERSION", "", "add verb"} {
		calls.Note(dir, calls.Call{Verb: verb, Code: 4})
	}
	want = append(want, calls.Call{Verb: calls.Other, Code: 4})
	take(t, dir)
	if d := cmp.Diff(want, take(t, dir)); d != "" || len(want) < 6 {
		t.Error(d)
	}
}

// Without an agent the file does not grow for ever.
func TestBounded(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, calls.File), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	calls.Note(dir, calls.Call{Verb: "ADD"})
	if st, err := os.Stat(filepath.Join(dir, calls.File)); err != nil || st.Size() != 1<<20 {
		t.Errorf("%v, %v", st, err)
	}
}

func BenchmarkNote(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		calls.Note(dir, calls.Call{Verb: "ADD", Took: 123 * time.Millisecond})
	}
}
