package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// Bounds of list --cluster.
const (
	mostDevices    = 100_000 // lines
	mostNamespaces = 16      // whose pods are asked for one by one; of more those of all namespaces are
)

// listCluster prints who has which device in the cluster.
func (a *app) listCluster(ctx context.Context, format string, all bool) error {
	if a.root != "/" {
		return errSources
	}
	from := sources{machine: a.machine, place: place{cluster: true}}
	nodes, err := from.fabricNodes(ctx)
	if err != nil {
		return err
	}
	list := doctor.Devices(nodes, all)
	if ns := a.kube.Named(); ns != "" {
		list = slices.DeleteFunc(list, func(d doctor.Device) bool {
			return d.Pod != "" && !strings.HasPrefix(d.Pod, ns+"/")
		})
	}
	if len(list) > mostDevices {
		from.bad = append(from.bad, fmt.Errorf("there are %d lines, and the first %d are shown", len(list),
			mostDevices))
		list = list[:mostDevices]
	}
	addRails(list, nodes)
	if err := a.addStarts(ctx, list); err != nil {
		a.stderr.Printf("warning: since when is not known: %v\n", err)
	}
	switch {
	case format == "json" || format == "yaml":
		if err := a.structured(format, deviceList{list}); err != nil {
			return err
		}
	case len(nodes) == 0:
		a.stdout.Println("no FabricNode: fabricctl status says what the cluster lacks")
	case len(list) == 0 && all:
		a.stdout.Println("no device is in a Fabric: fabricctl status says what the cluster lacks")
	case len(list) == 0:
		a.stdout.Println("no pod holds a device; --all lists those that are free")
	default:
		t := deviceTable(list, all, format == "wide")
		t.print(&a.console)
	}
	return from.leftOut(&a.console)
}

func deviceTable(list []doctor.Device, all, wide bool) *table {
	t := newTable("NODE", "HCA", "NETDEV", "FABRIC", "RAIL", "POD", "SINCE")
	if all || wide {
		t.header = append(t.header, "STATE", "PROBLEM")
	}
	if wide {
		t.header = append(t.header, "DEVICE")
	} else {
		t.spare = []string{"PROBLEM", "NETDEV", "SINCE", "RAIL"}
	}
	colours := map[string]string{doctor.DeviceHeld: good, doctor.DeviceUnhealthy: warn}
	for i := range list {
		d := &list[i]
		since := ""
		if d.Since != nil {
			since = d.Since.UTC().Format(time.RFC3339)
		}
		row := []any{d.Node, d.HCA, d.Netdev, d.Fabric, d.Rail, d.Pod, since}
		if all || wide {
			row = append(row, cell{d.State, colours[d.State]}, d.Problem)
		}
		if wide {
			row = append(row, d.Device)
		}
		t.add(row...)
	}
	return t
}

// addRails adds the rails that discover --cluster shows.
func addRails(list []doctor.Device, nodes []doctor.FabricNode) {
	var ports []topology.Port
	for i := range nodes {
		if n := nodes[i].Node; n != nil && nodes[i].Spec.Gone == nil {
			ports = append(ports, n.Ports()...)
		}
	}
	rails := railsOf(topology.Group(ports))
	for i := range list {
		list[i].Rail = rails[portKey(list[i].Node, list[i].HCA, 1)]
	}
}

// startedPod is as much of a pod as tells since when it runs.
type startedPod struct {
	metav1.ObjectMeta `json:"metadata"`

	Status struct {
		StartTime *metav1.Time `json:"startTime"`
	} `json:"status"`
}

// addStarts adds since when the pods run. Only pods of namespaces that have devices are asked for, if those are few.
func (a *app) addStarts(ctx context.Context, list []doctor.Device) error {
	var namespaces []string
	for i := range list {
		if ns, _, ok := strings.Cut(list[i].Pod, "/"); ok && labelRule.check("", ns) == nil {
			namespaces = append(namespaces, ns)
		}
	}
	slices.Sort(namespaces)
	if namespaces = slices.Compact(namespaces); len(namespaces) > mostNamespaces {
		namespaces = []string{""}
	}
	started := map[string]*metav1.Time{}
	for i := range list {
		started[list[i].Pod] = nil
	}
	for _, ns := range namespaces {
		in := cluster.List{Of: cluster.Pods, Namespace: ns}
		err := cluster.Each(ctx, a.kube, in, func(o *startedPod, bad error) {
			name := o.Namespace + "/" + o.Name
			if _, ok := started[name]; ok && bad == nil {
				started[name] = o.Status.StartTime
			}
		})
		if err != nil {
			return err
		}
	}
	for i := range list {
		list[i].Since = started[list[i].Pod]
	}
	return nil
}
