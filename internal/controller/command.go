package controller

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
)

// Command is `fabric-agent controller` with its flags.
func Command(ctx context.Context, version string, args []string, stderr io.Writer) error {
	o := &Options{}
	f := flag.NewFlagSet("fabric-agent controller", flag.ContinueOnError)
	f.SetOutput(stderr)
	o.Flags(f)
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err != nil {
		return fmt.Errorf("bad command line: %w", err)
	}
	log := slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: o.LogLevel}))
	return Main(ctx, o, version, log)
}
