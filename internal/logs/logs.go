// Package logs makes the log of fabric-agent, agent and controller alike: JSON, an object a line, also what the
// libraries of others have to say.
package logs

import (
	"io"
	"log/slog"

	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

// New returns a logger that writes JSON to w. What client-go logs by klog, gRPC, and the standard library (net/http)
// goes to the same place: the log of the whole program is in one format.
func New(w io.Writer, level slog.Leveler) *slog.Logger {
	log := slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	slog.SetDefault(log) // takes what is said by package log as well
	klog.SetSlogLogger(log)
	failed := slog.NewLogLogger(log.Handler(), slog.LevelError).Writer()
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, failed)) // of errors only, as it is by default
	return log
}
