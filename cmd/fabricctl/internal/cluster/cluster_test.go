package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/fabric-cni/fabric-cni/internal/testkit/apiserver"
)

// kubeconfig writes one, and returns the cluster of it.
func kubeconfig(t *testing.T, server, user string) *Cluster {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: %s}],
contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: %s}]}`, server, user)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := New()
	c.rules.ExplicitPath = file
	return c
}

// certificate is of an API server, and is good until then.
func certificate(t *testing.T, until time.Time) (c tls.Certificate, authority []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	is := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: until, IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{{127, 0, 0, 1}},
	}
	der, err := x509.CreateCertificate(rand.Reader, is, is, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Each error has what was asked for, the cause, and what to do.
func TestFault(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	answer := func(code int, reason, message string) *Cluster {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`,
				code, reason, message)
		}))
		t.Cleanup(s.Close)
		return kubeconfig(t, fmt.Sprintf("{server: %q}", s.URL), "{token: x}")
	}
	served := func(until time.Time, trusted bool) *Cluster {
		c, authority := certificate(t, until)
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		s.TLS = &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS12}
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		if !trusted {
			return kubeconfig(t, fmt.Sprintf("{server: %q}", s.URL), "{token: x}")
		}
		file := filepath.Join(t.TempDir(), "ca")
		if err := os.WriteFile(file, authority, 0o600); err != nil {
			t.Fatal(err)
		}
		return kubeconfig(t, fmt.Sprintf("{server: %q, certificate-authority: %q}", s.URL, file), "{token: x}")
	}
	missing, unknown := New(), New()
	missing.rules.ExplicitPath = "/nonexistent"
	unknown.overrides.CurrentContext = "nope"
	for _, c := range []struct {
		name    string
		cluster *Cluster
		cause   string
		cure    string
	}{
		{"no kubeconfig", New(), "no cluster is known", "set KUBECONFIG or --kubeconfig"},
		{"no such file", missing, "stat /nonexistent: no such file", "is not there"},
		{"no such context", unknown, `context "nope" does not exist`, "kubectl config get-contexts"},
		{"away", kubeconfig(t, "{server: 'https://127.0.0.1:1'}", "{}"), "connection refused", "nothing answers at"},
		{"unknown name", kubeconfig(t, "{server: 'https://no.invalid'}", "{}"), "no.invalid", "https://no.invalid"},
		{"expired", served(time.Now().Add(-time.Hour), true), "expired", "renew the certificate"},
		{"another authority", served(time.Now().Add(time.Hour), false), "unknown authority", "of another cluster"},
		{"credentials", answer(401, "Unauthorized", "Unauthorized"), "Unauthorized", "credentials of the kubeconfig"},
		{"rights", answer(403, "Forbidden", `User "x" cannot get`), `User "x"`, "the role lacks the verb get on pods"},
		{"no such pod", answer(404, "NotFound", `pods "a" not found`), `pods "a" not found`, ""},
		{"a webhook", answer(500, "InternalError", "webhook: context deadline exceeded"), "webhook", ""},
		{"no program", kubeconfig(t, "{server: 'https://127.0.0.1:1'}", "{exec: {apiVersion: client.authentication."+
			"k8s.io/v1, command: /nonexistent, interactiveMode: Never}}"), "getting credentials", "the program that"},
	} {
		err := c.cluster.Get(t.Context(), Pods, "ml", "a", &struct{}{})
		want := []string{"get pods ml/a: ", c.cause, c.cure}
		for _, w := range want {
			if !strings.Contains(fmt.Sprint(err), w) {
				t.Errorf("%s: %v: want %q", c.name, err, want)
			}
		}
		if c.cure == "" && !strings.HasSuffix(fmt.Sprint(err), c.cause) && c.name != "a webhook" {
			t.Errorf("%s: %v: it has a cure", c.name, err)
		}
	}
}

