package nccl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// Library is one that has a variable for the ports it uses.
type Library struct {
	Var     string
	Parse   func(string) List
	Own     string // what its value begins with, before the ports
	Without string // what happens without any port
}

// Libraries are those whose variables are known.
var Libraries = []Library{
	{"NCCL_IB_HCA", ParseNCCL, "=", "NCCL goes over TCP without an error"},
	{"UCX_NET_DEVICES", ParseUCX, "", "UCX does not start, or goes over TCP"},
	{"NVSHMEM_HCA_LIST", ParseNVSHMEM, "", "NVSHMEM does not start, or has no remote transport"},
}

// Verdict is what a variable does to the pod.
type Verdict struct {
	Missing []string // entries that mean nothing in the pod
	Others  map[node.ForeignReason][]string
	Left    []Left   // selected ports that are not to be used
	Unused  []string // ports of the choice that are not selected
	Used    int      // ports of the choice that are
	Dead    bool     // it selects nothing that can work
	Host    bool     // it selects ports of the node's own network only
	planes  int      // ports of other fabrics of the same link layer and rate
	Other   bool     // what it selects is another fabric with as much bandwidth
}

// Judge says what the value of a library's variable does. isNetdev tells whether a name is that of an interface, which
// UCX takes too.
func (c *Choice) Judge(l *Library, value string, isNetdev func(string) bool) *Verdict {
	list := l.Parse(value)
	v := &Verdict{Others: map[node.ForeignReason][]string{}}
	tcp := false
	for i := range list.Entries {
		e := &list.Entries[i]
		matched := false
		c.given.All.EachPort(func(h *node.HCA, p *node.Port) { matched = matched || e.Matches(h.Name, p.Number) })
		netdev := l.Var == "UCX_NET_DEVICES" && isNetdev(e.Text)
		tcp = tcp || netdev
		if !matched && !netdev && !list.Not && !list.All {
			v.Missing = append(v.Missing, e.Text)
		}
	}
	use := c.Names()
	works := tcp
	c.given.All.EachPort(func(h *node.HCA, p *node.Port) {
		name := h.PortName(p)
		switch i := slices.Index(use, name); {
		case !list.Selects(h.Name, p.Number):
			if i >= 0 {
				v.Unused = append(v.Unused, name)
			}
		case i >= 0:
			v.Used++
			works = true
		default:
			works = c.judgeOther(v, &list, h, p) || works
		}
	})
	v.Dead = !works
	v.Host = v.Used == 0 && len(v.Left) > 0 && v.planes == 0 && !tcp && len(v.Others) == 0 &&
		!slices.ContainsFunc(v.Left, func(l Left) bool { return l.Why != Bond && l.Why != Primary })
	v.Other = v.Used == 0 && c.Fabric != nil && v.planes >= len(c.Ports)
	return v
}

// judgeOther adds what there is to say of a selected port that is not in the choice, and reports whether it can work.
// It says nothing of a port that is neither up nor named: libraries skip it.
func (c *Choice) judgeOther(v *Verdict, list *List, h *node.HCA, p *node.Port) (works bool) {
	name, hca := h.PortName(p), h.Name
	for _, o := range c.given.Others {
		if o.Port == name {
			if c.isNamed(list, hca) || o.Reason != node.NoCharDevice && p.Active() {
				v.Others[o.Reason] = append(v.Others[o.Reason], name)
			}
			return o.Reason != node.NoCharDevice && p.Active()
		}
	}
	for i := range c.Left {
		l := &c.Left[i]
		if l.Port.Name() != name {
			continue
		}
		switch l.Why {
		case NotUp:
			if c.isNamed(list, hca) {
				v.Left = append(v.Left, *l)
			}
			return false
		case NoFace: // doctor says it of the pod, whatever the variables are
			return false
		case NoGID:
			v.Left = append(v.Left, *l)
			return false
		case Fabric:
			// Two fabrics of one rate may be planes of one network, and using both is right then.
			if c.Fabric != nil && l.Port.LinkLayer == c.Fabric.LinkLayer && l.Port.RateGb == c.Fabric.RateGb {
				v.planes++
				return true
			}
		}
		v.Left = append(v.Left, *l)
		return true
	}
	return true
}

// isNamed reports whether an entry names a device, and does not mean it among others.
func (c *Choice) isNamed(list *List, hca string) bool {
	return !list.Not && !list.All && slices.ContainsFunc(list.Entries, func(e Entry) bool {
		return e.HCA == hca
	})
}

// Value is what a library's variable should be.
func (c *Choice) Value(l *Library) string { return l.Own + strings.Join(c.Names(), ",") }

// Say is a port that is left, in a sentence.
func (l *Left) Say() string { return fmt.Sprintf("%s %s", l.Port.Name(), verb(l)) }
