package agent_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fabric-cni/fabric-cni/internal/agent"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// listens tells whether a program does at an address.
func listens(address string) bool {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// By default no client outside of the node reaches the agent, and kubelet does; with flags it listens where they say.
func TestListenAddresses(t *testing.T) {
	const outside = "192.0.2.7"
	sandbox.Run(t, "ip", "address", "add", outside+"/32", "dev", "lo")
	t.Cleanup(func() { _ = exec.Command("ip", "address", "delete", outside+"/32", "dev", "lo").Run() })
	for _, c := range []struct {
		args           []string
		there, missing []string
	}{
		{
			nil,
			[]string{"127.0.0.1:9468", "127.0.0.1:9467"},
			[]string{outside + ":9467", outside + ":9468", "[::1]:9467"},
		},
		{
			[]string{"--metrics-address", "[" + outside + "]:9467,127.0.0.1:9470"},
			[]string{"127.0.0.1:9468", "127.0.0.1:9470", outside + ":9467"},
			[]string{"127.0.0.1:9467", outside + ":9468"},
		},
		{[]string{"--metrics-address", ""}, []string{"127.0.0.1:9468"}, []string{"127.0.0.1:9467"}},
	} {
		p := newPlace(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- p.main(ctx, "run", append([]string{"--no-cluster", "--interval", "20ms"}, c.args...)...)
		}()
		for _, a := range c.there {
			sandbox.Until(t, "it listens at "+a, func() bool { return listens(a) })
		}
		for _, a := range c.missing {
			if listens(a) {
				t.Errorf("%q: somebody listens at %s", c.args, a)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"9467", "[]:9467"} {
		err := newPlace(t).main(t.Context(), "run", "--no-cluster", "--metrics-address", bad)
		if !errors.Is(err, agent.ErrUsage) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A port that another process has is no reason not to work: the agent logs it, and listens as soon as it is free.
func TestPortTaken(t *testing.T) {
	var taken []net.Listener
	for _, a := range []string{"127.0.0.1:9467", "127.0.0.1:9468"} {
		l, err := net.Listen("tcp", a)
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, l)
	}
	p := newPlace(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.main(ctx, "run", "--no-cluster", "--interval", "20ms") }()
	sandbox.Until(t, "it logs both and works", func() bool {
		log := p.logs.String()
		return strings.Contains(log, "listen for Prometheus: listen tcp 127.0.0.1:9467") &&
			strings.Contains(log, "listen for probes: listen tcp 127.0.0.1:9468") &&
			strings.Contains(log, `"running"`)
	})
	for _, l := range taken {
		l.Close()
	}
	sandbox.Until(t, "it listens", func() bool { return listens("127.0.0.1:9467") && listens("127.0.0.1:9468") })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The agent answers probes on a Unix socket that only its own user can reach, and opens no TCP port. It replaces a
// stale socket, and refuses a directory that other users can enter.
func TestSocket(t *testing.T) {
	p := newPlace(t)
	address := "unix:" + p.path("own/health.sock")
	ask := func(command string) error {
		return agent.Main(t.Context(), "v1", []string{command, "--health-address", address}, io.Discard, io.Discard)
	}
	p.write("own/health.sock", "what was left")
	chmod := func(mode os.FileMode) {
		if err := os.Chmod(p.path("own"), mode); err != nil {
			t.Fatal(err)
		}
	}
	chmod(0o711)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.main(ctx, "run", "--no-cluster", "--interval", "20ms", "--health-address", address) }()
	sandbox.Until(t, "it refuses the directory", func() bool {
		return strings.Contains(p.logs.String(), "no directory that only this user can enter")
	})
	if err := ask("health"); err == nil {
		t.Error("it answers in a directory of everybody")
	}
	chmod(0o700)
	sandbox.Until(t, "it is ready", func() bool { return ask("ready") == nil })
	if err := ask("health"); err != nil {
		t.Error(err)
	}
	if listens("127.0.0.1:9468") {
		t.Error("a port is open for probes")
	}
	sandbox.Until(t, "a file is in the state directory's place", func() bool {
		return os.RemoveAll(p.path("run")) == nil && os.WriteFile(p.path("run"), []byte("a file"), 0o600) == nil
	})
	sandbox.Until(t, "it is not ready", func() bool {
		err := ask("ready")
		return err != nil && strings.Contains(err.Error(), "503") && ask("health") == nil
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := ask("health"); err == nil {
		t.Error("it has ended, and answers")
	}
}

// reviewer is an API server that knows two tokens, and nothing else.
func reviewer(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil) // protobuf or JSON
		if err != nil {
			http.NotFound(w, r)
			return
		}
		switch review := o.(type) {
		case *authenticationv1.TokenReview:
			review.APIVersion, review.Kind = "authentication.k8s.io/v1", "TokenReview"
			token := review.Spec.Token
			review.Status.Authenticated = token == "reader" || token == "tenant"
			review.Status.User.Username = token
		case *authorizationv1.SubjectAccessReview:
			review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SubjectAccessReview"
			review.Status.Allowed = review.Spec.User == "reader"
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		if err := json.NewEncoder(w).Encode(o); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// With --metrics-secure metrics are for whom the API server allows it, and over TLS; probes are as before.
func TestMetricsSecure(t *testing.T) {
	p := newPlace(t)
	api := reviewer(t)
	p.write("kubeconfig", "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: "+
		"{cluster: a}}], clusters: [{name: a, cluster: {server: '"+api.URL+"'}}]}")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- p.main(ctx, "run", "--interval", "20ms", "--metrics-secure", "--node-name", "a", "--kubeconfig",
			p.path("kubeconfig"))
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // the agent has signed it itself
	ask := func(url, token string) int {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := client.Do(req)
		if err != nil {
			return 0
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	const url = "https://127.0.0.1:9467/metrics"
	sandbox.Until(t, "it listens", func() bool { return listens("127.0.0.1:9467") && listens("127.0.0.1:9468") })
	for token, want := range map[string]int{"": 401, "nobody": 401, "tenant": 403, "reader": 200} {
		if got := ask(url, token); got != want {
			t.Errorf("%q: %d, want %d", token, got, want)
		}
	}
	if got := ask(strings.Replace(url, "https", "http", 1), "reader"); got != http.StatusBadRequest {
		t.Errorf("without TLS: %d", got)
	}
	if got := ask("http://127.0.0.1:9468/healthz", ""); got != http.StatusOK {
		t.Errorf("healthz: %d", got)
	}
	api.Close()
	if got := ask(url, "new"); got != http.StatusInternalServerError {
		t.Errorf("without an API server: %d", got)
	}
	if got := ask(url, "reader"); got != http.StatusOK {
		t.Errorf("a token of the last minute: %d", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
