package subnet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// records are what saquery has printed. Its links have LIDs and no GUIDs, and the three kinds of records may be in
// three
// files, so they are put together at the end.
type records struct {
	nodes []map[string]string
	infos []map[string]string
	links []map[string]string
}

// saWanted are the fields that are kept of each kind of record.
var saWanted = map[string][]string{
	"NodeRecord":     {"lid", "node_type", "node_guid", "port_guid", "port_num", "NodeDescription"},
	"PortInfoRecord": {"EndPortLid", "PortNum", "LinkWidthActive", "LinkSpeedActive", "LinkSpeedExtActive"},
	"LinkRecord":     {"FromLID", "FromPort", "ToPort", "ToLID"},
}

// saLine reads saquery NodeRecord, PortInfoRecord and LinkRecord: a heading per record, then NAME....VALUE.
func (g *Graph) saLine() func(string) error {
	var at map[string]string
	var wanted []string
	n := 0
	return func(line string) error {
		text := strings.TrimSpace(line)
		if kind, ok := strings.CutSuffix(text, "Record dump:"); ok {
			if n++; n > maxLinks {
				return fmt.Errorf("there are more than %d records", maxLinks)
			}
			at, wanted = map[string]string{}, saWanted[kind+"Record"]
			switch kind {
			case "Node":
				g.sa.nodes = append(g.sa.nodes, at)
			case "PortInfo":
				g.sa.infos = append(g.sa.infos, at)
			case "Link":
				g.sa.links = append(g.sa.links, at)
			}
			return nil
		}
		name, rest, ok := strings.Cut(text, "..")
		if name = strings.TrimSuffix(name, ":"); ok && slices.Contains(wanted, name) {
			if _, twice := at[name]; !twice {
				at[name] = clipped(strings.TrimSpace(strings.TrimLeft(rest, ".")))
			}
		}
		return nil
	}
}

// saLane are the speeds of a lane in the words of saquery.
var saLane = []struct{ prefix, speed string }{
	{"212.5", "XDR"}, {"106.25", "NDR"}, {"53.125", "HDR"}, {"25.78", "EDR"}, {"14.06", "FDR"},
	{"10.0 ", "QDR"}, {"5.0 ", "DDR"}, {"2.5 ", "SDR"},
}

func saRate(info map[string]string) Rate {
	for _, field := range []string{"LinkSpeedExtActive", "LinkSpeedActive"} {
		for _, l := range saLane {
			if strings.HasPrefix(info[field]+" ", l.prefix) {
				return rateOf(info["LinkWidthActive"], l.speed)
			}
		}
	}
	return Rate{}
}

// resolve puts the records of saquery together.
func (g *Graph) resolve() {
	type end struct{ lid, port int }
	switches, ports, rates := map[int]*Switch{}, map[end]*Port{}, map[end]Rate{}
	number := func(s string) int { // -1 is no LID and no port
		n, err := strconv.ParseUint(s, 0, 16)
		if err != nil {
			return -1
		}
		return int(n)
	}
	for _, r := range g.sa.infos {
		rates[end{number(r["EndPortLid"]), number(r["PortNum"])}] = saRate(r)
	}
	for _, r := range g.sa.nodes {
		lid := number(r["lid"])
		if r["node_type"] == "Switch" {
			id, err := guid(r["node_guid"])
			if s, full := g.sw(idOf(id)); err == nil && full == nil {
				s.Desc, switches[lid] = r["NodeDescription"], s
			}
			continue
		}
		id, err := guid(r["port_guid"])
		if p, full := g.port(idOf(id)); err == nil && full == nil && r["node_type"] == "Channel Adapter" {
			p.GUID, p.Desc, p.Number = id, r["NodeDescription"], max(0, number(r["port_num"]))
			ports[end{lid, p.Number}] = p
		}
	}
	for _, r := range g.sa.links {
		from, to := end{number(r["FromLID"]), number(r["FromPort"])}, end{number(r["ToLID"]), number(r["ToPort"])}
		sw, other := switches[from.lid], switches[to.lid]
		switch p := ports[to]; {
		case sw != nil && other != nil:
			_ = g.connect(sw, from.port, other, to.port, rates[from]) // bounded by the records
		case sw != nil && p != nil:
			p.Switch, p.SwitchPort, p.Rate = sw, strconv.Itoa(from.port), rates[from]
		}
	}
	g.sa = records{}
}
