package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of one run.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir, next: 1}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a.key = key
	a.cert = &x509.Certificate{Subject: pkix.Name{CommonName: "rig"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	return a, a.write("ca", a.cert, key)
}

// sign writes NAME.crt and NAME.key.
func (a *authority) sign(name, user, group string, hosts ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	c := &x509.Certificate{Subject: pkix.Name{CommonName: user}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if group != "" {
		c.Subject.Organization = []string{group}
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	return a.write(name, c, key)
}

func (a *authority) write(name string, c *x509.Certificate, key *ecdsa.PrivateKey) error {
	c.SerialNumber = big.NewInt(a.next)
	a.next++
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(a.pem(name+".crt", "CERTIFICATE", der), a.pem(name+".key", "PRIVATE KEY", secret))
}

func (a *authority) pem(file, kind string, b []byte) error {
	return os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600)
}

// public writes the public half of NAME.key, for service account tokens.
func (a *authority) public(name string, key *ecdsa.PrivateKey) error {
	b, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(a.pem(name+".pub", "PUBLIC KEY", b), a.pem(name+".key", "PRIVATE KEY", secret))
}

// pki makes everything the components ask each other for.
func pki(dir string) (*authority, error) {
	a, err := newAuthority(dir)
	if err != nil {
		return nil, err
	}
	tokens, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	users := "admin,admin,admin,system:masters\nkcm,system:kube-controller-manager,kcm\nsched,system:kube-scheduler," +
		"sched\nnode,system:node:rig,node,system:nodes\n"
	for _, lab := range []string{"lab1", "lab2"} {
		users += lab + ",system:node:" + lab + "," + lab + ",system:nodes\n"
	}
	return a, errors.Join(
		a.sign(
			"apiserver",
			"kube-apiserver",
			"",
			"127.0.0.1",
			nodeIP,
			"10.96.0.1",
			"localhost",
			"kubernetes.default.svc",
		),
		a.sign("kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
		a.sign("kubelet", "system:node:rig", "system:nodes", nodeIP, "rig"),
		a.public("sa", tokens),
		os.WriteFile(filepath.Join(dir, "tokens.csv"), []byte(users), 0o600),
	)
}
