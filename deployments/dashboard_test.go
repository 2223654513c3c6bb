package deployments_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// panel is what a dashboard has in a place.
type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               *source
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct {
		RefID, Expr, LegendFormat string
		Datasource                *source
	}
}

type source struct{ Type, UID string }

// kinds are the panels that Grafana has of itself.
var kinds = []string{"stat", "table", "timeseries", "state-timeline", "status-history", "heatmap"}

// The dashboard is laid out as Grafana does it: ids, places in 24 columns, the data source that the reader chooses,
// units. integration/controlplane has what it asks for.
func TestDashboardLayout(t *testing.T) {
	var d struct {
		UID, Title    string
		SchemaVersion int
		Templating    struct {
			List []struct{ Name, Type string }
		}
		Panels []panel
	}
	text, err := os.ReadFile(chart + "files/fabric-cni.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.Title == "" || d.SchemaVersion == 0 || len(d.Panels) == 0 {
		t.Fatalf("%+v", d)
	}
	known := []string{"__rate_interval"}
	for _, v := range d.Templating.List {
		known = append(known, v.Name)
		if n := strings.Count(string(text), "$"+v.Name) + strings.Count(string(text), "${"+v.Name+"}"); n < 2 {
			t.Errorf("the variable %s is not used", v.Name)
		}
	}
	for _, v := range regexp.MustCompile(`\$\{?([a-z_]+)`).FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains(known, v[1]) && v[1] != "__all" {
			t.Errorf("there is no variable %s", v[1])
		}
	}
	ids, taken, titles := map[int]bool{}, map[[2]int]string{}, map[string]bool{}
	for i := range d.Panels {
		p := &d.Panels[i]
		p.place(t, taken)
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%s: the id %d is that of another", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if titles[p.Title+p.Type] {
			t.Errorf("there are two %s %q", p.Type, p.Title)
		}
		titles[p.Title+p.Type] = true
		p.check(t)
	}
}

// place takes the cells of a panel.
func (p *panel) place(t *testing.T, taken map[[2]int]string) {
	t.Helper()
	g := p.GridPos
	if g.X < 0 || g.Y < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 || p.Type == "row" && (g.W != 24 || g.H != 1) {
		t.Errorf("%s: no place for %+v", p.Title, g)
	}
	for x := g.X; x < g.X+g.W; x++ {
		for y := g.Y; y < g.Y+g.H; y++ {
			if other := taken[[2]int{x, y}]; other != "" {
				t.Fatalf("%s lies on %s", p.Title, other)
			}
			taken[[2]int{x, y}] = p.Title
		}
	}
}

func (p *panel) check(t *testing.T) {
	t.Helper()
	want := source{"prometheus", "${datasource}"}
	if !slices.Contains(kinds, p.Type) || p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" ||
		p.Datasource == nil || *p.Datasource != want || len(p.Targets) == 0 {
		t.Errorf("%s %q: want a known type, a title, a description, a unit, a query and the data source %v: %+v",
			p.Type, p.Title, want, p)
	}
	refs := map[string]bool{}
	for _, q := range p.Targets {
		if q.Expr == "" || q.RefID == "" || refs[q.RefID] || q.Datasource == nil || *q.Datasource != want {
			t.Errorf("%s: %+v", p.Title, q)
		}
		refs[q.RefID] = true
	}
}
