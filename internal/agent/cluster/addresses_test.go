package cluster

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The local address is that of the connection, and of the route to each endpoint of the API server; endpoints are asked
// for once a connection.
func TestLocalAddresses(t *testing.T) {
	var asked, status atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/namespaces/default/endpointslices/kubernetes") {
			return
		}
		asked.Add(1)
		port := int32(6443)
		slice := discoveryv1.EndpointSlice{
			TypeMeta:  metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"},
			Ports:     []discoveryv1.EndpointPort{{Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"::1", "not an address"}}},
		}
		w.Header().Set("Content-Type", "application/json")
		if s := status.Load(); s != 0 {
			w.WriteHeader(int(s))
			return
		}
		if err := json.NewEncoder(w).Encode(slice); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"x","cluster":{"server":` +
		strconv.Quote(server.URL) + `}}],"contexts":[{"name":"x","context":{"cluster":"x"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, link, err := Dial(kubeconfig, "n", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	look := func(fails bool, requests int32, want ...string) {
		t.Helper()
		got, err := c.LocalAddresses(t.Context())
		if (err != nil) != fails {
			t.Error(err)
		}
		var all []string
		for _, a := range got {
			all = append(all, a.String())
		}
		if slices.Sort(all); !slices.Equal(slices.Compact(all), want) || asked.Load() != requests {
			t.Errorf("%v after %d requests, want %v after %d", all, asked.Load(), want, requests)
		}
	}
	connect := func() { _ = link.client.Get().AbsPath("/any").Do(t.Context()).Error() }
	look(false, 0) // no connection yet
	connect()
	status.Store(http.StatusForbidden)
	look(true, 1, "127.0.0.1")
	look(false, 1, "127.0.0.1") // with an older role it would be so for ever
	server.CloseClientConnections()
	status.Store(http.StatusTeapot)
	connect()
	look(true, 2, "127.0.0.1")
	status.Store(0)
	look(false, 3, "127.0.0.1", "::1")
	look(false, 3, "127.0.0.1", "::1")
	server.CloseClientConnections()
	connect()
	look(false, 4, "127.0.0.1", "::1")
	if a := netip.MustParseAddr("::1"); !slices.Contains(c.connections.endpoints, netip.AddrPortFrom(a, 6443)) {
		t.Errorf("endpoints %v", c.connections.endpoints)
	}
}
