package fabric

import (
	"fmt"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// preflight completes the device's snapshot and makes sure that it may and can be moved. It tells whether its RDMA face
// goes along, and what becomes of it as a VF.
func (c *call) preflight(dev *inventory.Device) (moveRDMA bool, v *virtual, err error) {
	if err := c.mayMove(dev); err != nil {
		return false, nil, err
	}
	if moveRDMA, err = c.rdmaDecision(dev); err != nil {
		return false, nil, err
	}
	if v, err = c.virtual(dev); err != nil {
		return false, nil, err
	}
	if v == nil {
		if err := c.functions(dev); err != nil {
			return false, nil, err
		}
	}
	// A port that gets its GUID or link state only now is judged then.
	if !v.judgedLater() {
		if err := c.ports(dev); err != nil {
			return false, nil, err
		}
	}
	if dev.Netdev != nil && dev.Netdev.IsIPoIB() {
		if err := c.childless(dev); err != nil {
			return false, nil, err
		}
	}
	if moveRDMA && dev.Netdev != nil && len(dev.HCA.Ports) > 1 {
		return moveRDMA, v, c.aloneOnHCA(dev)
	}
	return moveRDMA, v, nil
}

// mayMove completes the device's snapshot and asks the policy.
func (c *call) mayMove(dev *inventory.Device) error {
	if dev.Netdev != nil {
		if err := c.host.Snapshot(dev.Netdev); err != nil {
			return err
		}
	}
	rules, err := c.policy()
	if err != nil {
		return err
	}
	return rules.Move(policy.Device{Address: dev.Address, PCI: dev.PCI, Netdev: dev.Netdev, HCA: dev.HCA})
}

// rdmaDecision tells whether the RDMA device is to be moved.
func (c *call) rdmaDecision(dev *inventory.Device) (bool, error) {
	want := c.cfg.RDMA
	if want == netconf.RDMANone {
		return false, nil
	}
	if dev.HCA == nil {
		if want == netconf.RDMAAuto {
			return false, nil
		}
		return false, &failure{
			code: codeNoDevice,
			err:  fmt.Errorf("device %s has no RDMA device on the host, and \"rdma\" is %q", dev.Claim(), want),
			todo: "load its RDMA driver (mlx5_ib, mlx4_ib, irdma), or set \"rdma\": \"none\"",
		}
	}
	mode, _, err := c.netnsMode()
	if err != nil {
		return false, err
	}
	switch {
	case want == netconf.RDMAExclusive && mode == device.NetnsShared:
		return false, &failure{
			code: codeRDMAMode,
			err:  fmt.Errorf("\"rdma\" is \"exclusive\", but the system's RDMA network namespace mode is shared"),
			todo: "set it with: rdma system set netns exclusive (before any network namespace exists; to survive a " +
				"reboot: options ib_core netns_mode=0 in /etc/modprobe.d)",
		}
	case want == netconf.RDMAShared && mode == device.NetnsExclusive:
		return false, &failure{
			code: codeRDMAMode,
			err: fmt.Errorf(
				"\"rdma\" is \"shared\", but the system's RDMA network namespace mode is exclusive: the pod could "+
					"not use %s",
				dev.HCA.Name,
			),
			todo: "set \"rdma\": \"auto\", or the mode with: rdma system set netns shared",
		}
	}
	return mode == device.NetnsExclusive, nil
}

// ports refuses a device whose port carries no traffic: the pod would fall back to TCP in silence. The port of a RoCE
// device is down while its netdev is; it comes up with it in the pod.
func (c *call) ports(dev *inventory.Device) error {
	none := c.cfg.RDMA == netconf.RDMANone && c.cfg.Mode != netconf.ModeIPoIB // a child has no carrier without its port
	if dev.HCA == nil || none {
		return nil
	}
	if err := c.host.RDMA.Ports(dev.HCA); err != nil {
		return err
	}
	if c.cfg.AllowDown {
		return nil
	}
	var down *device.Port
	for i := range dev.HCA.Ports {
		p := &dev.HCA.Ports[i]
		if p.State == device.PortActive || p.LinkLayer == device.Ethernet && dev.Netdev != nil && !dev.Netdev.Up() {
			return nil
		}
		down = p
	}
	if down == nil {
		return nil
	}
	return &failure{
		code: codePortDown,
		err: fmt.Errorf(
			"RDMA device %s port %d is not Active: state %s, physical state %s: %s",
			dev.HCA.Name,
			down.Number,
			down.State,
			down.Phys,
			cause(dev.HCA, down),
		),
		todo: "\"allowDown\": true attaches it all the same",
	}
}

// cause is the usual reason for a port to be in this state.
func cause(h *device.HCA, p *device.Port) string {
	switch {
	case p.State == device.PortArmed:
		return "the subnet manager is bringing it up"
	case p.State == device.PortInit && h.NodeGUID.IsUnset():
		return "the device has no GUID, so no subnet manager configures it"
	case p.State == device.PortInit:
		return "no subnet manager has configured it: is one running in this fabric, and does it know the GUID " + h.NodeGUID.String() + "?"
	case p.Phys == device.PhysDisabled:
		return "it is disabled, by the administrator or by the VF's link state"
	case p.Phys == device.PhysPolling || p.Phys == device.PhysSleep:
		return "no peer answers: cable, switch port or transceiver"
	case p.Phys == device.PhysLinkUp:
		return "the link is up, the port is not: firmware or VF link state"
	}
	return "the link is not up"
}

// childless refuses to move an IPoIB parent under its children: moving its RDMA device destroys them, in whatever pod.
func (c *call) childless(dev *inventory.Device) error {
	var users []string
	keys, err := c.store.Children(dev.Claim())
	if err != nil {
		return err
	}
	for _, k := range keys {
		e, err := c.store.Load(k)
		if err == nil && !c.alive(e) {
			if err := c.giveBackLocked(e, c.staleDelegate(e)); err != nil {
				return err
			}
			continue
		}
		users = append(users, "container "+k.ContainerID+" ("+k.IfName+")")
	}
	children, err := c.host.ChildrenOf(dev.Netdev)
	if err != nil {
		return err
	}
	for _, n := range children {
		users = append(users, "host interface "+n.Name)
	}
	if len(users) > 0 {
		return &failure{
			code: codeInUse,
			err: fmt.Errorf(
				"%s has IPoIB children in use by %s, which would be destroyed",
				dev.Netdev.Name,
				strings.Join(users, ", "),
			),
			todo: "remove them first, or attach a child (\"mode\": \"ipoib\")",
		}
	}
	return nil
}

// aloneOnHCA refuses an RDMA device that carries more than one netdev (a dual-port mlx4): the others would go with it.
func (c *call) aloneOnHCA(dev *inventory.Device) error {
	all, err := c.host.NetdevsAt(dev.Address)
	if err != nil {
		return err
	}
	for _, n := range all {
		if n.Index != dev.Netdev.Index {
			return &failure{
				code: codeInUse,
				err: fmt.Errorf(
					"RDMA device %s carries %s as well as %s: moving it would take both",
					dev.HCA.Name,
					n.Name,
					dev.Netdev.Name,
				),
				todo: "use IPoIB children (\"mode\": \"ipoib\") or shared RDMA mode on a device with two ports",
			}
		}
	}
	return nil
}

// use asks the policy about a device that is used but not moved.
func (c *call) use(dev *inventory.Device) error {
	rules, err := c.policy()
	if err != nil {
		return err
	}
	return rules.Use(policy.Device{Address: dev.Address, PCI: dev.PCI, Netdev: dev.Netdev, HCA: dev.HCA})
}
