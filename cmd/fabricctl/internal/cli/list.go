package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// attached is one line of list.
type attached struct {
	Pod       string    `json:"pod,omitempty"`
	Container string    `json:"container"`
	IfName    string    `json:"ifName"`
	Network   string    `json:"network"`
	Kind      string    `json:"kind"`
	Device    string    `json:"device,omitempty"`
	Netdev    string    `json:"netdev,omitempty"` // its name on the host
	RDMA      string    `json:"rdma,omitempty"`   // the RDMA device that went along
	State     string    `json:"state"`
	Netns     string    `json:"netns"`
	Created   time.Time `json:"created"`
	Missing   bool      `json:"missing,omitempty"` // DEL has not found what it has, which may be in use

	entry    *entry
	liveness liveness
}

// States of an attachment.
const (
	stateAttached = "attached"
	stateBegun    = "begun"  // ADD is at work, or was killed
	stateDead     = "dead"   // the pod's network namespace is gone, DEL has not come
	stateBefore   = "before" // from before the last boot: only addresses are left to free
)

func (a *app) list() *cobra.Command {
	var format string
	var all bool
	var from place
	c := &cobra.Command{
		Use:   "list",
		Short: "List which pod has which device: on this node, or with --cluster in the cluster",
		Long: `list reads the plugin's journal. STATE is "attached"; "begun" while an ADD runs or after one was
killed; "dead" when the pod's network namespace is gone and DEL has not come; "before" when the node has rebooted
since. repair returns what is dead or before.

With --cluster it reads the FabricNodes and prints a line per device of a Fabric that a pod has, with the start of its
pod; --all includes free devices.`,
		Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("output", &format, "table", "wide", "json", "yaml"); err != nil {
				return err
			}
			from.settle(&a.machine, false)
			switch {
			case from.cluster:
				return a.listCluster(cmd.Context(), format, all)
			case all:
				return fmt.Errorf("%w: --all is for --cluster: the journal of a node has no free devices", errUsage)
			}
			if err := a.running("list"); err != nil {
				return err
			}
			list, err := a.attachments()
			if format == "json" || format == "yaml" {
				if perr := a.structured(format, attachmentList{list}); perr != nil {
					return perr
				}
				return err
			}
			if len(list) == 0 && err != nil {
				return err
			}
			if len(list) == 0 {
				a.stdout.Println("no attachments on this node")
				return err
			}
			t := newTable("POD", "INTERFACE", "NETWORK", "DEVICE", "NETDEV", "RDMA", "STATE")
			kinds := slices.ContainsFunc(list, func(l attached) bool { return l.Kind != "device" })
			switch {
			case format == "wide":
				t.header = append(t.header, "KIND", "CONTAINER", "NETNS", "CREATED")
			case kinds:
				t.header = append(t.header, "KIND")
			}
			if format != "wide" {
				t.spare = []string{"RDMA", "NETDEV", "NETWORK", "KIND"}
			}
			for _, l := range list {
				row := []any{l.who(), l.IfName, l.Network, l.Device, l.Netdev, l.RDMA, cell{l.State, l.colour()}}
				switch {
				case format == "wide":
					row = append(row, l.Kind, l.Container, l.Netns, l.Created.Format(time.RFC3339))
				case kinds:
					row = append(row, l.Kind)
				}
				t.add(row...)
			}
			t.print(&a.console)
			return err
		},
	}
	c.Flags().StringVarP(&format, "output", "o", "table", "table, wide, json or yaml")
	from.flags(c, "the devices of the cluster, from its FabricNodes", "the attachments of this machine")
	c.Flags().BoolVar(&all, "all", false, "with --cluster: also devices that no pod holds")
	return c
}

func (l *attached) who() string {
	if l.Pod != "" {
		return l.Pod
	}
	if len(l.Container) > 13 {
		return l.Container[:13]
	}
	return l.Container
}

func (l *attached) colour() string {
	if l.State == stateAttached {
		return good
	}
	return warn
}
