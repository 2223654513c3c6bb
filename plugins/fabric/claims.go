package fabric

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// fromClaim chooses a device of the pod's ResourceClaims, if the configuration wants one of them. From there on the
// configuration names its device like any other.
func (c *call) fromClaim() (choice, error) {
	ch := choice{cfg: c.cfg}
	if !c.cfg.FromClaim {
		return ch, nil
	}
	claims, given := c.claimed()
	i, refusal := claims.Choose()
	switch {
	case refusal != nil:
		ch.refused = claims
		return ch, nil
	case i < 0 && c.cfg.Mode == netconf.ModeIPoIB && c.cfg.Master == "": // the id says nothing of a parent
		claims.DeviceID = ""
		ch.refused = claims
		return ch, nil
	case i < 0:
		return ch, nil
	}
	d := &given[i]
	var err error
	if ch.cfg, ch.fromClaim, err = c.selectClaimed(c.cfg, &d.Device); err != nil {
		return ch, fmt.Errorf("device %s of ResourceClaim %s: %w", d.Address, d.Claim.Whose(), err)
	}
	ch.fromClaim.ClaimUID, ch.fromClaim.Claim = d.Claim.UID, d.Claim.Whose()
	return ch, nil
}

// claimed reads what ResourceClaims give to the pod of the network's devices, and which of it this container has.
func (c *call) claimed() (*attach.Claims, []prepared.Given) {
	pod := c.cfg.Pod
	out := &attach.Claims{
		Fabric: c.cfg.Name, PodUID: pod.UID, BadUID: !prepared.IsUID(pod.UID), DeviceID: c.cfg.DeviceID,
	}
	if pod.Name != "" {
		out.Pod = (&prepared.Claim{Namespace: pod.Namespace, Pod: pod.Name}).ForPod()
	}
	if out.BadUID {
		return out, nil
	}
	claims, err := prepared.In(c.StateDir).Of(pod.UID)
	if err != nil {
		out.Unreadable = err
		return out, nil
	}
	given := prepared.OfFabric(claims, c.cfg.Name)
	var have []*journal.Entry
	if len(given) > 0 {
		have = c.store.Of(c.key.ContainerID)
	}
	for i := range given {
		d := attach.Claimed{Claim: given[i].Claim.Whose(), Device: given[i].Address.String(), ID: given[i].ID}
		if a, err := device.ParseAddress(c.cfg.DeviceID); err == nil && a == given[i].Address {
			d.ID = c.cfg.DeviceID // however it is spelled
		}
		record := recordOf(&given[i].Device)
		record.ClaimUID = given[i].Claim.UID
		for _, e := range have {
			if e.Key != c.key && has(e, record, d.Device) {
				d.Taken = e.IfName
			}
		}
		out.Devices = append(out.Devices, d)
	}
	return out, given
}

// has says whether an attachment has the device of a claim: it was made of it, or it has taken the whole device by
// another configuration.
func has(e *journal.Entry, g *journal.Given, claim string) bool {
	if e.Given != nil {
		return e.Given.Same(g)
	}
	return e.Claim == claim && e.Kind == journal.KindDevice
}

func recordOf(d *prepared.Device) *journal.Given {
	return &journal.Given{Request: d.Request, Device: d.Name, ShareID: d.ShareID}
}

// selectClaimed selects the device of a claim in a configuration, with the claim's settings. The mode stays what it
// was: Multus's deviceID, or a master, may suggest another one.
func (c *call) selectClaimed(of *netconf.Config, d *prepared.Device) (*netconf.Config, *journal.Given, error) {
	by := map[string]json.RawMessage{"allocation": json.RawMessage("null")}
	if len(d.Network) > 0 {
		var settings map[string]json.RawMessage
		if err := json.Unmarshal(d.Network, &settings); err != nil {
			return nil, nil, fmt.Errorf("settings of the claim: %w", err)
		}
		maps.Copy(by, settings)
	}
	field, value := "deviceID", d.Address.ID()
	switch {
	case of.Mode == netconf.ModeIPoIB:
		if field, value = "master", c.masterAt(d); value == "" {
			return nil, nil, &failure{code: codeNoDevice, err: errors.New("it has no IPoIB interface on the host"),
				hint: "see what is there with: fabricctl discover"}
		}
	case d.Address.Bus == prepared.Virtual:
		field, value = "device", d.Address.Name
	}
	for key, text := range map[string]string{"mode": string(of.Mode), field: value} {
		b, err := json.Marshal(text)
		if err != nil {
			return nil, nil, fmt.Errorf("encode field %q: %w", key, err)
		}
		by[key] = b
	}
	cfg, err := of.Select(c.env, by)
	if err != nil {
		return nil, nil, err
	}
	record := recordOf(d)
	record.Conf = by
	return cfg, record, nil
}

// masterAt is the IPoIB interface of an HCA under the name that it has now. Without one, it is the name from when the
// claim was prepared: ADD reports what is wrong with it.
func (s *session) masterAt(d *prepared.Device) string {
	dev, err := s.host.At(d.Address)
	if err == nil && dev.Netdev != nil {
		return dev.Netdev.Name
	}
	return d.Netdev
}

// promised reads which devices ResourceClaims and kubelet have given to pods, as far as they are this one, its PF or
// its VFs. A file of a claim that can't be read says nothing of others' devices: its own pod does not start.
func (g *gatherer) promised() error {
	claims, err := prepared.In(g.StateDir).All()
	if err != nil {
		g.log.Warn("some of what is prepared for pods can't be read", "reason", err)
	}
	related, err := g.sameCard()
	if err != nil {
		return err
	}
	g.allotted(claims, related)
	for _, c := range claims {
		if c.PodUID == g.cfg.Pod.UID {
			continue
		}
		for _, d := range c.Devices {
			for _, a := range related {
				if d.Address == a {
					g.facts.Promises = append(g.facts.Promises, attach.Promise{
						Pod: c.ForPod(), Claim: c.Whose(), Device: a.String(), Shared: d.Shared,
					})
				}
			}
		}
	}
	return nil
}

// sameCard are the addresses of the device, its PF and its VFs.
func (g *gatherer) sameCard() ([]device.Address, error) {
	if g.dev.Address.IsZero() && g.dev.Netdev != nil {
		return []device.Address{{Bus: prepared.Virtual, Name: g.dev.Netdev.Name}}, nil
	}
	out := []device.Address{g.dev.Address}
	if g.cfg.Mode == netconf.ModeIPoIB {
		return out, nil
	}
	if g.facts.PF != nil {
		return append(out, *g.facts.PF), nil
	}
	vfs, err := g.host.Functions(g.dev.Address)
	return append(out, vfs...), err
}