// One that does not answer is given up with the context.
func TestSilent(t *testing.T) {
	done := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(done) })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	c := kubeconfig(t, fmt.Sprintf("{server: %q}", s.URL), "{}")
	err := Each(ctx, c, List{Of: Nodes}, func(*metav1.PartialObjectMetadata, error) {})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "does not answer: network") {
		t.Error(err)
	}
}

// A list comes in pages. One that has taken too long goes on with what there is then; a kind that is not served is an
// error of its own.
func TestPages(t *testing.T) {
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		w.Header().Set("Content-Type", "application/json")
		switch q := r.URL.Query(); {
		case r.URL.Path == "/apis/resource.k8s.io":
			_, _ = io.WriteString(w, `{"preferredVersion":{"version":"v1beta2"}}`)
		case strings.HasSuffix(r.URL.Path, "ippools"):
			w.WriteHeader(http.StatusNotFound)
		case q.Get("continue") == "":
			_, _ = io.WriteString(w, `{"metadata":{"continue":"two"},"items":[{"metadata":{"name":"a"}}]}`)
		case q.Get("continue") == "two":
			w.WriteHeader(http.StatusGone)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired",`+
				`"code":410,"metadata":{"continue":"three"}}`)
		default:
			_, _ = io.WriteString(w, `{"items":[{"metadata":{"name":"b"}}],"metadata":{}}`)
		}
	}))
	t.Cleanup(s.Close)
	c := kubeconfig(t, fmt.Sprintf("{server: %q}", s.URL), "{}")
	list := func(l List) (out []string, err error) {
		err = Each(t.Context(), c, l, func(o *metav1.PartialObjectMetadata, _ error) { out = append(out, o.Name) })
		return out, err
	}
	got, err := list(List{Of: Claims, Namespace: "ml", Labels: "a=b", Fields: "c=d"})
	if err != nil || strings.Join(got, " ") != "a b" || len(asked) != 4 ||
		asked[1] != "/apis/resource.k8s.io/v1beta2/namespaces/ml/resourceclaims?fieldSelector=c%3Dd&"+
			"labelSelector=a%3Db&limit=500" {
		t.Errorf("%q, %v, of\n%s", got, err, strings.Join(asked, "\n"))
	}
	_, err = list(List{Of: Templates})
	if err != nil || len(asked) != 7 {
		t.Errorf("the versions of a group are asked for once: %v, %q", err, asked)
	}
	if got, err := list(List{Of: Nodes, Most: 1}); err != nil || strings.Join(got, " ") != "a" {
		t.Errorf("one: %q, %v", got, err)
	}
	if _, err := list(List{Of: Pools}); !errors.Is(err, ErrNotServed) {
		t.Errorf("not served: %v", err)
	}
	asked = nil
	if err := c.Get(t.Context(), Pods, "ml", "a/log", &struct{}{}); err == nil || len(asked) > 0 {
		t.Errorf("a name with a slash: %v, %q", err, asked)
	}
}

// What a command in a pod prints, and how it ends.
func TestExec(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho \"$*\"\necho oops >&2\nexit $4\n"
	if err := os.WriteFile(filepath.Join(dir, "bin/pod"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s := apiserver.New(dir)
	t.Cleanup(s.Close)
	file, err := s.Kubeconfig("team")
	if err != nil {
		t.Fatal(err)
	}
	c := New()
	c.rules.ExplicitPath = file
	if ns := c.Namespace(); ns != "team" {
		t.Errorf("namespace %q", ns)
	}
	for status, want := range map[string]func(error) bool{
		"0":   func(err error) bool { return err == nil },
		"3":   func(err error) bool { e := (utilexec.CodeExitError{}); return errors.As(err, &e) && e.Code == 3 },
		"125": func(err error) bool { return strings.HasSuffix(fmt.Sprint(err), "create pods/exec ml/a: oops") },
	} {
		var out, said bytes.Buffer
		err := c.Exec(t.Context(), "ml", "a", "", []string{"exit", status}, &out, &said)
		if !want(err) || out.String() != "ml a exit "+status+"\n" || said.String() != "oops\n" {
			t.Errorf("exit %s: %v, %q, %q", status, err, out.String(), said.String())
		}
	}
}
