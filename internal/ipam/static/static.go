// Package static is the IPAM plugin static of containernetworking/plugins v1.9.1, as a library. The plugin is a main
// package, so this is written anew on the same types, and its tests compare it with the plugin's binary. What the JSON
// decoder does not say by itself is worded as in the plugin, because administrators search for those messages.
package static

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Net is the part of a network configuration that the plugin reads.
type Net struct {
	Name          string      `json:"name"`
	CNIVersion    string      `json:"cniVersion"`
	IPAM          *IPAMConfig `json:"ipam"`
	RuntimeConfig struct {
		IPs []string `json:"ips,omitempty"`
	} `json:"runtimeConfig,omitempty"`
	Args *struct {
		A *IPAMArgs `json:"cni"`
	} `json:"args"`
}

// IPAMConfig is the section ipam.
type IPAMConfig struct {
	Name      string
	Type      string         `json:"type"`
	Routes    []*types.Route `json:"routes"`
	Addresses []Address      `json:"addresses,omitempty"`
	DNS       types.DNS      `json:"dns"`
}

// IPAMArgs is args.cni.
type IPAMArgs struct {
	IPs []string `json:"ips"`
}

// Address is one to give, with the gateway of its subnet.
type Address struct {
	AddressStr string `json:"address"` // CIDR
	Gateway    net.IP `json:"gateway,omitempty"`
	Address    net.IPNet
	Version    string
}

// envArgs are the keys of CNI_ARGS that the plugin reads. It rejects others unless IgnoreUnknown is set.
type envArgs struct {
	types.CommonArgs
	IP      types.UnmarshallableString `json:"ip,omitempty"`
	GATEWAY types.UnmarshallableString `json:"gateway,omitempty"`
}

// Add returns the addresses of the configuration, of CNI_ARGS, args.cni.ips or runtimeConfig.ips: the last of them that
// has any takes precedence, except that those of CNI_ARGS are added to the configuration's. The second value is the CNI
// version of the configuration.
func Add(_ context.Context, env netconf.Env, conf []byte) (*current.Result, string, error) {
	c, v, err := load(conf, env.Args)
	if err != nil {
		return nil, "", err
	}
	r := &current.Result{CNIVersion: current.ImplementedSpecVersion, DNS: c.DNS, Routes: c.Routes}
	for i := range c.Addresses {
		a := &c.Addresses[i]
		r.IPs = append(r.IPs, &current.IPConfig{Address: a.Address, Gateway: a.Gateway})
	}
	return r, v, nil
}

// Predict returns the result that Add would return now.
func Predict(env netconf.Env, conf []byte) (*current.Result, error) {
	r, _, err := Add(context.Background(), env, conf)
	return r, err
}

// Check compares the gateways of the addresses in prevResult with those of the configuration, as the plugin does: an
// address that prevResult lacks is no error.
func Check(_ context.Context, env netconf.Env, conf []byte) error {
	c, _, err := load(conf, env.Args)
	if err != nil {
		return err
	}
	var n types.PluginConf
	if err := json.Unmarshal(conf, &n); err != nil {
		return fmt.Errorf("failed to load netconf: %w", err)
	}
	if n.RawPrevResult == nil {
		return errors.New("Required prevResult missing") //nolint:staticcheck // the plugin's words
	}
	if err := version.ParsePrevResult(&n); err != nil {
		return err
	}
	prev, err := current.NewResultFromResult(n.PrevResult)
	if err != nil {
		return err
	}
	for i := range c.Addresses {
		want := &c.Addresses[i]
		for _, got := range prev.IPs {
			if !want.Address.IP.Equal(got.Address.IP) {
				continue
			}
			if want.Gateway == nil || want.Gateway.Equal(got.Gateway) {
				break
			}
			return fmt.Errorf("static: Failed to match addr %v on interface %v", got.Address.IP, env.IfName)
		}
	}
	return nil
}

// Valid returns the error that ADD returns for a configuration.
func Valid(env netconf.Env, conf []byte) error {
	_, _, err := load(conf, env.Args)
	return err
}

