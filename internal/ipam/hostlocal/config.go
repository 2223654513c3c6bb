package hostlocal

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// An interface gets an address of each set, and each range is compared with all others: the plugin has no bounds.
const (
	maxSets   = 64
	maxRanges = 1024
)

// Net is the part of a network configuration that the plugin reads.
type Net struct {
	Name          string      `json:"name"`
	CNIVersion    string      `json:"cniVersion"`
	IPAM          *IPAMConfig `json:"ipam"`
	RuntimeConfig struct {
		IPRanges []RangeSet `json:"ipRanges,omitempty"`
		IPs      []*IP      `json:"ips,omitempty"`
	} `json:"runtimeConfig,omitempty"`
	Args *struct {
		A *IPAMArgs `json:"cni"`
	} `json:"args"`
}

// IPAMConfig is the section ipam. The fields of Range are the oldest way to write a single range.
type IPAMConfig struct {
	*Range
	Name       string         // of the network, which names the directory
	Type       string         `json:"type"`
	Routes     []*types.Route `json:"routes"`
	DataDir    string         `json:"dataDir"`
	ResolvConf string         `json:"resolvConf"`
	Ranges     []RangeSet     `json:"ranges"`

	wanted []net.IP // from CNI_ARGS, args.cni.ips and runtimeConfig.ips
}

// IPAMArgs is args.cni.
type IPAMArgs struct {
	IPs []*IP `json:"ips"`
}

// envArgs are the keys of CNI_ARGS that the plugin reads. It rejects others unless IgnoreUnknown is set.
type envArgs struct {
	types.CommonArgs
	IP IP `json:"ip,omitempty"`
}

// IP is a requested address; a prefix length behind it is ignored.
type IP struct{ net.IP }

// UnmarshalText reads "10.0.0.5" or "10.0.0.5/24". The empty text is no address.
func (i *IP) UnmarshalText(b []byte) error {
	text := string(b)
	var ip net.IP
	if strings.Contains(text, "/") {
		ip, _, _ = net.ParseCIDR(text)
	} else {
		ip = net.ParseIP(text)
	}
	if ip == nil && text != "" {
		return fmt.Errorf("invalid IP address %s", text)
	}
	i.IP = ip
	return nil
}

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
	if err := n.readWanted(args); err != nil {
		return nil, "", err
	}
	if c.Range != nil && c.Subnet.IP != nil {
		c.Ranges = append([]RangeSet{{*c.Range}}, c.Ranges...)
	}
	c.Range = nil
	if len(n.RuntimeConfig.IPRanges) > 0 {
		c.Ranges = append(n.RuntimeConfig.IPRanges, c.Ranges...)
	}
	if err := c.complete(n.CNIVersion); err != nil {
		return nil, "", err
	}
	c.Name = n.Name
	return c, n.CNIVersion, nil
}

// readWanted collects the addresses that the caller asks for.
func (n *Net) readWanted(args string) error {
	var e envArgs
	if err := types.LoadArgs(args, &e); err != nil {
		return err
	}
	list := n.RuntimeConfig.IPs
	if n.Args != nil && n.Args.A != nil {
		list = append(n.Args.A.IPs, list...)
	}
	if e.IP.IP != nil {
		list = append([]*IP{&e.IP}, list...)
	}
	for _, i := range list {
		if i == nil || i.IP == nil {
			return fmt.Errorf("cannot understand ip: %w", errNoIP)
		}
		n.IPAM.wanted = append(n.IPAM.wanted, canonical(i.IP))
	}
	return nil
}

// complete fills in what the ranges leave out, and checks them.
func (c *IPAMConfig) complete(cniVersion string) error {
	if len(c.Ranges) == 0 {
		return errors.New("no IP ranges specified")
	}
	n := 0
	for _, s := range c.Ranges {
		n += len(s)
	}
	if len(c.Ranges) > maxSets || n > maxRanges {
		return fmt.Errorf("ipam.ranges: %d range sets with %d ranges: want %d sets and %d ranges at most",
			len(c.Ranges), n, maxSets, maxRanges)
	}
	v4, v6 := 0, 0
	for i := range c.Ranges {
		if err := c.Ranges[i].complete(); err != nil {
			return fmt.Errorf("invalid range set %d: %w", i, err)
		}
		if c.Ranges[i][0].RangeStart.To4() != nil {
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
	for i, s := range c.Ranges {
		for j, o := range c.Ranges[i+1:] {
			if s.overlaps(o) {
				return fmt.Errorf("range set %d overlaps with %d", i, i+j+1)
			}
		}
	}
	return nil
}
