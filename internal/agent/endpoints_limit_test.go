package agent

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fabric-cni/fabric-cni/internal/agent/server"
)

// slowNode is a node whose devices take a while to read.
type slowNode struct{ in, out chan struct{} }

func (n slowNode) Describe(chan<- *prometheus.Desc) {}

func (n slowNode) Collect(chan<- prometheus.Metric) {
	n.in <- struct{}{}
	<-n.out
}

// However many ask for metrics, a few of them look at the node.
func TestMetricsAtOnce(t *testing.T) {
	n := slowNode{make(chan struct{}, server.AtOnce), make(chan struct{})}
	registry := prometheus.NewRegistry()
	if err := registry.Register(n); err != nil {
		t.Fatal(err)
	}
	h := metricsHandler(registry)
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		return w
	}
	done := make(chan int, server.AtOnce)
	for range server.AtOnce {
		go func() { done <- ask().Code }()
	}
	for range server.AtOnce {
		<-n.in
	}
	if w := ask(); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("one too many: %d", w.Code)
	}
	close(n.out)
	for range server.AtOnce {
		if code := <-done; code != http.StatusOK {
			t.Errorf("%d", code)
		}
	}
}
