package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

func (a *app) plan() *cobra.Command {
	var conf, ns, ifName, id, args, format string
	c := &cobra.Command{
		Use:   "plan --netns PATH [-f CONF]",
		Short: "Print what ADD or DEL would do, as ip and rdma commands, and do nothing",
		Long: `plan prints what ADD with a network configuration (-f) and the DEL after it would do; without -f, what
DEL would do for the attachments of the network namespace. Where ADD would be refused, it prints the reasons with the
error code, first the one that ADD would return, and exits with status 3. Leftovers of a dead pod are a warning: ADD
returns them to the host first. It does not run the IPAM plugin: it shows the addresses that static and host-local
would give now, and none of other plugins. Mode rdma needs the result of the earlier plugin in the configuration
(prevResult), unless that names the device.

CONF is spec.config of a NetworkAttachmentDefinition, or a conflist, of which plugins of type fabric are used.`,
		Example: `  fabricctl plan --netns /run/netns/pod-a -f conf/ib-rail0.conflist
  fabricctl plan --netns /run/netns/pod-a`,
		Args: argsBetween(0, 0),
		RunE: func(*cobra.Command, []string) error {
			if err := oneOf("output", &format, "commands", "json", "yaml"); err != nil {
				return err
			}
			if err := a.running("plan"); err != nil {
				return err
			}
			if conf == "" {
				list, err := a.planDel(ns, ifName)
				if len(list) == 0 && err == nil && format == "commands" {
					a.stdout.Printf("# no attachment has its interface in %s; for a plan of ADD name a configuration "+
						"(-f)\n", ns)
				}
				return errors.Join(err, a.printPlans(format, list))
			}
			env := netconf.Env{ContainerID: id, Netns: ns, IfName: ifName, Args: args, Path: a.getenv("CNI_PATH")}
			list, err := a.planAll(conf, env)
			if err != nil && len(list) == 0 {
				return err
			}
			return errors.Join(err, a.printPlans(format, list))
		},
	}
	c.Flags().StringVarP(&format, "output", "o", "commands", "commands, json or yaml")
	c.Flags().StringVarP(&conf, "filename", "f", "", "network configuration; - for standard input")
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

// planned is what one call of the plugin would do.
type planned struct {
	Verb      string   `json:"verb"` // ADD, with the DEL after it, or DEL
	Interface string   `json:"interface"`
	Of        string   `json:"of,omitempty"` // the pod or container that has it
	Netns     string   `json:"netns"`
	Device    string   `json:"device,omitempty"` // empty: none was found
	Refused   []string `json:"refused"`          // why ADD would be refused; the first counts
	Warnings  []string `json:"warnings"`
	Add       []string `json:"add"` // commands, as far as they can be known
	Del       []string `json:"del"`
	IPAM      string   `json:"ipam,omitempty"` // the plugin whose addresses are not in add
	Tables    bool     `json:"tables"`         // add has routing tables, whose numbers are known only in the pod
}

// planAll plans the plugins of a configuration, until one would be refused.
func (a *app) planAll(conf string, env netconf.Env) (out []planned, err error) {
	list, err := a.confs(conf)
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		p, err := a.planAdd(c, env)
		if err != nil {
			return out, err
		}
		out = append(out, p...)
		if slices.ContainsFunc(p, func(p planned) bool { return len(p.Refused) > 0 }) {
			break
		}
	}
	return out, nil
}

// printPlans prints plans. One that would be refused is a finding.
func (a *app) printPlans(format string, list []planned) error {
	if format != "commands" {
		if err := a.structured(format, planReport{list}); err != nil {
			return err
		}
	}
	var err error
	for i := range list {
		if format == "commands" {
			list[i].show(&a.console)
		}
		if len(list[i].Refused) > 0 {
			err = errFinding
		}
	}
	return err
}

func (p *planned) show(c *console) {
	commands := func(list []string) {
		for _, line := range list {
			c.stdout.Printf("%s\n", quote.Raw(quote.Document([]byte(line))))
		}
	}
	if p.Verb == "DEL" {
		c.stdout.Printf("# DEL %s of %s: device %s; POD is %s\n", p.Interface, p.Of, p.Device, p.Netns)
		commands(p.Del)
		if p.IPAM != "" {
			c.stdout.Printf("# the IPAM plugin %s gets its DEL\n", p.IPAM)
		}
		return
	}
	if p.Device != "" {
		c.stdout.Printf("# device %s; POD is %s\n", p.Device, p.Netns)
	}
	c.stdout.Println("# ADD")
	for _, r := range p.Refused {
		c.stdout.Printf("# refused: %s\n", r)
	}
	for _, w := range p.Warnings {
		c.stdout.Printf("# warning: %s\n", w)
	}
	commands(p.Add)
	if p.IPAM != "" {
		c.stdout.Printf("# then the addresses and routes that the IPAM plugin %s gives\n", p.IPAM)
	}
	if p.Tables {
		c.stdout.Println("# tables are numbered 20000 + the index that the interface has in the pod")
	}
	if len(p.Del) > 0 {
		c.stdout.Println("# DEL")
		commands(p.Del)
	}
}
