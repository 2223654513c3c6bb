package apply

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUndoRun(t *testing.T) {
	first, last := errors.New("first failed"), errors.New("last failed")
	tests := map[string]struct {
		results []error // of the actions, in the order they are pushed
		want    string
		is      []error
	}{
		"empty":     {nil, "", nil},
		"all right": {[]error{nil, nil, nil}, "", nil},
		"one fails": {[]error{nil, first, nil}, "undo b: first failed", []error{first}},
		"all fail":  {[]error{first, last}, "undo b: last failed\nundo a: first failed", []error{first, last}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var u Undo
			var order, want []string
			for i, err := range tt.results {
				what := string(rune('a' + i))
				want = append([]string{what}, want...)
				u.Push(what, func() error {
					order = append(order, what)
					return err
				})
			}
			err := u.Run()
			if got := message(err); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			for _, is := range tt.is {
				if !errors.Is(err, is) {
					t.Errorf("%v does not match %v", err, is)
				}
			}
			if diff := cmp.Diff(want, order); diff != "" {
				t.Errorf("order: -want +got:\n%s", diff)
			}
			if err := u.Run(); err != nil || len(order) != len(want) {
				t.Errorf("a second run does something: %v, %v", order, err)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestUndoRelease(t *testing.T) {
	var u Undo
	u.Push("never", func() error { t.Error("ran"); return nil })
	u.Release()
	if err := u.Run(); err != nil {
		t.Error(err)
	}
}

// An action may push another one, as when the way back turns out to have steps of its own.
func TestUndoPushWhileRunning(t *testing.T) {
	var u Undo
	var order []string
	u.Push("a", func() error { order = append(order, "a"); return nil })
	u.Push("b", func() error {
		order = append(order, "b")
		u.Push("c", func() error { order = append(order, "c"); return nil })
		return nil
	})
	if err := u.Run(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"b", "c", "a"}, order); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
