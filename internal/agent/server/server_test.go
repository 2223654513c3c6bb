package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

var discard = slog.New(slog.DiscardHandler)

// served serves h with these limits at a port of its own, and returns its address.
func served(t *testing.T, h http.Handler, config *tls.Config, limits Limits) string {
	t.Helper()
	e, err := Listen(t.Context(), Config{Name: "a test", Addresses: []string{"127.0.0.1:0"}, Handler: h, TLS: config,
		Limits: limits, Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return e.Addresses()[0]
}

// request sends one request on a connection of its own.
func request(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(b)
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })

// As many requests as are allowed wait in the handler: the next one is told to come again, and is served once they
// are through.
func TestRequestsAtOnce(t *testing.T) {
	in, out := make(chan struct{}, AtOnce), make(chan struct{})
	address := served(t, Limited(AtOnce, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			in <- struct{}{}
			<-out
		}
	})), nil, Default)
	done := make(chan int, AtOnce)
	for range AtOnce {
		go func() {
			res, err := http.Get("http://" + address + "/slow")
			if err != nil {
				done <- 0
				return
			}
			res.Body.Close()
			done <- res.StatusCode
		}()
	}
	for range AtOnce {
		<-in
	}
	res, _ := request(t, "http://"+address)
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Errorf("%v", res)
	}
	close(out)
	for range AtOnce {
		if status := <-done; status != http.StatusOK {
			t.Errorf("%d", status)
		}
	}
	if res, _ := request(t, "http://"+address); res.StatusCode != http.StatusOK {
		t.Errorf("%v", res)
	}
}

func TestOnlyQuestions(t *testing.T) {
	address := served(t, ok, nil, Default)
	for _, c := range []struct {
		method, body string
		want         int
	}{
		{http.MethodGet, "", http.StatusOK},
		{http.MethodHead, "", http.StatusOK},
		{http.MethodPost, "", http.StatusMethodNotAllowed},
		{http.MethodPost, strings.Repeat("a", 1<<20), http.StatusMethodNotAllowed},
		{http.MethodPut, "", http.StatusMethodNotAllowed},
		{http.MethodDelete, "", http.StatusMethodNotAllowed},
		{http.MethodTrace, "", http.StatusMethodNotAllowed},
		{http.MethodGet, "a", http.StatusRequestEntityTooLarge},
	} {
		c1, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		length := ""
		if c.body != "" {
			length = fmt.Sprintf("Content-Length: %d\r\n", len(c.body))
		}
		fmt.Fprintf(c1, "%s / HTTP/1.1\r\nHost: a\r\n%s\r\n", c.method, length) // the body never comes
		res, err := http.ReadResponse(bufio.NewReader(c1), nil)
		c1.Close()
		if err != nil || res.StatusCode != c.want {
			t.Errorf("%s with %d bytes: %v, %v", c.method, len(c.body), res, err)
		}
		if res != nil {
			res.Body.Close()
		}
	}
}

// closes waits until the server closes a connection on which these bytes were sent.
func closes(t *testing.T, address, text string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
}

// A caller that says nothing, stops within the header, or stays afterwards, is left after a while. The default limits
// are set, all of them.
func TestTimeouts(t *testing.T) {
	short := Limits{Connections: 8, HeaderBytes: 4096, ReadHeader: 50 * time.Millisecond, Read: 50 * time.Millisecond,
		Write: 50 * time.Millisecond, Idle: 50 * time.Millisecond}
	address := served(t, ok, nil, short)
	for name, text := range map[string]string{
		"nothing":      "",
		"half a line":  "GET / HT",
		"half a head":  "GET / HTTP/1.1\r\nHost: a\r\n",
		"idle":         "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"large header": "GET / HTTP/1.1\r\nHost: a\r\nA: " + strings.Repeat("a", 16<<10) + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) { closes(t, address, text) })
	}
	e, err := Listen(t.Context(), Config{Handler: ok, Limits: Default, Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	s := e.server
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 ||
		s.MaxHeaderBytes <= 0 {
		t.Errorf("%+v", Default)
	}
}

// Connections that say nothing can't take all file descriptors.
func TestConnectionsAtOnce(t *testing.T) {
	hour := time.Hour // none of these closes the one too many
	limits := Limits{Connections: 2, HeaderBytes: 4096, ReadHeader: hour, Read: hour, Write: hour, Idle: hour}
	address := served(t, ok, nil, limits)
	var open []net.Conn
	for range limits.Connections {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	closes(t, address, "")
	for _, c := range open {
		c.Close()
	}
	sandbox.Until(t, "there is room again", func() bool {
		res, err := http.Get("http://" + address)
		if err == nil {
			res.Body.Close()
		}
		return err == nil
	})
}

func TestHealth(t *testing.T) {
	var ready atomic.Bool
	address := served(t, Health(ready.Load), nil, Default)
	for _, c := range []struct {
		path  string
		ready bool
		want  int
		text  string
	}{
		{"/healthz", false, http.StatusOK, "ok\n"},
		{"/readyz", false, http.StatusServiceUnavailable, "not ok\n"},
		{"/readyz", true, http.StatusOK, "ok\n"},
		{"/metrics", true, http.StatusNotFound, "404 page not found\n"},
	} {
		ready.Store(c.ready)
		res, text := request(t, "http://"+address+c.path)
		if res.StatusCode != c.want || text != c.text {
			t.Errorf("%+v: %d %q", c, res.StatusCode, text)
		}
	}
}

func TestAddresses(t *testing.T) {
	for list, want := range map[string]int{
		"": 0, "127.0.0.1:9467": 1, "[::1]:1,[192.0.2.1]:2": 2, ":9467": 1,
		"127.0.0.1": -1, "127.0.0.1:": -1, "[]:9467": -1, "a:1,": -1, "9467": -1,
	} {
		got, err := Addresses(list)
		if (err != nil) != (want < 0) || err == nil && len(got) != want {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
	// If one address can't be had, none is kept.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first := free.Addr().String()
	free.Close()
	both := Config{Addresses: []string{first, l.Addr().String()}, Handler: ok, Limits: Default, Log: discard}
	if e, err := Listen(t.Context(), both); err == nil {
		e.Close()
		t.Fatal("both")
	}
	again, err := net.Listen("tcp", first)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
