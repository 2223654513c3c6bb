package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// looker looks at settings and node, and makes kubelet, Multus and the cluster know.
type looker struct {
	o       *Options
	log     *slog.Logger
	set     *deviceplugin.Set // nil: none
	cluster *cluster.Client   // nil: none
	metrics *metrics.Metrics
	now     func() time.Time

	memory memory
	good   []settings.Fabric // the last that made sense
	// refused are the last that had too few addresses.
	refused verdict
	// discovered has the fabrics of the last look, by device id.
	discovered map[string]string

	applied map[string]time.Time // definition -> when it was last published
	parts   map[string]part      // fabric -> this node's addresses
	said    map[string]string    // what people have been told and is still so: key -> message
	// rare is what the last of the rarer looks, at the cluster, had to say.
	rare     map[string]string
	rareNext time.Time

	inventory inventory

	mu      sync.Mutex
	trouble []string // why pods can't be served
}

// reapply is how often a definition is published again although nothing has changed here: somebody may have deleted it.
const reapply = 5 * time.Minute

// rarely is how many looks at the node there are for one at what all nodes ask the API server for: pools and
// capacities.
const rarely = 30

// look does everything once. Errors are logged and told, and tried again with the next look.
func (l *looker) look(ctx context.Context) {
	said := map[string]string{}
	devices, err := l.o.Survey()
	if err != nil {
		l.log.Error("cannot read all devices", "error", err)
	}
	found := network.Discover(devices, l.discovered)
	l.settings(ctx, devices, said)
	assigned := network.Assign(l.good, devices, l.memory.Devices)
	for i := range found {
		if text := network.Unused(&found[i], assigned); text != "" {
			said["unused "+found[i].Name] = "FabricUnused\x00" + text
		}
	}
	l.discovered = map[string]string{}
	for _, d := range devices {
		l.discovered[d.ID] = d.Fabric
	}
	resources, files, fabrics := map[string][]deviceplugin.Unit{}, map[string][]byte{}, map[string]string{}
	for i := range l.good {
		f := &l.good[i]
		mine := assigned[f.Name]
		for j := range mine {
			fabrics[mine[j].ID] = f.Name
			if !mine[j].Active() {
				said["port "+mine[j].ID] = "PortDown\x00fabric " + f.Name + ": " + network.Reason(&mine[j])
			}
		}
		if units := network.Units(f, mine); len(units) > 0 {
			resources[f.Resource()] = units
		}
		if b := l.file(ctx, f, mine, said); b != nil {
			files[f.Name] = b
		}
		l.publish(ctx, f, said)
	}
	l.remember(assigned)
	l.metrics.Fabrics(fabrics)
	if l.set != nil {
		if err := l.set.Update(ctx, resources); err != nil {
			l.log.Error("cannot tell kubelet about the devices", "error", err)
		}
	}
	l.write(files)
	if err := l.metrics.Spool(l.o.StateDir); err != nil {
		l.log.Error("cannot count the plugin's calls", "error", err)
	}
	l.rarer(ctx, assigned)
	for key, text := range l.rare {
		said[key] = text
	}
	l.preflight(assigned, said)
	l.tell(said)
	l.publishInventory(ctx)
}

// file is the configuration of a fabric that is this node's own; nil: it has none, or must wait.
func (l *looker) file(ctx context.Context, f *settings.Fabric, mine []survey.Device, said map[string]string) []byte {
	here := network.Here{Master: network.Master(mine), IPAMDir: l.ipamDir()}
	if !network.OfNode(f) || len(mine) == 0 || f.Mode == settings.Shared && here.Master == "" {
		return nil
	}
	if f.NodeRanges != nil {
		var ok bool
		if here.First, here.Last, ok = l.part(ctx, f, said); !ok {
			return nil
		}
		if _, err := os.Stat(filepath.Join(l.o.BinDir, "host-local")); errors.Is(err, fs.ErrNotExist) {
			said["host-local"] = "IPAMMissing\x00fabric " + f.Name + " has nodeRanges, and " + l.o.BinDir + " lacks the IPAM plugin host-local: install the reference CNI plugins"
		}
	}
	b, err := network.Config(f, here)
	if err != nil {
		l.log.Error("cannot make this node's configuration", "fabric", f.Name, "error", err)
	}
	return b
}

// ipamDir is where host-local keeps which addresses of this node's parts are given. A reboot, which ends all pods,
// empties it.
func (l *looker) ipamDir() string { return filepath.Join(l.o.StateDir, "ipam") }

