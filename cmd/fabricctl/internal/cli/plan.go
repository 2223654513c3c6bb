package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

func (a *app) plan() *cobra.Command {
	var conf, ns, ifName, id, args string
	c := &cobra.Command{
		Use:   "plan --netns PATH [-f CONF]",
		Short: "Print what ADD or DEL would do, as ip and rdma commands, and do nothing",
		Long: `plan prints, for a network configuration (-f), what ADD would do to the device and what the DEL after
it would do; without -f, what DEL would do for the attachments that the network namespace has now. It decides as ADD
does: where ADD would be refused, the reasons are printed with the error code, the one that ADD would return first,
and the exit status is 3. What a dead pod has left is reported as a warning: ADD returns it to the host first. The
IPAM plugin is not executed: the addresses of static and host-local are those that it would give now, others are
missing in the plan. In mode rdma the earlier plugin of the chain has to have done its part, and its result has to
be in the configuration (prevResult), unless that names the device.

CONF is what a NetworkAttachmentDefinition has in spec.config, or a conflist: then its plugins of type fabric count.`,
		Example: `  fabricctl plan --netns /run/netns/pod-a -f conf/ib-rail0.conflist
  fabricctl plan --netns /run/netns/pod-a`,
		Args: argsBetween(0, 0),
		RunE: func(*cobra.Command, []string) error {
			if err := a.running("plan"); err != nil {
				return err
			}
			if conf == "" {
				return a.planDel(ns, ifName)
			}
			list, err := a.confs(conf)
			if err != nil {
				return err
			}
			for _, c := range list {
				env := netconf.Env{ContainerID: id, Netns: ns, IfName: ifName, Args: args, Path: a.getenv("CNI_PATH")}
				if err := a.planAdd(c, env); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().StringVarP(&conf, "file", "f", "", "network configuration; - for standard input")
	c.Flags().StringVar(&ns, "netns", "", "network namespace of the pod, as CNI_NETNS (required)")
	c.Flags().StringVar(&ifName, "ifname", "", "interface in the pod (default net1; without -f: all)")
	c.Flags().StringVar(&id, "container", "plan", "container id")
	c.Flags().StringVar(&args, "cni-args", "", "CNI_ARGS, as K8S_POD_UID=UID for devices of ResourceClaims")
	if err := c.MarkFlagRequired("netns"); err != nil {
		panic(err)
	}
	return c
}

// confs reads a configuration, or the plugins of type fabric in a list of them with what they get from the list.
func (a *app) confs(name string) ([][]byte, error) {
	b, err := a.read(name)
	if err != nil {
		return nil, err
	}
	var list struct {
		CNIVersion string                       `json:"cniVersion"`
		Name       string                       `json:"name"`
		Plugins    []map[string]json.RawMessage `json:"plugins"`
		PrevResult json.RawMessage              `json:"prevResult"`
	}
	isList := json.Unmarshal(b, &list) == nil && list.Plugins != nil
	if !isList { // the plan says what is wrong
		return [][]byte{b}, nil
	}
	var out [][]byte
	for _, p := range list.Plugins {
		if string(p["type"]) != `"fabric"` {
			continue
		}
		for k, v := range map[string]string{"cniVersion": list.CNIVersion, "name": list.Name} {
			if p[k], err = json.Marshal(v); err != nil {
				return nil, err
			}
		}
		if list.PrevResult != nil {
			p["prevResult"] = list.PrevResult
		}
		one, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("read %s: no plugin of type fabric in the list", name)
	}
	return out, nil
}
