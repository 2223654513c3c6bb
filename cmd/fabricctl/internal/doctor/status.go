package doctor

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Names of the parts of a ClusterStatus, in their order.
const (
	PartAgent      = "agent"
	PartController = "controller"
	PartMultus     = "Multus"
	PartNodes      = "nodes"
	PartFabrics    = "Fabrics"
	PartPods       = "pods"
)

// ClusterStatus is whether pods of a cluster can get their rails.
type ClusterStatus struct {
	Ready   bool           `json:"ready"` // no part is FAIL
	Parts   []StatusPart   `json:"parts"`
	Fabrics []StatusFabric `json:"fabrics"`
	Pods    int            `json:"pods"`           // that hold devices
	Held    int            `json:"held"`           // devices that pods hold
	Next    string         `json:"next,omitempty"` // a command, if a part is not OK
}

// StatusPart is what pods need to get their rails.
type StatusPart struct {
	Name   string   `json:"name"`   // agent, controller, Multus, nodes, Fabrics, pods
	Status Status   `json:"status"` // OK; WARN: pods are served, but not all is well; FAIL: not ready
	Count  *ReadyOf `json:"count,omitempty"`
	Text   string   `json:"text"`
}

// ReadyOf is how many are ready: nodes of the agent, of Multus and of Fabrics, pods of the controller, Fabrics.
type ReadyOf struct {
	Ready int `json:"ready"`
	Total int `json:"total"`
}

// StatusFabric is one Fabric.
type StatusFabric struct {
	Name      string                `json:"name"`
	Status    Status                `json:"status"`
	Text      string                `json:"text,omitempty"` // what is wrong with it
	Published []string              `json:"published"`      // namespaces with its network
	Devices   v1alpha1.DeviceCounts `json:"devices"`
}

// IsAgent tells whether this is the DaemonSet of fabric-agent in this namespace.
func (d *DaemonSet) IsAgent(namespace string) bool {
	return d.Namespace == namespace && d.Labels["app.kubernetes.io/name"] == "fabric-agent"
}

// IsMultus tells whether this is a DaemonSet of Multus, by its name.
func (d *DaemonSet) IsMultus() bool { return strings.Contains(d.Name, "multus") }

// StatusOf judges the picture of a cluster: its DaemonSets, FabricNodes, Fabrics, Controller, AgentPods, and whether
// CRDs has the kind of Multus. Agent and controller count in one namespace. unknown is why a part could not be asked
// for.
func StatusOf(c *Cluster, namespace string, unknown map[string]string) *ClusterStatus {
	s := &ClusterStatus{Ready: true, Fabrics: []StatusFabric{}}
	installed := len(c.FabricNodes) > 0 || len(c.Fabrics) > 0 || c.Controller != nil && c.Controller.Found
	for i := range c.DaemonSets {
		installed = installed || c.DaemonSets[i].IsAgent(namespace)
	}
	for _, part := range []StatusPart{
		c.agentPart(namespace), c.controllerPart(namespace), c.multusPart(), c.nodesPart(), s.fabricsPart(c),
		s.podsPart(c),
	} {
		if why := unknown[part.Name]; why != "" {
			part = StatusPart{Name: part.Name, Status: Fail, Text: "not known: " + quote.Clip(why, 300)}
		}
		s.Ready = s.Ready && part.Status != Fail
		s.Parts = append(s.Parts, part)
	}
	s.Next = s.next(namespace, installed || len(unknown) > 0, len(c.Fabrics) == 0 && unknown[PartFabrics] == "")
	return s
}

// next is what to do if a part is not OK.
func (s *ClusterStatus) next(namespace string, installed, noFabric bool) string {
	var failed []string
	well := true
	for _, p := range s.Parts {
		well = well && p.Status == OK
		if p.Status == Fail {
			failed = append(failed, p.Name)
		}
	}
	switch {
	case well:
		return ""
	case !installed:
		return "helm install fabric deployments/helm/fabric-cni -n " + namespace + " --create-namespace, or kubectl " +
			"apply -k deployments/base (docs/install.md)"
	case noFabric && slices.Equal(failed, []string{PartFabrics}):
		return "fabricctl generate fabric --cluster | kubectl apply -f -"
	case namespace != "fabric-system":
		return "fabricctl doctor cluster --agent-namespace " + namespace
	}
	return "fabricctl doctor cluster"
}

