package subnet

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// What ibnetdiscover prints (infiniband-diags, ibnetdiscover.c). A description stands behind the #, may have any
// character that can be printed, and is never looked into for anything else: structure is what stands before it, the
// rate what stands last.
var (
	header = regexp.MustCompile(`^(Switch|Ca|Rt)\s+(\d{1,3})\s+"([SHR])-([0-9a-fA-F]{1,16})"`)
	// [1](1003ff)  [ext 3]  "S-000000000020000f"[32](guid)
	portLine = regexp.MustCompile(`^\[(\d{1,3})\](?:\[ext \d{1,3}\])?(?:\(([0-9a-fA-F]{1,16})\))?\s+` +
		`"([SHR])-([0-9a-fA-F]{1,16})"\[(\d{1,3})\](?:\[ext \d{1,3}\])?(?:\(([0-9a-fA-F]{1,16})\))?`)
	rateEnd = regexp.MustCompile(`\s(\d{1,2}x)([A-Z]+\d*)\s*$`)
)

// discoverLine reads the full form: a header per switch and HCA, then a line per port that has a link.
func (g *Graph) discoverLine() func(string) error {
	var sw *Switch
	var desc string // of the HCA
	return func(line string) error {
		if m := header.FindStringSubmatch(line); m != nil {
			id, err := guid(m[4])
			if err != nil {
				return err
			}
			sw, desc = nil, description(line)
			if m[3] == "S" {
				if sw, err = g.sw(idOf(id)); err != nil {
					return err
				}
				sw.Desc = desc
			}
			return nil
		}
		if line[0] != '[' {
			return nil // vendid and the like, comments, chassis
		}
		m := portLine.FindStringSubmatch(line)
		if m == nil {
			return fmt.Errorf("%.100q is not a port of ibnetdiscover", line)
		}
		var r Rate
		if e := rateEnd.FindStringSubmatch(line); e != nil {
			r = rateOf(e[1], e[2])
		}
		number, remote := atoi(m[1]), atoi(m[5])
		switch {
		case sw != nil && m[3] == "S":
			return g.between(sw, number, m[4], remote, r)
		case sw != nil && m[3] == "H": // the HCA's own lines tell its description
			return g.attach(m[6], "", remote, sw, number, r)
		case sw == nil && m[3] == "S":
			id, err := guid(m[4])
			if err != nil {
				return err
			}
			to, err := g.sw(idOf(id))
			if err != nil {
				return err
			}
			return g.attach(m[2], desc, number, to, remote, r)
		case sw == nil: // two HCAs back to back
			return g.attach(m[2], desc, number, nil, 0, r)
		}
		return nil
	}
}

func (g *Graph) between(from *Switch, number int, to string, remote int, r Rate) error {
	id, err := guid(to)
	if err != nil {
		return err
	}
	other, err := g.sw(idOf(id))
	if err != nil {
		return err
	}
	return g.connect(from, number, other, remote, r)
}

// attach notes that the port of an HCA hangs on a switch; nil: on none.
func (g *Graph) attach(portGUID, desc string, number int, sw *Switch, swPort int, r Rate) error {
	if portGUID == "" {
		return fmt.Errorf("port %d of an HCA has no port GUID", number)
	}
	id, err := guid(portGUID)
	if err != nil {
		return err
	}
	p, err := g.port(idOf(id))
	if err != nil {
		return err
	}
	p.GUID, p.Number = id, number
	if desc != "" {
		p.Desc = desc
	}
	if sw != nil {
		p.Switch, p.SwitchPort, p.Rate = sw, strconv.Itoa(swPort), r
	}
	return nil
}

// description is what stands between the first quote behind the # and the last one of the line.
func description(line string) string {
	_, rest, _ := strings.Cut(line, "#")
	_, rest, ok := strings.Cut(rest, `"`)
	if i := strings.LastIndexByte(rest, '"'); ok && i >= 0 {
		return clipped(rest[:i])
	}
	return ""
}

// listLine reads one line of ibnetdiscover -p.
func (g *Graph) listLine(line string) error {
	if line[0] == '#' {
		return nil
	}
	m := listed(line)
	if m == nil {
		return fmt.Errorf("%.100q is not a line of ibnetdiscover -p", line)
	}
	own, err := guid(m[3])
	if err != nil {
		return err
	}
	mine, others, _ := strings.Cut(m[9], "' - '")
	others = strings.TrimSuffix(strings.TrimRight(others, " )"), "'")
	if m[6] == "" {
		mine = strings.TrimSuffix(strings.TrimSpace(m[9]), "'")
	}
	mine, others = clipped(mine), clipped(others)
	r := rateOf(m[4], m[5])
	if m[1] == "SW" {
		return g.listedSwitch(own, mine, others, m, r)
	}
	if m[1] != "CA" {
		return nil
	}
	var sw *Switch
	if m[6] == "SW" {
		if sw, err = g.listedPeer(m[8], others); err != nil {
			return err
		}
	}
	return g.attach(m[3], mine, atoi(m[2]), sw, atoi(m[7]), r)
}

func (g *Graph) listedSwitch(own device.GUID, mine, others string, m []string, r Rate) error {
	sw, err := g.sw(idOf(own))
	if err != nil {
		return err
	}
	sw.Desc = mine
	switch m[6] {
	case "SW":
		return g.between(sw, atoi(m[2]), m[8], atoi(m[7]), r)
	case "CA":
		return g.attach(m[8], others, atoi(m[7]), sw, atoi(m[2]), r)
	}
	return nil
}

func (g *Graph) listedPeer(text, desc string) (*Switch, error) {
	id, err := guid(text)
	if err != nil {
		return nil, err
	}
	sw, err := g.sw(idOf(id))
	if err == nil && sw.Desc == "" {
		sw.Desc = desc
	}
	return sw, err
}

// atoi is of digits that an expression has matched, three at most.
func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// listed takes a line of ibnetdiscover -p apart: type, LID, port, GUID, width and speed, after a dash those of the
// other
// end, then descriptions in quotes. It gives type 1, port 2, GUID 3, width 4, speed 5; of the other end type 6, port 7,
// GUID 8; descriptions 9. An expression takes seconds for a large fabric.
func listed(line string) []string {
	head, desc, _ := strings.Cut(line, "'")
	f := strings.Fields(head)
	if len(f) < 6 || !listedEnd(f) {
		return nil
	}
	m := []string{"", f[0], f[2], f[3], f[4], f[5], "", "", "", desc}
	switch {
	case len(f) == 6:
		return m
	case len(f) < 11 || f[6] != "-" || !listedEnd(f[7:]):
		return nil
	}
	m[6], m[7], m[8] = f[7], f[9], f[10]
	return m
}

// listedEnd tells whether these are type, LID, port and GUID.
func listedEnd(f []string) bool {
	_, lid := strconv.ParseUint(f[1], 10, 16)
	_, port := strconv.ParseUint(f[2], 10, 8)
	return (f[0] == "CA" || f[0] == "SW" || f[0] == "RT") && lid == nil && port == nil && strings.HasPrefix(f[3], "0x")
}
