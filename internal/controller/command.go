package controller

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"

	"github.com/fabric-cni/fabric-cni/internal/logs"
)

// Command is `fabric-agent controller` with its flags.
func Command(ctx context.Context, version string, args []string, stderr io.Writer) error {
	o := &Options{}
	if done, err := parse("controller", args, o.Flags, stderr); done || err != nil {
		return err
	}
	return Main(ctx, o, version, logs.New(stderr, o.LogLevel))
}

// ReleaseCommand is `fabric-agent release` with its flags.
func ReleaseCommand(ctx context.Context, args []string, stderr io.Writer) error {
	o := &ReleaseOptions{}
	if done, err := parse("release", args, o.Flags, stderr); done || err != nil {
		return err
	}
	return Release(ctx, o, logs.New(stderr, slog.LevelInfo))
}

// parse reads the flags of a command; true: it was asked for help.
func parse(name string, args []string, flags func(*flag.FlagSet), stderr io.Writer) (bool, error) {
	f := flag.NewFlagSet("fabric-agent "+name, flag.ContinueOnError)
	f.SetOutput(stderr)
	flags(f)
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return true, nil
	}
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err != nil {
		return false, fmt.Errorf("bad command line: %w", err)
	}
	return false, nil
}
