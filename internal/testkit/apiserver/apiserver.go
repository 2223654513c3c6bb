// Package apiserver is an API server for tests of its clients: a script of the test answers each request, and another
// one is what runs in the pods.
package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Server runs in Dir, where the scripts are:
//
//	bin/api METHOD PATH?QUERY         prints the answer; standard input is the body
//	bin/pod NAMESPACE POD COMMAND...  runs a command in a pod
//
// The query has no limit. A script that fails prints a sentence on standard error, with the HTTP status before it (404
// without it); of a pod, exit status 125 is for a command that can't be run.
type Server struct {
	Dir  string
	http *httptest.Server

	mu  sync.Mutex
	env map[string]string
}

// New starts a server.
func New(dir string) *Server {
	s := &Server{Dir: dir, env: map[string]string{}}
	s.http = httptest.NewServer(s)
	return s
}

// Close ends it, and what runs in its pods.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Set sets a variable of the scripts.
func (s *Server) Set(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.env[name] = value
}

// Kubeconfig writes one, whose context has this namespace, and returns its name.
func (s *Server) Kubeconfig(namespace string) (string, error) {
	file := filepath.Join(s.Dir, "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "test",
"clusters": [{"name": "test", "cluster": {"server": %q}}], "users": [{"name": "test", "user": {"token": "test"}}],
"contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": %q}}]}`, s.http.URL,
		namespace)
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if path, ok := strings.CutSuffix(r.URL.Path, "/exec"); ok {
		p := strings.Split(strings.TrimPrefix(path, "/api/v1/namespaces/"), "/")
		args := append([]string{p[0], p[len(p)-1]}, r.URL.Query()["command"]...)
		websocket.Server{
			Handshake: func(c *websocket.Config, _ *http.Request) error {
				c.Protocol = []string{"v5.channel.k8s.io"}
				return nil
			},
			Handler: func(c *websocket.Conn) { s.pod(r.Context(), c, args) },
		}.ServeHTTP(w, r)
		return
	}
	q := r.URL.Query()
	q.Del("limit")
	what, _ := url.QueryUnescape(q.Encode())
	if what != "" {
		what = "?" + what
	}
	cmd := s.command(r.Context(), "api", r.Method, r.URL.Path+what)
	cmd.Stdin = r.Body
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err == nil {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out) // the client may have gone
		return
	}
	refuse(w, strings.TrimSpace(said.String()))
}

// reasons are what the API server calls its HTTP statuses.
var reasons = map[int]metav1.StatusReason{
	http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
	http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusGone: metav1.StatusReasonExpired,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
}

func refuse(w http.ResponseWriter, said string) {
	number, message, _ := strings.Cut(said, " ")
	code, err := strconv.Atoi(number)
	if err != nil {
		code, message = http.StatusNotFound, said
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // the client may have gone
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Reason: reasons[code], Code: int32(code), Message: message,
	})
}

// command is a script with the variables of the server. It ends with its children. The shell reads the file: it could
// not be executed while another test's child has it open for writing, between its fork and its exec.
func (s *Server) command(ctx context.Context, script string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", append([]string{filepath.Join(s.Dir, "bin", script)}, args...)...)
	cmd.Dir, cmd.Env = s.Dir, os.Environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, value := range s.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// stream is one of those that share a connection.
type stream struct {
	*websocket.Conn
	number byte
	mu     *sync.Mutex
}

func (s stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.Conn.Write(append([]byte{s.number}, b...))
	return len(b), err
}

// pod runs a command in a pod until it ends, or the client has gone.
func (s *Server) pod(ctx context.Context, c *websocket.Conn, args []string) {
	c.PayloadType = websocket.BinaryFrame
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, c) // until the client has gone
		cancel()
	}()
	var one sync.Mutex
	var said bytes.Buffer
	cmd := s.command(ctx, "pod", args...)
	cmd.Stdout = stream{c, 1, &one}
	cmd.Stderr = io.MultiWriter(stream{c, 2, &one}, &said)
	err := cmd.Run()
	status := metav1.Status{Status: metav1.StatusSuccess}
	exit := (*exec.ExitError)(nil)
	switch {
	case errors.As(err, &exit) && exit.ExitCode() != 125:
		status = metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(exit.ExitCode())}},
		}}
	case err != nil:
		status = metav1.Status{Status: metav1.StatusFailure, Message: strings.TrimSpace(said.String())}
	}
	_ = errors.Join(json.NewEncoder(stream{c, 3, &one}).Encode(status), c.WriteClose(1000)) // the client may have gone
}
