// Package network turns fabrics into what others read: resources for kubelet, NetworkAttachmentDefinitions for the
// cluster, and configuration files for one node. It is pure: settings and devices in, objects and bytes out.
package network

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Units are what kubelet may hand out of a fabric: the devices, or the shares of each.
func Units(f *settings.Fabric, devices []survey.Device) (out []deviceplugin.Unit) {
	for _, d := range devices {
		u := deviceplugin.Unit{ID: d.ID, Healthy: d.Active(), NUMA: d.NUMA, Files: d.Files, RDMA: d.HCA.Name}
		u.Address, u.Alone = d.Address.String(), f.Mode == settings.Exclusive
		if d.Address.Bus == "pci" {
			u.PCI = d.Address.Name
		}
		if f.Mode == settings.Exclusive {
			out = append(out, u)
			continue
		}
		for i := range f.Shares {
			s := u
			s.ID = u.ID + "-share-" + strconv.Itoa(i)
			out = append(out, s)
		}
	}
	return out
}

// Here is the part of a fabric's configuration that depends on the node.
type Here struct {
	Master      string     // mode shared: the parent interface of the IPoIB children
	First, Last netip.Addr // nodeRanges: the bounds of the node's range
	IPAMDir     string     // nodeRanges: the directory in which host-local records the addresses that it has given
}

// OfNode returns whether a fabric's configuration is a file of each node: then its definition has none.
func OfNode(f *settings.Fabric) bool { return f.Mode == settings.Shared || f.NodeRanges != nil }

// Configurable returns whether a fabric's configuration is a file of each node, and a node with these devices can have
// one: it has a device, and in mode shared an interface for the children.
func Configurable(f *settings.Fabric, devices []survey.Device) bool {
	return OfNode(f) && len(devices) > 0 && (f.Mode != settings.Shared || Master(devices) != "")
}

// Config is a fabric's network configuration.
func Config(f *settings.Fabric, h Here) ([]byte, error) {
	c := map[string]any{"cniVersion": "1.0.0", "type": "fabric"}
	if f.Mode == settings.Exclusive {
		c["capabilities"] = map[string]any{"deviceID": true}
	} else {
		c["mode"], c["master"] = "ipoib", h.Master
	}
	maps.Copy(c, f.Network)
	if r := f.NodeRanges; r != nil {
		own := map[string]string{
			"subnet":     r.Prefix.String(),
			"rangeStart": h.First.String(),
			"rangeEnd":   h.Last.String(),
		}
		c["ipam"] = map[string]any{"type": "host-local", "dataDir": h.IPAMDir, "ranges": [][]map[string]string{{own}}}
	}
	c["name"] = f.Name
	return json.MarshalIndent(c, "", "  ")
}

// Check returns an error if the plugin would refuse the configuration of a fabric, so that a mistake is reported once,
// and not by every pod.
func Check(f *settings.Fabric) error {
	_, err := Parse(f)
	return err
}

// Parse has the plugin's own parser read the configuration of a fabric, as an ADD would have it. What depends on the
// node is made up.
func Parse(f *settings.Fabric) (*netconf.Config, error) {
	b, err := Config(f, Here{Master: "ib0"})
	if err != nil {
		return nil, fmt.Errorf("fabric %q: network: %w", f.Name, err)
	}
	if f.Mode == settings.Exclusive { // Multus adds it to the configuration of a pod
		b = append([]byte(`{"pciBusID":"0000:00:00.0",`), b[1:]...)
	}
	env := netconf.Env{
		Command: "ADD", ContainerID: "check", IfName: "net1", Netns: "/run/netns/check", Path: "/opt/cni/bin",
	}
	c, err := netconf.Parse(b, env)
	if err != nil {
		return nil, fmt.Errorf("fabric %q: network: %w", f.Name, err)
	}
	return c, nil
}

// Master is the parent interface of this node's IPoIB children of a fabric: that of the first device that carries
// traffic, or else the first one. It is empty if no device has an interface.
func Master(devices []survey.Device) string {
	name := ""
	for _, d := range devices {
		if d.Netdev == "" {
			continue
		}
		if d.Active() {
			return d.Netdev
		}
		if name == "" {
			name = d.Netdev
		}
	}
	return name
}

// Annotations of a NetworkAttachmentDefinition.
const (
	ResourceAnnotation = "k8s.v1.cni.cncf.io/resourceName"
	ManagedBy          = "app.kubernetes.io/managed-by"
	Owner              = "fabric-agent"
)

// Definition is a fabric's NetworkAttachmentDefinition, which is the same on every node. In mode shared and with
// nodeRanges it has no configuration, so that Multus takes the file of that name on the node.
func Definition(f *settings.Fabric) (map[string]any, error) {
	spec := map[string]any{}
	if !OfNode(f) {
		b, err := Config(f, Here{})
		if err != nil {
			return nil, fmt.Errorf("fabric %q: network: %w", f.Name, err)
		}
		spec["config"] = string(b)
	}
	return map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1",
		"kind":       "NetworkAttachmentDefinition",
		"metadata": map[string]any{
			"name": f.Name, "namespace": f.Namespace,
			"labels":      map[string]any{ManagedBy: Owner},
			"annotations": map[string]any{ResourceAnnotation: f.Resource()},
		},
		"spec": spec,
	}, nil
}

// Reason describes the state of a device: "mlx5_0 (0000:3b:00.0) port is Down (Polling)".
func Reason(d *survey.Device) string {
	return fmt.Sprintf("%s (%s) port is %s", d.HCA.Name, strings.TrimPrefix(d.ID, "pci/"), d.State())
}
