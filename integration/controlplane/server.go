// Package controlplane has tests of the controller and of what agents may do, on a real API server: etcd and
// kube-apiserver, which scripts/cluster-setup.sh has built, and nothing else of a cluster. They start in a second or
// two, so these tests need no fake of Kubernetes. integration/cluster has the whole cluster.
package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Server is a running API server.
type Server struct {
	Dir    string       // its state and logs
	Config *rest.Config // of an administrator
	Flags  []string     // of kube-apiserver, to start it again
	Etcd   string       // address of etcd

	cache     string
	etcd, api *exec.Cmd
}

// adminToken is the token of an administrator.
const adminToken = "admin"

// Start starts etcd and kube-apiserver with their state in dir.
func Start(ctx context.Context, dir string, flags ...string) (*Server, error) {
	cache := os.Getenv("FABRIC_CLUSTER")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		cache = filepath.Join(home, ".cache", "fabric-cluster")
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir, cache: cache}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := s.files(); err != nil {
		return nil, err
	}
	client, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	s.Etcd = client
	s.etcd, err = s.start("etcd", "--data-dir", dir+"/etcd", "--unsafe-no-fsync", "--listen-client-urls", client,
		"--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default="+peer, "--quota-backend-bytes", strconv.Itoa(8<<30))
	if err != nil {
		return nil, err
	}
	s.Flags = append([]string{
		"--etcd-servers", client, "--secure-port", ports[2], "--bind-address", "127.0.0.1",
		"--cert-dir", dir + "/cert", "--token-auth-file", dir + "/tokens.csv", "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", dir + "/sa.key",
		"--service-account-signing-key-file", dir + "/sa.key", "--service-cluster-ip-range", "10.96.0.0/16",
		"--allow-privileged=true",
	}, flags...)
	s.Config = &rest.Config{
		Host: "https://127.0.0.1:" + ports[2], BearerToken: adminToken, QPS: 1000, Burst: 2000,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
	if err := s.StartAPI(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// StartAPI starts kube-apiserver, and waits until it is ready.
func (s *Server) StartAPI(ctx context.Context) (err error) {
	if s.api, err = s.start("kube-apiserver", s.Flags...); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	for range 3000 { // ten minutes, for a machine that is busy
		_, err = client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			_, err = client.CoreV1().Namespaces().Get(ctx, "default", getOptions)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
	log, _ := os.ReadFile(s.Dir + "/kube-apiserver.log")
	return fmt.Errorf("the API server is not ready: %w\n%s", err, log[max(0, len(log)-4000):])
}

// Manifests is where the manifests of Multus and whereabouts are.
func (s *Server) Manifests() string { return filepath.Join(s.cache, "crds") }

// Program is the path of kubectl or helm.
func (s *Server) Program(name string) string {
	if name == "helm" {
		return filepath.Join(s.cache, "helm", name)
	}
	return filepath.Join(s.cache, "bin", name)
}

// Processes are the process ids of what runs, by name.
func (s *Server) Processes() map[string]int {
	return map[string]int{"etcd": s.etcd.Process.Pid, "kube-apiserver": s.api.Process.Pid}
}

// StopAPI kills kube-apiserver.
func (s *Server) StopAPI() { stop(s.api) }

// Stop kills everything.
func (s *Server) Stop() {
	stop(s.api)
	stop(s.etcd)
}

func stop(c *exec.Cmd) {
	if c != nil && c.Process != nil {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}

func (s *Server) start(name string, args ...string) (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(s.Dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	// it ends with Stop, or with this process
	cmd := exec.Command(filepath.Join(s.cache, "bin", name), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w; make fetch builds it", name, err)
	}
	return cmd, nil
}

// files are the key of service accounts and the administrator's token.
func (s *Server) files() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return errors.Join(
		os.WriteFile(s.Dir+"/sa.key", text, 0o600),
		os.WriteFile(s.Dir+"/tokens.csv", []byte(adminToken+",admin,admin,system:masters\n"), 0o600),
	)
}

// freePorts are ports without a listener, below those that the kernel gives to connections: one of these may be
// taken before a server listens at it, or while it is started again.
func freePorts(n int) (out []string, err error) {
	for range 1000 {
		port := strconv.Itoa(20000 + rand.IntN(12000)) // any will do
		l, err := net.Listen("tcp", "127.0.0.1:"+port) // closed at once
		if err != nil {
			continue
		}
		defer l.Close()
		if out = append(out, port); len(out) == n {
			return out, nil
		}
	}
	return nil, errors.New("no free ports")
}
