package metrics

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// However many scrapes come at once, the node is read once, and within the time that a look is good not again. Of VFs
// that no pod has, no counter is read.
func TestOneLook(t *testing.T) {
	m, err := New(prometheus.NewRegistry(), survey.Node{}, time.Hour, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	reads, counted := atomic.Int32{}, map[string]int{}
	begun, release := make(chan struct{}), make(chan struct{})
	m.look.devices = func() ([]survey.Device, error) {
		reads.Add(1)
		close(begun)
		<-release
		return []survey.Device{
			{Location: device.LocationOnPCI("0000:3b:00.0"), Slot: "0000:3b:00.0"},
			{Location: device.LocationOnPCI("0000:3b:00.1"), Slot: "0000:3b:00.0"},
			{Location: device.LocationOnPCI("0000:3b:00.2"), Slot: "0000:3b:00.0", Holder: &journal.Entry{}},
			{Location: device.Location{Address: device.Address{Bus: "platform", Name: "fakeib.0"}}},
		}, nil
	}
	m.look.counters = func(d *survey.Device) ([]survey.Counter, error) {
		counted[d.ID()]++
		return []survey.Counter{{Port: 1, Name: "port_xmit_data"}}, nil
	}
	var scrapes sync.WaitGroup
	scrape := func() {
		out := make(chan prometheus.Metric, 100)
		m.Collect(out)
		if len(out) == 0 {
			t.Error("no metric")
		}
	}
	scrapes.Go(scrape)
	<-begun
	for range 7 {
		scrapes.Go(scrape)
	}
	close(release)
	scrapes.Wait()
	scrape()
	if n := reads.Load(); n != 1 {
		t.Errorf("the node was read %d times", n)
	}
	pf, free, given, elsewhere := "0000:3b:00.0", "0000:3b:00.1", "0000:3b:00.2", "platform/fakeib.0"
	if counted[free] != 0 || counted[pf] != 1 || counted[given] != 1 || counted[elsewhere] != 1 {
		t.Errorf("counters read: %v", counted)
	}
	m.look.fresh, begun = 0, make(chan struct{})
	if scrape(); reads.Load() != 2 {
		t.Error("a look is good for ever")
	}
}

// A look that does not end holds no scrape up for longer than lookWait.
func TestHangingLook(t *testing.T) {
	m, err := New(prometheus.NewRegistry(), survey.Node{}, time.Hour, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	m.look.busy <- struct{}{}
	m.look.states = []*deviceState{{Device: &survey.Device{}}}
	if got := m.states(); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}
