package server

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// presented is the certificate that a server shows.
func presented(t *testing.T, address string, versions ...uint16) (*x509.Certificate, tls.ConnectionState, error) {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}
	if len(versions) > 0 {
		config.MinVersion, config.MaxVersion = slices.Min(versions), slices.Max(versions)
	}
	c, err := tls.Dial("tcp", address, config)
	if err != nil {
		return nil, tls.ConnectionState{}, err
	}
	defer c.Close()
	state := c.ConnectionState()
	return state.PeerCertificates[0], state, nil
}

// save writes a new key pair to dir, as the kubelet does with a Secret: both files at once.
func save(t *testing.T, dir string) *x509.Certificate {
	t.Helper()
	pair, err := selfSigned([]string{"192.0.2.1:9467"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Without files the agent signs a certificate for its addresses itself. TLS 1.2 at least, and no HTTP/2.
func TestSelfSigned(t *testing.T) {
	config, err := TLS("", []string{"192.0.2.1:9467", "127.0.0.1:9467"}, discard)
	if err != nil {
		t.Fatal(err)
	}
	address := served(t, ok, config, Default)
	c, state, err := presented(t, address)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"192.0.2.1", "127.0.0.1", "localhost"} {
		if err := c.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if state.NegotiatedProtocol != "http/1.1" {
		t.Errorf("%q", state.NegotiatedProtocol)
	}
	if _, _, err := presented(t, address, tls.VersionTLS12); err != nil {
		t.Error(err)
	}
	if _, _, err := presented(t, address, tls.VersionTLS10, tls.VersionTLS11); err == nil {
		t.Error("TLS 1.1")
	}
	pool := x509.NewCertPool()
	pool.AddCert(c)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	res, err := client.Get("https://" + address)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Error(res.Status)
	}
	// It is replaced long before it ends.
	now := time.Now()
	own := &certificate{now: func() time.Time { return now }, log: discard}
	if err := own.renew(); err != nil {
		t.Fatal(err)
	}
	first := own.get()
	now = now.Add(ownValid / 2)
	if own.get() == first {
		t.Error("still the first one")
	}
}

// New files are used without a restart; unusable ones change nothing.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	if _, err := TLS(dir, nil, discard); err == nil {
		t.Fatal("a directory without a certificate")
	}
	first := save(t, dir)
	began := time.Now()
	var later atomic.Int64
	c := &certificate{dir: dir, log: discard,
		now: func() time.Time { return began.Add(time.Duration(later.Load())) }}
	if err := c.renew(); err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get(), nil }}
	address := served(t, ok, config, Default)
	check := func(what string, want *x509.Certificate) {
		t.Helper()
		got, _, err := presented(t, address)
		if err != nil || !got.Equal(want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("at the start", first)
	second := save(t, dir)
	check("before it looks again", first)
	later.Add(int64(lookEvery))
	check("new files", second)
	if err := os.WriteFile(filepath.Join(dir, "tls.key"), []byte("half a k"), 0o600); err != nil {
		t.Fatal(err)
	}
	later.Add(int64(lookEvery))
	check("a file that is no key", second)
	third := save(t, dir)
	later.Add(int64(lookEvery))
	check("repaired", third)
}
