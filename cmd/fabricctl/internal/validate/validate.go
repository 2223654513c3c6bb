// Package validate says of Fabrics before they are applied what the API server, the controller and the plugin would say
// of them, with those programs' own code, and on nodes which devices each Fabric gets. Values in, values out.
package validate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/deployments/helm"
	"github.com/fabric-cni/fabric-cni/internal/admit"
	"github.com/fabric-cni/fabric-cni/internal/clusternet"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Who would say something.
const (
	byReader     = "kubectl"    // what becomes of the text
	byServer     = "API server" // kubectl apply fails
	byController = "controller" // the condition Accepted is False
	byPlugin     = "plugin"     // the same; it would be the error of the first pod
	byNodes      = "nodes"      // pods would wait, or fail
)

// Finding is something that is wrong.
type Finding struct {
	Status   doctor.Status `json:"status"` // FAIL: does not work; WARN: look at it
	File     string        `json:"file,omitempty"`
	Document int           `json:"document,omitempty"` // of the file, from 1
	Fabric   string        `json:"fabric,omitempty"`
	Node     string        `json:"node,omitempty"`
	By       string        `json:"by"`              // who would say it: kubectl, API server, controller, plugin, nodes
	Field    string        `json:"field,omitempty"` // as in spec.match.rateGb, where that is known
	Message  string        `json:"message"`
}

// Where is the place of the finding: file, document, Fabric, node.
func (f *Finding) Where() string {
	var out []string
	if f.File != "" {
		out = append(out, fmt.Sprintf("%s: document %d", f.File, f.Document))
	}
	if f.Fabric != "" {
		out = append(out, "Fabric "+f.Fabric)
	}
	if f.Node != "" {
		out = append(out, "node "+f.Node)
	}
	return strings.Join(out, ": ")
}

// Fabric is a Fabric, and what nodes have for it.
type Fabric struct {
	Name       string              `json:"name"`
	File       string              `json:"file,omitempty"` // empty: it is in the cluster
	Document   int                 `json:"document,omitempty"`
	Attachment v1alpha1.Attachment `json:"attachment,omitempty"`
	Accepted   bool                `json:"accepted"` // API server and controller would take it
	Devices    int                 `json:"devices"`  // of all nodes
	Nodes      []DevicesOfNode     `json:"nodes,omitempty"`
}

// DevicesOfNode is the devices of a node that a Fabric gets.
type DevicesOfNode struct {
	Node    string   `json:"node"`
	Devices []string `json:"devices"` // names of RDMA devices on the host
}

// Report is all of it.
type Report struct {
	Fabrics  []Fabric  `json:"fabrics"`
	Findings []Finding `json:"findings"`
}

// Failed reports whether something does not work.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Status == doctor.Fail })
}

// World is what is known beside the files.
type World struct {
	Nodes    []*node.Node
	Labels   map[string]labels.Set // of Nodes, by name; nil: not known, as those of recordings
	Existing []v1alpha1.Fabric     // of the cluster
	Net      *clusternet.Net       // what else the cluster has addresses for; nil: not known
	NoDRA    error                 // why the cluster has no DRA; nil: it has, or unknown
}

// ofFabrics knows the definition of Fabrics; compiling its rules takes a moment.
var ofFabrics = sync.OnceValues(func() (*admit.Judge, error) { return admit.New(helm.Fabrics) })

// maxFabrics bounds the work: each is compared with each.
const maxFabrics = 500

// checker is the work on a report.
type checker struct {
	Report
	world World
	judge *admit.Judge
	// accepted are the Fabrics as they would be in force, the last of each name.
	accepted []candidate
}

// candidate is a Fabric that would be in force.
type candidate struct {
	*fabrics.Fabric

	item *item // nil: it is in the cluster
	row  int   // in Report.Fabrics
}

