package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxAddresses bounds what is believed of a Node object.
const maxAddresses = 64

// NodeAddresses returns the addresses by which the cluster knows this node, and the one from which this process reaches
// the API server, sorted. What can't be found out is in the error, beside the rest.
func (c *Client) NodeAddresses(ctx context.Context) ([]netip.Addr, error) {
	out, err := c.nodeObject(ctx)
	local, lerr := localAddress(ctx, c.server)
	if lerr == nil {
		out = append(out, local)
	}
	out = slices.DeleteFunc(out, func(a netip.Addr) bool { return !a.IsGlobalUnicast() })
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out), errors.Join(err, lerr)
}

// nodeObject lists one Node: the agent may list Nodes, and needs no right to get one.
func (c *Client) nodeObject(ctx context.Context) ([]netip.Addr, error) {
	list, err := c.core.Nodes().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + c.node})
	if err != nil {
		return nil, fmt.Errorf("get the addresses of Node %s: %w", c.node, err)
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("get the addresses of Node %s: the cluster has %d of this name", c.node, len(list.Items))
	}
	var out []netip.Addr
	for _, a := range list.Items[0].Status.Addresses {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil && len(out) < maxAddresses {
			out = append(out, ip.Unmap().WithZone(""))
		}
	}
	return out, nil
}

// localAddress asks the kernel which address packets to the API server have. A UDP socket is only connected: nothing is
// sent.
func localAddress(ctx context.Context, server *url.URL) (netip.Addr, error) {
	port := server.Port()
	if port == "" {
		port = "443"
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(server.Hostname(), port))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the node's address towards the API server: %w", err)
	}
	defer conn.Close()
	a, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the node's address towards the API server: %w", err)
	}
	return a.Addr().Unmap().WithZone(""), nil
}
