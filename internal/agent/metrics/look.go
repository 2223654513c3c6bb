package metrics

import (
	"sync"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
)

// lookWait is how long a scrape waits for a look at the node that another one has begun.
const lookWait = 5 * time.Second

// look is the last look at the devices for scrapes. There is one at a time, however many ask, and however long the
// kernel takes for its answers: a scrape that has waited for it gets what the one before has found.
type look struct {
	fresh    time.Duration // how long it is good; 0: each scrape has one of its own
	devices  func() ([]survey.Device, error)
	counters func(*survey.Device) ([]survey.Counter, error)
	busy     chan struct{} // of capacity 1: has an element while one looks

	mu     sync.Mutex
	at     time.Time
	states []*deviceState
}

func newLook(node survey.Node, fresh time.Duration) look {
	return look{
		fresh: fresh, devices: node.Read, busy: make(chan struct{}, 1),
		counters: func(d *survey.Device) ([]survey.Counter, error) { return node.Counters(d) },
	}
}

func (l *look) last() ([]*deviceState, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.states, l.at
}

// states are the devices now, or as they were at the last look.
func (m *Metrics) states() []*deviceState {
	l := &m.look
	select {
	case l.busy <- struct{}{}:
		defer func() { <-l.busy }()
	case <-time.After(lookWait):
		states, _ := l.last()
		return states
	}
	if states, at := l.last(); time.Since(at) < l.fresh {
		return states
	}
	devices, err := l.devices()
	if err != nil {
		m.log.Warn("metrics lack the devices that cannot be read", "error", err)
	}
	states := make([]*deviceState, len(devices))
	for i := range devices {
		states[i] = m.state(&devices[i])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.states, l.at = states, time.Now()
	return states
}

// counts says whether the counters of a device are exported: of a VF only while a pod has it, as each counter is a
// question to the firmware, and a card has hundreds of VFs that are not in use.
func counts(d *survey.Device) bool { return d.Holder != nil || d.PCI == "" || d.Slot == d.PCI }
