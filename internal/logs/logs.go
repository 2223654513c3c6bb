// Package logs makes the log of fabric-agent, agent and controller alike: JSON, an object a line, also what the
// libraries of others have to say.
package logs

import (
	"context"
	"io"
	"log/slog"

	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

// init gives client-go (klog) and gRPC their logger: neither guards the variable it keeps it in, so it is set once,
// before any goroutine of theirs can read it.
func init() {
	h := current{with: func(h slog.Handler) slog.Handler { return h }}
	klog.SetSlogLogger(slog.New(h))
	failed := slog.NewLogLogger(h, slog.LevelError).Writer()
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, failed)) // of errors only, as it is by default
}

// New returns a logger that writes JSON to w. What client-go logs by klog, gRPC, and the standard library (net/http)
// goes to the same place: the log of the whole program is in one format.
func New(w io.Writer, level slog.Leveler) *slog.Logger {
	log := slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	slog.SetDefault(log) // takes what is said by package log as well
	return log
}

// current is the handler of slog.Default at the time of each call, with the attributes and groups of its own.
type current struct {
	with func(slog.Handler) slog.Handler
}

func (c current) now() slog.Handler { return c.with(slog.Default().Handler()) }

// Enabled implements slog.Handler.
func (c current) Enabled(ctx context.Context, l slog.Level) bool { return c.now().Enabled(ctx, l) }

// Handle implements slog.Handler.
func (c current) Handle(ctx context.Context, r slog.Record) error { return c.now().Handle(ctx, r) }

// WithAttrs implements slog.Handler.
func (c current) WithAttrs(attrs []slog.Attr) slog.Handler {
	return current{with: func(h slog.Handler) slog.Handler { return c.with(h).WithAttrs(attrs) }}
}

// WithGroup implements slog.Handler.
func (c current) WithGroup(name string) slog.Handler {
	return current{with: func(h slog.Handler) slog.Handler { return c.with(h).WithGroup(name) }}
}
