package generate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// resourceConfig is a resource in the configuration of a device plugin: of the SR-IOV network device plugin, or of the
// RDMA shared device plugin, which has a maximum of pods.
type resourceConfig struct {
	Prefix    string    `json:"resourcePrefix"`
	Name      string    `json:"resourceName"`
	Most      int       `json:"rdmaHcaMax,omitempty"`
	Selectors selectors `json:"selectors"`
}

// selectors choose devices: each device is of one in each list.
type selectors struct {
	Vendors []string `json:"vendors"`

	Devices   []string `json:"devices,omitempty"`
	Roots     []string `json:"rootDevices,omitempty"`
	Addresses []string `json:"pciAddresses,omitempty"`
	RDMA      bool     `json:"isRdma,omitempty"`

	DeviceIDs []string `json:"deviceIDs,omitempty"` // from here: the shared device plugin
	Netdevs   []string `json:"ifNames,omitempty"`
	LinkTypes []string `json:"linkTypes,omitempty"`
}

// config is the configuration of a device plugin.
func (g *Group) config(shared bool) (string, error) {
	var list []resourceConfig
	for _, r := range g.Resources {
		c := resourceConfig{Prefix: g.Prefix, Name: r.Name}
		if shared {
			c.Most = 63
			c.Selectors = selectors{
				Vendors: r.Vendors, DeviceIDs: r.Devices, Netdevs: r.Netdevs, LinkTypes: []string{r.LinkType},
			}
		} else {
			c.Selectors = selectors{Vendors: r.Vendors, Devices: r.Devices, Roots: r.Roots, RDMA: true}
			if len(r.Roots) == 0 {
				c.Selectors.Addresses = r.Addresses
			}
		}
		list = append(list, c)
	}
	config := fields{"resourceList": list}
	if shared {
		config = fields{"periodicUpdateInterval": 300, "configList": list}
	}
	b, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return "", fmt.Errorf("configuration of a device plugin: %w", err)
	}
	return string(b) + "\n", nil
}

// reasons say what the resources are.
func (g *Group) reasons() (lines []string) {
	for _, r := range g.Resources {
		lines = append(append(lines, r.Name+": "+r.Reason+"."), r.Hints...)
	}
	return lines
}

// pluginDocs are the configurations of the device plugin, each for some of the nodes.
func (d *data) pluginDocs() (docs []doc, err error) {
	for i := range d.Groups {
		g := &d.Groups[i]
		config, err := g.config(d.Shared)
		if err != nil {
			return nil, err
		}
		plugin := "SR-IOV network device plugin"
		if d.Shared {
			plugin = "RDMA shared device plugin"
		}
		head := []string{plugin + ", for the nodes " + strings.Join(g.Nodes, ", ") + "."}
		if len(d.Groups) > 1 {
			head = append(head, "On other nodes the same selectors are those of ports that are Down or in "+
				"another fabric: run "+
				"one DaemonSet", "per ConfigMap, with a nodeSelector or nodeAffinity for these nodes.")
		}
		docs = append(docs, doc{
			object: object{
				TypeMeta: kind("v1", "ConfigMap"), Metadata: d.named(d.ConfigMap(*g)),
				Data: map[string]string{"config.json": config},
			},
			head:  append(head, d.pluginHead()...),
			notes: map[string]string{"config.json": strings.Join(g.reasons(), "\n")},
		})
	}
	return docs, nil
}

func (d *data) pluginHead() (lines []string) {
	switch {
	case d.Shared:
		lines = []string{
			"It works in shared RDMA mode only (rdma system), gives a pod verbs and no interface, and lets it " +
				"see every HCA of",
			"the node: for interfaces, addresses and isolation use the device-plugin without --shared, and " +
				"fabric. InfiniBand",
			"verbs need no more; RoCE needs an address in the pod: generate nad --shared. ifNames where other " +
				"ports of the",
			"nodes have the same ids: those that are Down, part of a bond or in another fabric.",
		}
		if d.Note != "" {
			lines = append(lines, warnings([]string{d.Note})...)
		}
	case d.VFs:
		lines = []string{
			"VFs are selected by the address of their PF: it stays when they are made again, and names change in pods.",
			"isRdma: the pod gets the character devices too.",
		}
	default:
		lines = []string{
			"Whole ports are selected by their ids where no other port of these nodes has them, else by address: " +
				"once a port",
			"is in a pod, a restarted plugin can't tell its name and link type any more. isRdma: the pod gets " +
				"the character",
			"devices too.",
		}
	}
	daemonSet := "kube-sriov-device-plugin"
	if d.Plugin != nil {
		daemonSet = cmp.Or(d.Plugin.Name, daemonSet)
		lines = append(lines, d.Plugin.Namespace+"/"+d.Plugin.Name+" reads its configuration from a ConfigMap in its "+
			"own namespace.")
	} else {
		lines = append(lines, "The ConfigMap belongs in the namespace of the plugin's DaemonSet, and has the name "+
			"that its volume names. Those here", "are what the project's own manifests have; --cluster asks the "+
			"cluster, --namespace says it. kubectl get daemonsets -A")
	}
	if !d.Shared {
		lines = append(lines, "Restart the plugin after a change: kubectl -n "+d.Namespace+" rollout restart "+
			"daemonset "+
			daemonSet)
	}
	return lines
}
