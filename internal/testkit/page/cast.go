package page

import (
	"encoding/json"
	"io"
	"math"
	"strings"
	"time"
)

// Cast records a walk in the format of asciinema (asciicast v2): a header, then one JSON array for each text with the
// seconds since the beginning. Nil records nothing.
type Cast struct {
	w     io.Writer
	now   func() time.Time
	began time.Time
}

// NewCast begins a recording.
func NewCast(w io.Writer, title string, now func() time.Time) (*Cast, error) {
	c := &Cast{w: w, now: now, began: now()}
	return c, c.line(map[string]any{
		"version": 2, "width": 132, "height": 36, "timestamp": c.began.Unix(), "idle_time_limit": 2, "title": title,
	})
}

// command records what is typed, as root on a node or where the reader is.
func (c *Cast) command(node, script string) error {
	if node != "" {
		return c.text(node + "# " + script)
	}
	return c.text("$ " + script)
}

// text records lines that appear now.
func (c *Cast) text(lines string) error {
	if c == nil || lines == "" {
		return nil
	}
	lines = strings.TrimSuffix(lines, "\n") + "\n"
	seconds := math.Round(c.now().Sub(c.began).Seconds()*1000) / 1000
	return c.line([]any{seconds, "o", strings.ReplaceAll(lines, "\n", "\r\n")})
}

func (c *Cast) line(v any) error {
	e := json.NewEncoder(c.w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