// agentPart: fabric-agent runs on its nodes, with its new version.
func (c *Cluster) agentPart(namespace string) StatusPart {
	part := StatusPart{Name: PartAgent, Status: Fail,
		Text: "no DaemonSet of fabric-agent in the namespace " + namespace}
	i := slices.IndexFunc(c.DaemonSets, func(d DaemonSet) bool { return d.IsAgent(namespace) })
	if i < 0 {
		return part
	}
	d := &c.DaemonSets[i]
	name := d.Namespace + "/" + d.Name
	status, text := d.state()
	switch {
	case d.Status.ObservedGeneration < d.Generation:
		status, text = Fail, " has a new spec that Kubernetes has not rolled out"
	case d.Status.DesiredNumberScheduled == 0:
		status, text = Fail, " fits no node: its nodeSelector, affinity and tolerations"
	case status == Warn && d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType:
		status = Fail
	}
	part.Status, part.Text, part.Count = status, name+text, d.count()
	return part
}

func (d *DaemonSet) count() *ReadyOf {
	return &ReadyOf{Ready: int(d.Status.NumberReady), Total: int(d.Status.DesiredNumberScheduled)}
}

// controllerPart is what doctor cluster finds.
func (c *Cluster) controllerPart(namespace string) StatusPart {
	part := StatusPart{Name: PartController, Status: Fail,
		Text: "no Deployment of the controller in the namespace " + namespace}
	if c.Controller == nil || !c.Controller.Found {
		return part
	}
	part.Count = &ReadyOf{Ready: c.Controller.Ready, Total: c.Controller.Wanted}
	list := clusterController(c)
	Sort(list)
	part.Status, part.Text = list[0].Status, list[0].Evidence
	if k := c.Controller; part.Status != Fail && k.Updated < k.Wanted {
		part.Status = Fail
		part.Text = fmt.Sprintf("%s/%s has its new spec in %d of %d pods", k.Namespace, k.Name, k.Updated, k.Wanted)
	}
	return part
}

// multusPart: the kind of Multus is served, and each of its DaemonSets is ready. Without a DaemonSet Multus may be part
// of the nodes' image, which the cluster does not tell.
func (c *Cluster) multusPart() StatusPart {
	part := StatusPart{Name: PartMultus, Status: OK}
	for i := range c.DaemonSets {
		d := &c.DaemonSets[i]
		if !d.IsMultus() {
			continue
		}
		status, text := d.state()
		if part.Count == nil || worse(status, part.Status) {
			part.Status, part.Text, part.Count = status, d.Namespace+"/"+d.Name+text, d.count()
		}
	}
	switch served := slices.Contains(c.CRDs, NetworksCRD); {
	case part.Count == nil && served:
		part.Status = Warn
		part.Text = "its kind NetworkAttachmentDefinition is there, and no DaemonSet has multus in its name"
	case part.Count == nil:
		part.Status, part.Text = Fail, "it is not installed: neither its kind nor a DaemonSet is there"
	case !served:
		part.Status, part.Text = Fail, "the API server does not serve its kind NetworkAttachmentDefinition"
	}
	return part
}

func worse(a, b Status) bool { return a == Fail && b != Fail || a == Warn && b == OK }

// nodesPart: each agent has made its FabricNode, and these are Ready.
func (c *Cluster) nodesPart() StatusPart {
	part := StatusPart{Name: PartNodes, Count: &ReadyOf{}, Status: OK}
	first := ""
	note := func(s Status, text string) {
		if worse(s, part.Status) {
			part.Status, first = s, "; "+text
		}
	}
	there := map[string]bool{}
	for i := range c.FabricNodes {
		n := &c.FabricNodes[i]
		if there[n.Name] = true; n.Spec.Gone != nil {
			continue
		}
		part.Count.Total++
		switch ready := apimeta.FindStatusCondition(n.Status.Conditions, v1alpha1.FabricNodeReady); {
		case ready == nil:
			note(Fail, n.Name+": its agent has reported nothing yet")
		case ready.Status == metav1.ConditionTrue:
			part.Count.Ready++
		default:
			note(unreadyNode(ready.Reason), n.Name+": "+because(ready))
		}
	}
	if c.AgentPods != nil {
		var silent []string
		for name, ready := range c.AgentPods.On {
			if ready && !there[name] {
				silent = append(silent, name)
			}
		}
		if slices.Sort(silent); len(silent) > 0 {
			note(Fail, "the agent runs, and has made no FabricNode: "+few(silent))
		}
	}
	if part.Count.Total == 0 {
		part.Status = Fail
	}
	part.Text = fmt.Sprintf("%d of %d FabricNodes are Ready%s", part.Count.Ready, part.Count.Total, first)
	return part
}

