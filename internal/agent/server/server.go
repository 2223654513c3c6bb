// Package server answers the agent's probes and Prometheus. Any process may reach the port, so what one caller, or
// all of them, can make the agent do is bounded.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Limits bound what callers of an endpoint can use.
type Limits struct {
	Connections int // open at once; one more is closed
	HeaderBytes int

	ReadHeader, Read, Write, Idle time.Duration
}

// AtOnce is how many requests for metrics are answered at once: a Prometheus or two, and people who look by hand.
const AtOnce = 4

// Default limits. Tokens of identity providers have some kilobytes.
var Default = Limits{
	Connections: 64, HeaderBytes: 32 << 10,
	ReadHeader: 5 * time.Second, Read: 10 * time.Second, Write: 30 * time.Second, Idle: 90 * time.Second,
}

// Config is what an Endpoint serves, and where.
type Config struct {
	Name      string   // for errors
	Addresses []string // host:port, or unix:PATH
	Handler   http.Handler
	TLS       *tls.Config // nil: none
	Limits    Limits      // over all addresses together
	Log       *slog.Logger
}

// Endpoint is a handler that is served at some addresses.
type Endpoint struct {
	name      string
	server    *http.Server
	listeners []net.Listener
}

// Listen listens at all addresses, or at none and returns an error.
func Listen(ctx context.Context, c Config) (*Endpoint, error) {
	e := &Endpoint{name: c.Name, server: &http.Server{
		Handler:           bodiless(c.Handler),
		ReadHeaderTimeout: c.Limits.ReadHeader, // of the TLS handshake too
		ReadTimeout:       c.Limits.Read,
		WriteTimeout:      c.Limits.Write,
		IdleTimeout:       c.Limits.Idle,
		MaxHeaderBytes:    c.Limits.HeaderBytes,
		ConnState:         atMost(c.Limits.Connections),
		// callers must not be able to fill the log with handshakes that fail
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}}
	for _, a := range c.Addresses {
		l, err := listen(ctx, a)
		if err != nil {
			e.Close()
			return nil, fmt.Errorf("listen for %s: %w", c.Name, err)
		}
		if c.TLS != nil {
			l = tls.NewListener(l, c.TLS)
		}
		e.listeners = append(e.listeners, l)
	}
	return e, nil
}

// Addresses are those of the listeners, with the ports that they got.
func (e *Endpoint) Addresses() (out []string) {
	for _, l := range e.listeners {
		out = append(out, l.Addr().String())
	}
	return out
}

// Close ends an endpoint that is not served.
func (e *Endpoint) Close() {
	for _, l := range e.listeners {
		_ = l.Close() // nothing was written to it
	}
}

// Serve answers until ctx ends, or a listener fails.
func (e *Endpoint) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(e.listeners))
	var running sync.WaitGroup
	for i, l := range e.listeners {
		running.Go(func() {
			err := e.server.Serve(l)
			cancel() // one without the others would go unnoticed
			if !errors.Is(err, http.ErrServerClosed) {
				errs[i] = fmt.Errorf("serve %s: %w", e.name, err)
			}
		})
	}
	<-ctx.Done()
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer stop()
	_ = e.server.Shutdown(end) // connections that are still open end with the process
	running.Wait()
	return errors.Join(errs...)
}

// Limited passes at most n requests to h at once. The others are told to come again: to let them wait would only move
// the queue.
func Limited(n int, h http.Handler) http.Handler {
	slots := make(chan struct{}, n)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			h.ServeHTTP(w, r)
		default:
			busy(w)
		}
	})
}

func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
}

// bodiless passes requests that only ask: GET and HEAD, without a body.
func bodiless(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			w.Header().Set("Connection", "close") // its body is not read
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		case r.ContentLength != 0:
			w.Header().Set("Connection", "close")
			http.Error(w, "a request has no body here", http.StatusRequestEntityTooLarge)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// atMost closes connections beyond n as soon as they are accepted. StateNew comes before anything is read, TLS
// included, and StateClosed follows each (net/http/server.go).
func atMost(n int) func(net.Conn, http.ConnState) {
	var open atomic.Int64
	return func(c net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			if open.Add(1) > int64(n) {
				_ = c.Close() // nothing was written to it
			}
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}
}

// Health answers /healthz while the process runs, and /readyz while ready returns true. It says no more than that:
// everybody on the node may ask.
func Health(ready func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "not ok", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// unixPrefix begins an address that is the path of a socket.
const unixPrefix = "unix:"

// listen makes the directory of a socket, for this user alone, and refuses one that others may enter: they could put a
// socket of their own there. What an agent before has left is removed.
func listen(ctx context.Context, address string) (net.Listener, error) {
	var c net.ListenConfig
	file, ok := strings.CutPrefix(address, unixPrefix)
	if !ok {
		return c.Listen(ctx, "tcp", address)
	}
	dir := filepath.Dir(file)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	var s unix.Stat_t
	if err := unix.Lstat(dir, &s); err != nil {
		return nil, fmt.Errorf("look at %s: %w", dir, err)
	}
	if s.Mode&(unix.S_IFMT|0o077) != unix.S_IFDIR || int(s.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s is no directory that only this user can enter: %w", dir, fs.ErrPermission)
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return c.Listen(ctx, "unix", file)
}

// Ask asks an endpoint at an address, without TLS, and returns an error unless the answer is 200.
func Ask(ctx context.Context, address, path string) error {
	network := "tcp"
	if file, ok := strings.CutPrefix(address, unixPrefix); ok {
		network, address = "unix", file
	}
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	defer t.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return err
	}
	answer, err := t.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("ask for %s: %w", path, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of %s: %s", path, address, answer.Status)
	}
	return nil
}

// Addresses parses a list of host:port, or unix:PATH, separated by commas. Empty: none.
func Addresses(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	out := strings.Split(list, ",")
	for _, a := range out {
		if file, ok := strings.CutPrefix(a, unixPrefix); ok {
			if !filepath.IsAbs(file) {
				return nil, fmt.Errorf("address %q is no absolute path", a)
			}
			continue
		}
		host, port, err := net.SplitHostPort(a)
		if err != nil || port == "" {
			return nil, fmt.Errorf("address %q is not HOST:PORT", a)
		}
		// [$(POD_IP)]:9467 of a pod without an address must not become all addresses
		if host == "" && strings.HasPrefix(a, "[") {
			return nil, fmt.Errorf("address %q has no host between the brackets", a)
		}
	}
	return out, nil
}