// write makes Multus's directory have these files of ours. One that is missing now stays as it was while its fabric is
// still in the settings (the API server may be away) or a pod of this node is on its network; but not one with
// addresses that are another node's by now.
func (l *looker) write(files map[string][]byte) {
	if l.o.ConfDir == "" {
		return
	}
	keep := l.networks()
	for i := range l.good {
		if f := &l.good[i]; f.NodeRanges != nil {
			keep[f.Name] = !l.parts[f.Name].lost
		}
	}
	if _, err := network.WriteFiles(l.o.ConfDir, files, func(name string) bool { return keep[name] }); err != nil {
		l.log.Error("cannot write this node's network configurations", "error", err)
	}
}

// networks are the names of the networks that pods of this node are on.
func (l *looker) networks() map[string]bool {
	out := map[string]bool{}
	entries, err := l.o.store().List()
	if err != nil {
		l.log.Error("journal has entries that cannot be read", "error", err)
	}
	for _, e := range entries {
		out[e.Network] = true
	}
	return out
}

// publish applies the definition of a fabric, if it is time to.
func (l *looker) publish(ctx context.Context, f *settings.Fabric, said map[string]string) {
	if l.cluster == nil {
		return
	}
	object, err := network.Definition(f)
	if err == nil {
		key := fmt.Sprint(object)
		if l.now().Sub(l.applied[key]) < reapply {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err = l.cluster.Apply(ctx, object); err == nil {
			if l.applied[key].IsZero() {
				l.log.Info("published NetworkAttachmentDefinition", "namespace", f.Namespace, "name", f.Name)
			}
			l.applied[key] = l.now()
			return
		}
	}
	var conflict *cluster.ConflictError
	if errors.As(err, &conflict) {
		said["conflict "+f.Name] = "NetworkConflict\x00" + err.Error()
		return
	}
	l.log.Error("cannot publish NetworkAttachmentDefinition", "name", f.Name, "error", err)
}

// preflight finds out whether pods can be served.
func (l *looker) preflight(assigned map[string][]survey.Device, said map[string]string) {
	var trouble []string
	same, err := l.o.target().Same()
	if err == nil && !same {
		err = fmt.Errorf("%s is not the agent's binary", l.o.target().Path())
	}
	if err != nil {
		trouble = append(trouble, err.Error())
	}
	if err := l.o.store().Writable(); err != nil {
		trouble = append(trouble, err.Error())
	}
	serious, err := l.mode(assigned)
	if err != nil {
		said["mode"] = "WrongRDMAMode\x00" + err.Error()
	}
	if serious {
		trouble = append(trouble, err.Error())
	}
	l.metrics.Ready.Set(map[bool]float64{true: 1}[len(trouble) == 0])
	l.mu.Lock()
	l.trouble = trouble
	l.mu.Unlock()
}

// mode tells whether the node's RDMA mode fits the fabrics that have devices here, and whether pods get an error if it
// does not. A node without HCAs serves no fabric, and is healthy.
func (l *looker) mode(assigned map[string][]survey.Device) (serious bool, err error) {
	mode, err := survey.Mode()
	if errors.Is(err, survey.ErrNoRDMA) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	return misfit(l.good, assigned, mode)
}

// misfit finds a fabric that the mode does not fit. A whole device in shared mode leaves its RDMA device on the host,
// where every pod sees it: an error where the network asks for more, and else not what a fabric of mode exclusive
// promises.
func misfit(
	fabrics []settings.Fabric,
	assigned map[string][]survey.Device,
	mode device.NetnsMode,
) (serious bool, err error) {
	const cure = "put options ib_core netns_mode=0 into /etc/modprobe.d and reboot"
	for i := range fabrics {
		f := &fabrics[i]
		if len(assigned[f.Name]) == 0 {
			continue
		}
		want := f.Network["rdma"]
		switch {
		case mode == device.NetnsExclusive && want == "shared":
			return true, fmt.Errorf(
				"fabric %s has \"rdma\": \"shared\", but the node's RDMA network namespace mode is exclusive: "+
					"remove options ib_core netns_mode=0 from /etc/modprobe.d and reboot",
				f.Name,
			)
		case f.Mode != settings.Exclusive || mode != device.NetnsShared:
		case want == "exclusive":
			return true, fmt.Errorf(
				"fabric %s wants RDMA devices moved, but the node's RDMA network namespace mode is shared: %s",
				f.Name,
				cure,
			)
		case want == nil || want == "auto":
			err = fmt.Errorf(
				"fabric %s hands out whole devices, but the node's RDMA network namespace mode is shared: their "+
					"RDMA devices stay on the host, where every pod sees them; %s, or put \"rdma\": \"shared\" into "+
					"its network if that is what you want",
				f.Name,
				cure,
			)
		}
	}
	return false, err
}
