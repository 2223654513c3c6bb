package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fabric-cni/fabric-cni/pkg/agent/cluster"
	"github.com/fabric-cni/fabric-cni/pkg/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/pkg/agent/metrics"
	"github.com/fabric-cni/fabric-cni/pkg/agent/network"
	"github.com/fabric-cni/fabric-cni/pkg/agent/settings"
	"github.com/fabric-cni/fabric-cni/pkg/agent/survey"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/node"
)

// publisher is the part of the API server that the agent needs.
type publisher interface {
	Apply(ctx context.Context, object map[string]any) error
	Warn(reason, message string)
	Inventory(ctx context.Context, namespace string, p *node.Published) error
}

// looker looks at settings and node, and makes kubelet, Multus and the cluster know.
type looker struct {
	o       *Options
	log     *slog.Logger
	node    survey.Node
	set     *deviceplugin.Set // nil: none
	cluster publisher         // nil: none
	metrics *metrics.Metrics
	now     func() time.Time

	good settings.Settings // the last that made sense
	// discovered has the fabrics of the last look, by device id.
	discovered map[string]string

	applied map[string]time.Time // fabric -> when its definition was last published
	said    map[string]string    // what people have been told and is still so: key -> message

	inventory inventory

	mu      sync.Mutex
	trouble []string // why pods can't be served
}

// reapply is how often a definition is published again although nothing has changed here: somebody may have deleted it.
const reapply = 5 * time.Minute

// look does everything once. Errors are logged and told, and tried again with the next look.
func (l *looker) look(ctx context.Context) {
	said := map[string]string{}
	l.settings(said)
	devices, err := l.node.Read()
	if err != nil {
		l.log.Error("cannot read all devices", "error", err)
	}
	found := network.Discover(devices, l.discovered)
	assigned := network.Assign(l.good.Fabrics, devices)
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
	for i := range l.good.Fabrics {
		f := &l.good.Fabrics[i]
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
		if master := network.Master(mine); f.Mode == settings.Shared && master != "" {
			if b, err := network.Config(f, master); err == nil {
				files[f.Name] = b
			}
		}
		l.publish(ctx, f, said)
	}
	l.metrics.Fabrics(fabrics)
	if l.set != nil {
		if err := l.set.Update(ctx, resources); err != nil {
			l.log.Error("cannot tell kubelet about the devices", "error", err)
		}
	}
	if l.o.ConfDir != "" {
		if _, err := network.WriteFiles(l.o.ConfDir, files); err != nil {
			l.log.Error("cannot write this node's network configurations", "error", err)
		}
	}
	l.preflight(len(devices) > 0, said)
	l.tell(said)
	l.publishInventory(ctx)
}

// settings loads them, and keeps the last good ones when they make no sense.
func (l *looker) settings(said map[string]string) {
	s, err := settings.Load(l.o.Settings)
	for i := 0; err == nil && i < len(s.Fabrics); i++ {
		err = network.Check(&s.Fabrics[i])
	}
	if err != nil {
		said["settings"] = "SettingsRefused\x00the last good settings stay in force: " + err.Error()
		return
	}
	l.good = *s
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
func (l *looker) preflight(hasRDMA bool, said map[string]string) {
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
	if err := l.mode(hasRDMA); err != nil {
		said["mode"] = "WrongRDMAMode\x00" + err.Error()
		trouble = append(trouble, err.Error())
	}
	l.metrics.Ready.Set(map[bool]float64{true: 1}[len(trouble) == 0])
	l.mu.Lock()
	l.trouble = trouble
	l.mu.Unlock()
}

// mode tells whether the node's RDMA mode fits the fabrics that have devices here. A whole device in shared mode would leave its
// RDMA device on the host, where every pod sees it.
func (l *looker) mode(hasRDMA bool) error {
	mode, err := survey.Mode()
	if errors.Is(err, survey.ErrNoRDMA) || !hasRDMA {
		return nil // a node without HCAs serves no fabric, and is healthy
	}
	if err != nil {
		return err
	}
	for i := range l.good.Fabrics {
		f := &l.good.Fabrics[i]
		if f.Mode == settings.Exclusive && mode == device.NetnsShared && f.Network["rdma"] == "exclusive" {
			return fmt.Errorf("fabric %s wants RDMA devices moved, but the node's RDMA network namespace mode is shared: put options ib_core netns_mode=0 into /etc/modprobe.d and reboot", f.Name)
		}
	}
	return nil
}

// tell makes an Event and a log line of everything that has not been told yet.
func (l *looker) tell(now map[string]string) {
	for key, text := range now {
		if l.said[key] == text {
			continue
		}
		reason, message := cut(text)
		l.log.Warn(message, "reason", reason)
		if l.cluster != nil {
			l.cluster.Warn(reason, message)
		}
	}
	for key, text := range l.said {
		if _, still := now[key]; !still {
			_, message := cut(text)
			l.log.Info("no longer so", "what", message)
		}
	}
	l.said = now
}

// ready returns why pods can't be served, nothing if they can.
func (l *looker) ready() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble
}
