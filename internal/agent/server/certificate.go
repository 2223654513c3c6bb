package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// lookEvery bounds how often callers can make the agent read the files.
	lookEvery = 10 * time.Second
	// ownValid is how long a certificate of the agent's own is valid; it makes the next one at half of it.
	ownValid = 365 * 24 * time.Hour
)

// TLS returns the configuration of a server whose certificate is tls.crt and tls.key in dir, read again when they
// change; without dir it signs one itself, in memory, for these addresses. HTTP/2 is off, as in the metrics server of
// controller-runtime: a caller can start and reset its streams without end (CVE-2023-44487).
func TLS(dir string, addresses []string, log *slog.Logger) (*tls.Config, error) {
	c := &certificate{dir: dir, addresses: addresses, log: log, now: time.Now}
	if err := c.renew(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get(), nil },
	}, nil
}

// certificate is the one in use.
type certificate struct {
	dir       string
	addresses []string
	log       *slog.Logger
	now       func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	next    time.Time // when to look again
	failed  string    // the last error, which is logged once
}

// get returns the certificate. If the files are unusable, the last one that was usable stays: they may be half written.
func (c *certificate) get() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now().Before(c.next) {
		return c.current
	}
	err := c.renew()
	if err != nil {
		c.next = c.now().Add(lookEvery)
		if err.Error() != c.failed {
			c.log.Error("keeping the last certificate", "error", err)
		}
		c.failed = err.Error()
		return c.current
	}
	c.failed = ""
	return c.current
}

func (c *certificate) renew() error {
	if c.dir == "" {
		own, err := selfSigned(c.addresses, c.now())
		if err != nil {
			return fmt.Errorf("make a certificate for metrics: %w", err)
		}
		c.current, c.next = own, c.now().Add(ownValid/2)
		return nil
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(c.dir, "tls.crt"), filepath.Join(c.dir, "tls.key"))
	if err != nil {
		return fmt.Errorf("load the certificate for metrics from %s: %w", c.dir, err)
	}
	c.current, c.next = &pair, c.now().Add(lookEvery)
	return nil
}

// selfSigned returns a certificate for the hosts of addresses, localhost and this node's host name.
func selfSigned(addresses []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "fabric-agent"}, DNSNames: []string{"localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(ownValid), // clocks differ
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if name, err := os.Hostname(); err == nil {
		template.DNSNames = append(template.DNSNames, name)
	}
	for _, a := range addresses {
		if host, _, err := net.SplitHostPort(a); err == nil && net.ParseIP(host) != nil {
			template.IPAddresses = append(template.IPAddresses, net.ParseIP(host))
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
