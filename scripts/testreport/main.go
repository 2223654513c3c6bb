// Command testreport turns the stream of `go test -json` into what a reader wants: the output of what failed, every
// skip, and one closing line for each package. In CI a skip that scripts/skips.txt does not allow there is a failure.
//
//	go test -json ./... | go run ./scripts/testreport [-v]
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Getenv("CI") != "", os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

func run(args []string, ci bool, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("testreport", flag.ContinueOnError)
	verbose := flags.Bool("v", false, "one line for each test that passed, too")
	skips := flags.String("skips", "scripts/skips.txt", "the skips that are allowed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	f, err := os.Open(*skips)
	if err != nil {
		return err
	}
	defer f.Close()
	allowed, err := readSkips(f)
	if err != nil {
		return fmt.Errorf("read %s: %w", *skips, err)
	}
	r := report{out: out, verbose: *verbose, output: map[key][]string{}}
	if err := r.read(in); err != nil {
		return err
	}
	err = r.verdict()
	if ci {
		err = errors.Join(err, r.checkSkips(allowed))
	}
	return err
}