// Del does nothing: no address is reserved anywhere.
func Del(context.Context, netconf.Env, []byte) error { return nil }

// load reads a configuration and CNI_ARGS. It returns the CNI version of the configuration beside it.
func load(conf []byte, args string) (*IPAMConfig, string, error) {
	n := Net{}
	if err := json.Unmarshal(conf, &n); err != nil {
		return nil, "", err
	}
	c := n.IPAM
	if c == nil {
		return nil, "", errors.New("IPAM config missing 'ipam' key")
	}
	if err := c.addEnv(args); err != nil {
		return nil, "", err
	}
	if n.Args != nil && n.Args.A != nil {
		if err := c.replace(n.Args.A.IPs); err != nil {
			return nil, "", err
		}
	}
	if err := c.replace(n.RuntimeConfig.IPs); err != nil {
		return nil, "", err
	}
	if err := c.complete(n.CNIVersion); err != nil {
		return nil, "", err
	}
	return c, n.CNIVersion, nil
}

// addEnv adds the addresses of CNI_ARGS, and gives the gateways there to the addresses whose subnet they are in. Those
// of the configuration are not parsed yet and get none, as in the plugin.
func (c *IPAMConfig) addEnv(args string) error {
	if args == "" {
		return nil
	}
	var e envArgs
	if err := types.LoadArgs(args, &e); err != nil {
		return err
	}
	if e.IP != "" {
		for item := range strings.SplitSeq(string(e.IP), ",") {
			text := strings.TrimSpace(item)
			a, err := parse(text)
			if err != nil {
				return fmt.Errorf("the 'ip' field is expected to be in CIDR notation, got: '%s'", text)
			}
			c.Addresses = append(c.Addresses, Address{AddressStr: text, Address: a})
		}
	}
	if e.GATEWAY == "" {
		return nil
	}
	for item := range strings.SplitSeq(string(e.GATEWAY), ",") {
		gw := net.ParseIP(strings.TrimSpace(item))
		if gw == nil {
			return fmt.Errorf("invalid gateway address: %s", item)
		}
		for i := range c.Addresses {
			if c.Addresses[i].Address.Contains(gw) {
				c.Addresses[i].Gateway = gw
			}
		}
	}
	return nil
}

// replace exchanges the addresses for those of a list, if it has any.
func (c *IPAMConfig) replace(list []string) error {
	if len(list) == 0 {
		return nil
	}
	c.Addresses = make([]Address, 0, len(list))
	for _, text := range list {
		a, err := parse(text)
		if err != nil {
			return fmt.Errorf("an entry in the 'ips' field is NOT in CIDR notation, got: '%s'", text)
		}
		c.Addresses = append(c.Addresses, Address{AddressStr: text, Address: a})
	}
	return nil
}

// complete parses what has not been parsed, and checks the number of addresses: before CNI 0.3.0 one of each family.
func (c *IPAMConfig) complete(cniVersion string) error {
	v4, v6 := 0, 0
	for i := range c.Addresses {
		a := &c.Addresses[i]
		if a.Address.IP == nil {
			parsed, err := parse(a.AddressStr)
			if err != nil {
				return fmt.Errorf("the 'address' field is expected to be in CIDR notation, got: '%s'", a.AddressStr)
			}
			a.Address = parsed
		}
		if ip4 := a.Address.IP.To4(); ip4 != nil {
			a.Address.IP = ip4
			v4++
		} else {
			v6++
		}
	}
	if v4 > 1 || v6 > 1 {
		if ok, _ := version.GreaterThanOrEqualTo(cniVersion, "0.3.0"); !ok {
			return fmt.Errorf("CNI version %v does not support more than 1 address per family", cniVersion)
		}
	}
	return nil
}

// parse reads an address with its prefix length; the bits of the host stay.
func parse(text string) (net.IPNet, error) {
	ip, subnet, err := net.ParseCIDR(text)
	if err != nil {
		return net.IPNet{}, err
	}
	return net.IPNet{IP: ip, Mask: subnet.Mask}, nil
}
