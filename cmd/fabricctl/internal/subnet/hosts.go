package subnet

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

var (
	hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)
	hcaName  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,62}$`)
)

// described reads the description that rdma-ndd gives to an HCA: the host's name, and the device's.
func described(desc string) (node, hca string) {
	f := strings.Fields(desc)
	if len(f) != 2 || !hostName.MatchString(f[0]) || !hcaName.MatchString(f[1]) ||
		!strings.ContainsAny(f[1], "0123456789") || strings.HasPrefix(f[0], "localhost") {
		return "", ""
	}
	return f[0], f[1]
}

// Identify says of which node each port is. What inventories say of a GUID counts; a description counts for nodes
// without an inventory only: root on a node can write any name into it.
func (g *Graph) Identify(inventory []topology.Port) (found []doctor.Finding) {
	byGUID, nodes := map[device.GUID]*topology.Port{}, map[string]bool{}
	byNetdev := map[string]*topology.Port{}
	twice := map[device.GUID]bool{}
	for i := range inventory {
		p := &inventory[i]
		nodes[p.Node] = true
		if other := byGUID[p.GUID]; other != nil && other.Node != p.Node {
			twice[p.GUID] = true
		}
		byGUID[p.GUID] = p
		byNetdev[p.Node+"/"+p.Netdev] = p
	}
	var claims []string
	users := map[string][]*Port{}
	for _, p := range g.Ports {
		if p.ethernet {
			if o := byNetdev[p.ID]; o != nil && o.Netdev != "" {
				p.HCA, p.Number, p.Inventory, p.GUID = o.HCA, int(o.Port), true, o.GUID
			}
			continue
		}
		if o := byGUID[p.GUID]; o != nil && !p.GUID.IsUnset() && !twice[p.GUID] {
			p.Node, p.HCA, p.Number, p.Netdev, p.Inventory = o.Node, o.HCA, int(o.Port), o.Netdev, true
			continue
		}
		node, hca := described(p.Desc)
		if short, _, _ := strings.Cut(node, "."); nodes[node] || nodes[short] {
			claims = append(
				claims,
				fmt.Sprintf("%s says that it is %s %s, and the inventory of that node has no such GUID",
					p.ID, node, hca),
			)
			continue
		}
		if node != "" {
			p.Node, p.HCA = node, hca
			key := p.Name()
			users[key] = append(users[key], p)
		}
	}
	for _, name := range sortedKeys(users) {
		if list := users[name]; len(list) > 1 {
			claims = append(claims, fmt.Sprintf("%d ports say that they are %s: %s, %s", len(list), name, list[0].ID,
				list[1].ID))
			for _, p := range list {
				p.Node, p.HCA = "", ""
			}
		}
	}
	for guid := range twice {
		claims = append(claims, fmt.Sprintf("GUID %s is in the inventories of several nodes", guid))
	}
	slices.Sort(claims)
	for i, c := range claims {
		if i == maxFindings {
			found = append(found, doctor.Fabric("fabric-identity", doctor.Warn,
				fmt.Sprintf("and %d more", len(claims)-maxFindings)))
			break
		}
		found = append(found, doctor.Fabric("fabric-identity", doctor.Warn, c))
	}
	g.rails(byGUID, byNetdev)
	return found
}

// rails says which ports of nodes correspond: those at one PCI address where every port's is known, else those of one
// name.
func (g *Graph) rails(byGUID map[device.GUID]*topology.Port, byNetdev map[string]*topology.Port) {
	pci := func(p *Port) string {
		o := byGUID[p.GUID]
		if p.ethernet {
			o = byNetdev[p.ID]
		}
		if !p.Inventory || o == nil || o.PCI == "" {
			return ""
		}
		return fmt.Sprintf("%s:%d", o.PCI, o.Port)
	}
	all := true
	for _, p := range g.Ports {
		all = all && (p.Node == "" || pci(p) != "")
	}
	for _, p := range g.Ports {
		if p.rail = p.Local(); all {
			p.rail = pci(p)
		}
	}
}

// maxFindings bounds the findings of one kind; what is wrong more often has one cause.
const maxFindings = 200

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, natural)
	return out
}

// natural compares names by the numbers in them: mlx5_2 is before mlx5_10.
func natural(a, b string) int {
	for x, y := a, b; ; {
		i, j := strings.IndexAny(x, "0123456789"), strings.IndexAny(y, "0123456789")
		if i < 0 || j < 0 || x[:i] != y[:j] {
			return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
		}
		var n, m uint64
		n, x = leading(x[i:])
		m, y = leading(y[j:])
		if n != m {
			return cmp.Compare(n, m)
		}
	}
}

func leading(s string) (n uint64, rest string) {
	i := 0
	for i < len(s) && i < 18 && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	n, _ = strconv.ParseUint(s[:i], 10, 64)
	return n, s[i:]
}
