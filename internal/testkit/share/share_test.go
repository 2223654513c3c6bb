package share

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

var names = []string{"a", "b", "c", "d", "e", "f", "g"}

func TestPick(t *testing.T) {
	t.Setenv("FABRIC_LAB_FULL", "")
	t.Setenv("FABRIC_SEED", "65ebc24")
	got := Pick(3, names...)
	if len(got) != 3 || !slices.Equal(got, Pick(3, names...)) {
		t.Errorf("Pick(3) = %q, then %q", got, Pick(3, names...))
	}
	if got := Pick(9, names...); len(got) != len(names) {
		t.Errorf("Pick(9) = %q", got)
	}
	t.Setenv("FABRIC_LAB_FULL", "1")
	if got := Pick(3, names...); !slices.Equal(got, names) {
		t.Errorf("in full: Pick(3) = %q", got)
	}
	t.Setenv("FABRIC_LAB_FULL", "")
	t.Setenv("FABRIC_SEED", "")
	if got := Pick(3, names...); !slices.Equal(got, names) {
		t.Errorf("without a seed: Pick(3) = %q", got)
	}
}

// Each name is picked by some seeds, and about as often as the others.
func TestPickIsFair(t *testing.T) {
	t.Setenv("FABRIC_LAB_FULL", "")
	count := map[string]int{}
	for seed := range 700 {
		t.Setenv("FABRIC_SEED", fmt.Sprint("seed", seed))
		count[Pick(1, names...)[0]]++
	}
	for _, name := range names {
		if count[name] < 60 || count[name] > 140 {
			t.Errorf("picked: %v, want about 100 each", count)
		}
	}
}

func TestTimeFor(t *testing.T) {
	t.Setenv("FABRIC_DEADLINE", "")
	if !TimeFor(time.Hour) {
		t.Error("no time without a deadline")
	}
	t.Setenv("FABRIC_DEADLINE", fmt.Sprint(time.Now().Add(time.Minute).Unix()))
	if !TimeFor(30*time.Second) || TimeFor(2*time.Minute) {
		t.Error("a minute is left: want time for half of it, and none for two")
	}
}
