package cluster

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestNodeObject(t *testing.T) {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1"}}
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "192.0.2.9"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
		{Type: corev1.NodeInternalIP, Address: "2001:db8::1"}, {Type: corev1.NodeExternalIP, Address: "198.51.100.1"},
		{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
		{Type: corev1.NodeInternalIP, Address: "not an address"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}}
		if r.URL.Query().Get("fieldSelector") == "metadata.name=gpu-1" {
			list.Items = append(list.Items, node)
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	for name, want := range map[string][]string{"gpu-1": {"192.0.2.1", "198.51.100.1", "2001:db8::1"}, "gpu-2": nil} {
		config := &rest.Config{Host: server.URL}
		config.ContentType = "application/json"
		c, err := New(config, name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.NodeAddresses(t.Context())
		c.Close()
		var text []string
		for _, a := range got {
			text = append(text, a.String())
		}
		if !slices.Equal(text, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %v, %v", name, text, err)
		}
	}
}

func TestLocalAddress(t *testing.T) {
	for server, want := range map[string]string{"https://127.0.0.1:6443": "127.0.0.1", "https://[::1]": "::1"} {
		u, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := localAddress(t.Context(), u); err != nil || a != netip.MustParseAddr(want) {
			t.Errorf("%s: %v, %v", server, a, err)
		}
	}
}
