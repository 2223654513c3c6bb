package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestOutcome(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, nil))
	now := time.Unix(1e9, 0)
	o := outcome{what: "ask"}
	away, gone := errors.New("away"), errors.New("gone")
	for _, err := range []error{nil, away, away, gone, gone, nil, nil, away} {
		now = now.Add(10 * time.Second)
		o.note(log, now, err)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		_, text, _ := strings.Cut(strings.TrimSpace(line), "level=")
		got = append(got, text)
	}
	want := []string{
		`ERROR msg="cannot ask" error=away`, `ERROR msg="cannot ask" error=gone`,
		`INFO msg="resolved: cannot ask" after=40s`, `ERROR msg="cannot ask" error=away`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q, want %q", got, want)
	}
}