// fabricsPart: there is a Fabric, each is Ready, and nodes work with the spec in force. It names the worst.
func (s *ClusterStatus) fabricsPart(c *Cluster) StatusPart {
	part := StatusPart{Name: PartFabrics, Status: OK, Count: &ReadyOf{Total: len(c.Fabrics)}}
	if len(c.Fabrics) == 0 {
		part.Status, part.Text = Fail, "there is no Fabric"
		return part
	}
	worst := 0
	for i := range c.Fabrics {
		f := c.fabricStatus(&c.Fabrics[i])
		if f.Status != Fail && apimeta.IsStatusConditionTrue(c.Fabrics[i].Status.Conditions, v1alpha1.FabricReady) {
			part.Count.Ready++
		}
		s.Fabrics = append(s.Fabrics, f)
		if worse(f.Status, part.Status) {
			part.Status, worst = f.Status, i
		}
	}
	f := &s.Fabrics[worst]
	part.Text = fmt.Sprintf("%d of %d Fabrics are Ready; ", part.Count.Ready, part.Count.Total)
	if f.Text != "" {
		part.Text += f.Text + "; "
	} else {
		part.Text += f.Name + ": "
	}
	part.Text += fmt.Sprintf("%d of %d devices are healthy, ", f.Devices.Healthy, f.Devices.Total)
	if len(f.Published) == 0 {
		part.Text += "published in no namespace"
	} else {
		part.Text += "published in " + few(f.Published)
	}
	return part
}

// fabricStatus judges one Fabric.
func (c *Cluster) fabricStatus(f *v1alpha1.Fabric) StatusFabric {
	out := StatusFabric{Name: f.Name, Status: OK, Devices: f.Status.Devices,
		Published: append([]string{}, f.Status.Published...)}
	for _, fault := range fabricFaults(f) {
		if worse(fault.status, out.Status) {
			out.Status, out.Text = fault.status, "Fabric "+f.Name+fault.text
		}
	}
	if out.Status == Fail {
		return out
	}
	if f.Status.ObservedGeneration != f.Generation {
		out.Status = Fail
		out.Text = fmt.Sprintf("Fabric %s: the controller has not looked at generation %d", f.Name, f.Generation)
		return out
	}
	if behind := c.behind(f); len(behind) > 0 {
		out.Status = Fail
		out.Text = fmt.Sprintf("Fabric %s: the spec of %s is older than generation %d", f.Name, few(behind),
			f.Status.InForce.Generation)
	}
	return out
}

// behind are the nodes that work with an earlier spec of a Fabric than the one in force.
func (c *Cluster) behind(f *v1alpha1.Fabric) (out []string) {
	if f.Status.InForce == nil {
		return nil
	}
	for _, n := range c.devicesOf(f.Name) {
		if slices.ContainsFunc(n.Status.Fabrics, func(nf v1alpha1.NodeFabric) bool {
			return nf.Name == f.Name && nf.Generation < f.Status.InForce.Generation
		}) {
			out = append(out, n.Name)
		}
	}
	return out
}

// podsPart counts who has devices.
func (s *ClusterStatus) podsPart(c *Cluster) StatusPart {
	all, held, pods := map[[2]string]bool{}, map[[2]string]bool{}, map[string]bool{}
	for _, d := range Devices(c.FabricNodes, true) {
		at := [2]string{d.Node, d.Device}
		if all[at] = true; d.State == DeviceHeld {
			held[at], pods[d.Pod] = true, true
		}
	}
	s.Pods, s.Held = len(pods), len(held)
	text := fmt.Sprintf("%d of %d devices are in ", s.Held, len(all))
	switch s.Pods {
	case 0:
		text += "pods"
	case 1:
		text += "1 pod"
	default:
		text += fmt.Sprintf("%d pods", s.Pods)
	}
	return StatusPart{Name: PartPods, Status: OK, Text: text}
}
