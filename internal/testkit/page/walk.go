package page

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Walker runs blocks.
type Walker struct {
	// Shell runs a script where the reader would, or on a node, and returns what it prints.
	Shell func(node, script string) (string, error)
	// Write makes a file in the directory where scripts run.
	Write func(name, text string) error
	// Until calls f until it succeeds, or there is no more hope.
	Until func(what string, f func() error) error
	// Log says what is done.
	Log func(format string, args ...any)
	// Names is what the page calls something, and what it is called where it is walked, by turns. What is replaced in
	// lines that are printed has single spaces.
	Names []string
	// Cast records commands and what they print. It may be nil.
	Cast *Cast
}

// looks matches commands that change nothing. They are repeated until they print what the page shows, as a reader would
// look again.
var looks = regexp.MustCompile(`^(rdma system|kubectl( -n \S+)? ` +
	`(get|describe|exec|logs|wait|rollout status|fabric|explain))\b`)

// Walk runs a block.
func (w *Walker) Walk(b *Block) error {
	switch {
	case b.NotRun != "":
		w.Log("line %d: not run, %s:\n%s", b.Line, b.NotRun, b.Text)
		return nil
	case b.File != "":
		w.Log("line %d: %s", b.Line, b.File)
		return errors.Join(w.Write(b.File, b.Text), w.Cast.command("", "cat "+b.File), w.Cast.text(b.Text))
	}
	for i := range b.Commands {
		c := &b.Commands[i]
		fails := b.Fails && i == len(b.Commands)-1
		if err := w.command(b.Node, c, fails); err != nil {
			return fmt.Errorf("line %d: %s: %w", c.Line, c.Text, err)
		}
	}
	return nil
}

func (w *Walker) command(node string, c *Command, fails bool) error {
	names := strings.NewReplacer(w.Names...)
	node, script := names.Replace(node), names.Replace(c.Text)
	var want []string
	for _, line := range c.Want {
		want = append(want, names.Replace(strings.Join(strings.Fields(line), " ")))
	}
	var out string
	once := func() (err error) {
		out, err = w.Shell(node, script)
		switch {
		case fails && err == nil:
			return fmt.Errorf("it succeeds: %s", out)
		case !fails && err != nil:
			return fmt.Errorf("%w: %s", err, out)
		case c.Shown:
			return Compare(want, out)
		}
		return nil
	}
	err := w.Cast.command(node, script)
	if !c.Shown || !looks.MatchString(script) {
		err = errors.Join(once(), err)
	} else {
		err = errors.Join(w.Until("it prints what the page shows", once), err)
	}
	w.Log("line %d: $ %s\n%s", c.Line, script, short(out))
	return errors.Join(err, w.Cast.text(short(out)))
}

// short leaves out the middle of what is long.
func short(out string) string {
	const ends = 15
	lines := strings.Split(out, "\n")
	if len(lines) <= 2*ends {
		return out
	}
	return strings.Join(lines[:ends], "\n") + fmt.Sprintf("\n[%d lines]\n", len(lines)-2*ends) +
		strings.Join(lines[len(lines)-ends:], "\n")
}
