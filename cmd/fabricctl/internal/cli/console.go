package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/encode"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// console is where a command reads and writes.
type console struct {
	stdin    io.Reader
	stdout   quote.Printer
	stderr   quote.Printer
	terminal bool // stdout is a terminal, and colours are wanted
	width    int  // columns of the terminal on stdout; 0: unknown or no terminal, lines are not limited
}

// Colours of a terminal, by what they mean.
const (
	good  = "\x1b[32m"
	bad   = "\x1b[31m"
	warn  = "\x1b[33m"
	dim   = "\x1b[2m"
	plain = "\x1b[0m"
)

// coloured is a text that is quoted for a terminal, in a colour if those are wanted.
func (c *console) coloured(colour, s string) quote.Raw {
	s = quote.Terminal(s)
	if !c.terminal || colour == "" {
		return quote.Raw(s)
	}
	return quote.Raw(colour + s + plain)
}

// document prints what draws a whole text.
func (c *console) document(draw func(io.Writer) error) error {
	var b bytes.Buffer
	if err := draw(&b); err != nil {
		return err
	}
	return c.stdout.Document(b.Bytes())
}

// read reads a file, or standard input for "-".
func (c *console) read(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(c.stdin)
	}
	return os.ReadFile(name)
}

// write writes a file, or to standard output for "-".
func (c *console) write(name string, content []byte) error {
	if name == "-" {
		_, err := c.stdout.W.Write(content)
		return err
	}
	if err := os.WriteFile(name, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// structured prints a value of one of the kinds as JSON or YAML.
func (c *console) structured(format string, v any) error {
	kind, err := kindOf(v)
	if err != nil {
		return err
	}
	b, err := encode.Object(format, kind, v)
	if err != nil {
		return err
	}
	_, err = c.stdout.W.Write(b)
	return err
}

// line prints a value of one of the kinds as JSON in one line.
func (c *console) line(v any) error {
	kind, err := kindOf(v)
	if err != nil {
		return err
	}
	b, err := encode.Object("json", kind, v)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		return err
	}
	out.WriteByte('\n')
	_, err = c.stdout.W.Write(out.Bytes())
	return err
}