// Check checks what was read.
func Check(in *Input, w World) (*Report, error) {
	switch {
	case len(in.items) == 0 && len(in.Findings) == 0:
		return nil, fmt.Errorf("no Fabric in %s: want objects of kind Fabric, or Helm values with fabrics",
			strings.Join(in.files, ", "))
	case len(in.items)+len(w.Existing) > maxFabrics:
		return nil, fmt.Errorf("there are more than %d Fabrics", maxFabrics)
	}
	judge, err := ofFabrics()
	if err != nil {
		return nil, err
	}
	c := &checker{world: w, judge: judge}
	c.Fabrics, c.Findings = []Fabric{}, append([]Finding{}, in.Findings...)
	for i := range in.items {
		c.item(&in.items[i], in.items[:i])
	}
	c.existing(in)
	c.overlaps()
	c.uses()
	if err := c.devices(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(c.Findings, func(a, b Finding) int { // as the files have them
		return cmp.Or(cmp.Compare(place(in, &a), place(in, &b)), cmp.Compare(a.Document, b.Document))
	})
	return &c.Report, nil
}

// place is the place of a finding's file among the files; what is of none comes last.
func place(in *Input, f *Finding) int {
	if i := slices.Index(in.files, f.File); i >= 0 {
		return i
	}
	return len(in.files)
}

// add adds a finding about a Fabric of a file.
func (c *checker) add(i *item, s doctor.Status, by, field, message string) {
	f := Finding{Status: s, By: by, Field: field, Message: message}
	if i != nil {
		f.File, f.Document, f.Fabric = i.file, i.document, i.name
	}
	c.Findings = append(c.Findings, f)
}

// item checks one Fabric by itself. What the API server refuses, the controller never sees.
func (c *checker) item(i *item, before []item) {
	c.Fabrics = append(c.Fabrics, Fabric{Name: i.name, File: i.file, Document: i.document})
	row := len(c.Fabrics) - 1
	for k := range before {
		if b := &before[k]; b.name == i.name && i.name != "" {
			c.add(i, doctor.Fail, byReader, "metadata.name", fmt.Sprintf("document %d of %s is a Fabric of this name, "+
				"too: the later one replaces it", b.document, b.file))
		}
	}
	if i.version != v1alpha1.GroupVersion.String() {
		c.add(i, doctor.Fail, byServer, "apiVersion", fmt.Sprintf("no matches for kind \"Fabric\" in version %.100q: "+
			"want %s", i.version, v1alpha1.GroupVersion))
		return
	}
	old, existed := c.old(i.name)
	problems, err := c.judge.Object(i.raw, old)
	if err != nil {
		problems = append(problems, admit.Problem{Text: err.Error()})
	}
	for _, p := range problems {
		c.add(i, doctor.Fail, byServer, p.Field, p.Text)
	}
	if len(problems) > 0 {
		return
	}
	o := &v1alpha1.Fabric{}
	if err := json.Unmarshal(i.raw, o); err != nil {
		c.add(i, doctor.Fail, byController, "", err.Error())
		return
	}
	f, err := fabrics.Parse(o)
	if err != nil {
		c.refused(i, err, existed)
		return
	}
	if f.Allocation == v1alpha1.DRA && c.world.NoDRA != nil {
		c.add(i, doctor.Fail, byController, "spec.allocation", c.world.NoDRA.Error())
	}
	c.Fabrics[row].Attachment, c.Fabrics[row].Accepted = f.Attachment, true
	c.accepted = slices.DeleteFunc(c.accepted, func(a candidate) bool { return a.Name == f.Name })
	c.accepted = append(c.accepted, candidate{f, i, row})
}

// refused adds what the controller says of a Fabric that the API server accepts.
func (c *checker) refused(i *item, err error, existed bool) {
	for text := range strings.SplitSeq(err.Error(), "\n") {
		by := byController
		if strings.HasPrefix(text, "network: ") {
			by = byPlugin
		}
		field := ""
		if head, _, ok := strings.Cut(text, ":"); ok && !strings.ContainsAny(head, " \"") {
			field = "spec." + head
		}
		if existed {
			text += "; what is in force of it stays in force"
		}
		c.add(i, doctor.Fail, by, field, text)
	}
}

// old is the Fabric of that name in the cluster.
func (c *checker) old(name string) (raw []byte, existed bool) {
	for k := range c.world.Existing {
		if o := &c.world.Existing[k]; o.Name == name {
			raw, err := json.Marshal(o)
			return raw, err == nil
		}
	}
	return nil, false
}

// existing adds the Fabrics of the cluster that no file replaces, with the spec that is in force.
func (c *checker) existing(in *Input) {
	for k := range c.world.Existing {
		o := c.world.Existing[k].DeepCopy()
		if slices.ContainsFunc(in.items, func(i item) bool { return i.name == o.Name }) {
			continue
		}
		if o.Status.InForce != nil {
			o.Spec = o.Status.InForce.Spec
		}
		f, err := fabrics.Parse(o)
		if err != nil {
			continue // it is refused already, and gets nothing
		}
		c.Fabrics = append(c.Fabrics, Fabric{Name: f.Name, Attachment: f.Attachment, Accepted: true})
		c.accepted = append(c.accepted, candidate{f, nil, len(c.Fabrics) - 1})
	}
}

// overlaps compares the addresses of the Fabrics of files with those of all others.
func (c *checker) overlaps() {
	for i := range c.accepted {
		a := &c.accepted[i]
		if a.item == nil {
			continue
		}
		for k := range c.accepted {
			if b := &c.accepted[k]; k < i || b.item == nil {
				if err := fabrics.Overlap(a.Fabric, b.Fabric); err != nil {
					c.add(a.item, doctor.Fail, byController, "spec.addresses", err.Error())
					c.Fabrics[a.row].Accepted = false
				}
			}
		}
	}
}

// uses compares the addresses of the Fabrics of files with what else the cluster has addresses for.
func (c *checker) uses() {
	if c.world.Net == nil {
		return
	}
	for i := range c.accepted {
		a := &c.accepted[i]
		if a.item == nil {
			continue
		}
		met := a.Meets(c.world.Net.Uses)
		if breaks := met.Breaks(c.force(a.Name)); len(breaks) > 0 {
			c.add(a.item, doctor.Fail, byController, "spec.addresses", breaks.Err().Error())
			c.Fabrics[a.row].Accepted = false
		} else if len(met) > 0 {
			c.add(a.item, doctor.Warn, byController, "spec.addresses", met.Err().Error())
		}
	}
}

// force is what is in force of a Fabric of the cluster; nil: nothing is.
func (c *checker) force(name string) *fabrics.Fabric {
	for k := range c.world.Existing {
		if o := c.world.Existing[k].DeepCopy(); o.Name == name && o.Status.InForce != nil {
			o.Spec = o.Status.InForce.Spec
			if f, err := fabrics.Parse(o); err == nil {
				return f
			}
		}
	}
	return nil
}
