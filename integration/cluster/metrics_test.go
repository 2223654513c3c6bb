package cluster

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// scrape asks the agent for metrics at an address, as Prometheus does that does not know the agent's certificate.
func scrape(t *testing.T, address, token string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the agent has signed it itself
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// The component for Prometheus on other nodes: metrics at the node's address, only for whom the ClusterRole is bound
// to. The agent becomes Ready, so kubelet's probes reach it beside that.
func TestMetricsSecure(t *testing.T) {
	deploy(t, "deployments/components/metrics")
	apply(t, `apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: tenant, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fabric-metrics-reader}
subjects:
- {kind: ServiceAccount, name: prometheus, namespace: default}
`)
	t.Cleanup(func() {
		k(t, "delete", "serviceaccount", "prometheus", "tenant")
		k(t, "delete", "clusterrolebinding", "prometheus")
	})
	reader := strings.TrimSpace(k(t, "create", "token", "prometheus"))
	tenant := strings.TrimSpace(k(t, "create", "token", "tenant"))
	for _, address := range []string{net.JoinHostPort(nodeIP, "9467"), "127.0.0.1:9467"} {
		for _, c := range []struct {
			who, token string
			want       int
		}{
			{"nobody", "", http.StatusUnauthorized},
			{"a made-up token", "x." + tenant, http.StatusUnauthorized},
			{"a tenant", tenant, http.StatusForbidden},
			{"Prometheus", reader, http.StatusOK},
		} {
			status, text := scrape(t, address, c.token)
			if status != c.want || strings.Contains(text, "fabric_ready") != (c.want == http.StatusOK) {
				t.Errorf("%s at %s: %d, want %d\n%s", c.who, address, status, c.want, text)
			}
		}
	}
	for _, address := range []string{net.JoinHostPort(nodeIP, "9468"), "10.96.0.1:9467"} {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			t.Errorf("somebody listens at %s", address)
		}
	}
}
