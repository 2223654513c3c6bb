package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxAddresses bounds what is kept of each kind: local addresses of connections, and endpoints of the API server.
const maxAddresses = 16

// connections are those to the API server. The address of the Service is one that the node translates: the interface
// behind it is found by the endpoints.
type connections struct {
	mu        sync.Mutex
	local     []netip.Addr     // the last ones, the newest at the end
	endpoints []netip.AddrPort // of the Service kubernetes
	asked     bool             // since the last new connection
}

// tracer sees the connection of each request. It is no Dial of a rest.Config: with one, client-go makes a connection
// for each client.
type tracer struct {
	http.RoundTripper

	seen *connections
}

// RoundTrip is that of the http.RoundTripper.
func (t tracer) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { t.seen.note(info) }}
	return t.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

func (c *connections) wrap(next http.RoundTripper) http.RoundTripper { return tracer{next, c} }

func (c *connections) note(info httptrace.GotConnInfo) {
	a, ok := addressOf(info.Conn.LocalAddr())
	c.mu.Lock()
	defer c.mu.Unlock()
	if !info.Reused {
		c.asked = false
	}
	if ok && !slices.Contains(c.local, a) {
		c.local = append(c.local, a)
		c.local = c.local[max(0, len(c.local)-maxAddresses):]
	}
}

func addressOf(a net.Addr) (netip.Addr, bool) {
	p, err := netip.ParseAddrPort(a.String())
	return p.Addr().Unmap().WithZone(""), err == nil
}

// LocalAddresses are those from which the node reaches the API server: of the connections that the agent has had, and,
// by the node's routes as they are now, towards each endpoint of the Service kubernetes. It is empty while there was no
// connection. The error says why the endpoints are not known.
func (c *Client) LocalAddresses(ctx context.Context) ([]netip.Addr, error) {
	s := c.connections
	s.mu.Lock()
	ask := len(s.local) > 0 && !s.asked
	s.asked = s.asked || ask
	s.mu.Unlock()
	var err error
	if ask {
		err = c.findEndpoints(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.local)
	for _, e := range s.endpoints {
		// A UDP socket is only connected: nothing is sent. Without a route there is no address.
		conn, derr := (&net.Dialer{}).DialContext(ctx, "udp", e.String())
		if derr != nil {
			continue
		}
		if a, ok := addressOf(conn.LocalAddr()); ok {
			out = append(out, a)
		}
		conn.Close()
	}
	return out, err
}

// findEndpoints asks for the endpoints of the API server. Where it keeps none, there is no such object.
func (c *Client) findEndpoints(ctx context.Context) error {
	s := c.connections
	slice, err := c.discovery.EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = apierrors.IsForbidden(err) // else it is tried again
		return fmt.Errorf("find the endpoints of the API server: %w", err)
	}
	found := endpointsOf(slice)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints = found
	return nil
}

func endpointsOf(slice *discoveryv1.EndpointSlice) (out []netip.AddrPort) {
	port := "443"
	for _, p := range slice.Ports {
		if p.Port != nil {
			port = strconv.Itoa(int(*p.Port))
		}
	}
	for i := range slice.Endpoints {
		for _, text := range slice.Endpoints[i].Addresses {
			a, err := netip.ParseAddrPort(net.JoinHostPort(text, port))
			if err == nil && len(out) < maxAddresses {
				out = append(out, a)
			}
		}
	}
	return out
}
