package agent

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/cri"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/repair"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// delTimeout bounds one DEL of the plugin: it waits 10 s for a lock and 10 s for the kernel, and for IPAM.
const delTimeout = 2 * time.Minute

// repairLoop returns the loop that reclaims devices that dead pods left behind. Each attempt is counted, and a success
// becomes an Event.
func repairLoop(o *Options, m *metrics.Metrics, reporter *condition.Reporter, log *slog.Logger) *repair.Loop {
	runtime := cri.Runtime{Socket: o.CRISocket, HostProc: o.HostProc}
	return &repair.Loop{
		Store:       o.store(),
		Plugin:      o.target().Path(),
		HostProc:    o.HostProc,
		Grace:       o.Grace,
		CallTimeout: delTimeout,
		Sandboxes:   runtime.Sandboxes,
		Log:         log,
		Now:         time.Now,
		Done: func(e *journal.Entry, err error) {
			if err != nil {
				m.RepairFailures.WithLabelValues(e.Network).Inc()
				return
			}
			m.Repaired.WithLabelValues(e.Network).Inc()
			reporter.Happened(condition.DeviceRepaired, fmt.Sprintf("reclaimed device %s of network %s: %s left it "+
				"behind, and its DEL never came", e.DeviceKey, quote.Terminal(e.Network), e.Who()))
		},
	}
}
