package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"
)

// console is where a command reads and writes.
type console struct {
	stdin    io.Reader
	stdout   io.Writer
	stderr   io.Writer
	terminal bool // stdout is a terminal, and colours are wanted
}

// Colours of a terminal, by what they mean.
const (
	good  = "\x1b[32m"
	bad   = "\x1b[31m"
	warn  = "\x1b[33m"
	dim   = "\x1b[2m"
	plain = "\x1b[0m"
)

func (c *console) coloured(colour, s string) string {
	if !c.terminal {
		return s
	}
	return colour + s + plain
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
		_, err := c.stdout.Write(content)
		return err
	}
	if err := os.WriteFile(name, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// structured prints a value as JSON or YAML.
func (c *console) structured(format string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if format == "yaml" {
		if b, err = yaml.JSONToYAML(b); err != nil {
			return err
		}
		_, err = c.stdout.Write(b)
		return err
	}
	_, err = fmt.Fprintln(c.stdout, string(b))
	return err
}
