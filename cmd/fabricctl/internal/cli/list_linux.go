package cli

import (
	"errors"
	"io/fs"

	"github.com/fabric-cni/fabric-cni/internal/foreign"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// entry is an attachment in the plugin's journal.
type entry = journal.Entry

// liveness is where to look whether its pod is alive.
type liveness = journal.Liveness

// attachments reads the journal. Entries that can't be read are in the error, beside the others.
func (a *app) attachments() ([]attached, error) {
	entries, err := a.store().List()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	out := []attached{}
	looks := a.liveness()
	for _, e := range entries {
		l := attached{
			Pod:       e.Pod(),
			Container: e.ContainerID,
			IfName:    e.IfName,
			Network:   e.Network,
			Kind:      string(e.Kind),
			Device:    e.DeviceKey,
			Netns:     e.NetnsPath,
			Created:   e.Created,
			Missing:   e.Missing,
			State:     stateOf(e, looks),
			entry:     e,
			liveness:  looks,
		}
		switch {
		case e.Child != nil:
			l.Netdev = e.Child.Master
		case e.Netdev != nil:
			l.Netdev = e.Netdev.Name
		}
		if e.MoveRDMA && e.HCA != nil {
			l.RDMA = e.HCA.Name
		}
		out = append(out, l)
	}
	return out, err
}

// foreign is what has no business in the plugin's state directory, in words.
func (a *app) foreign() []string { return foreign.In(a.stateDir) }

// damaged says whether the journal could be read but for what is damaged in it.
func damaged(err error) bool { return errors.Is(err, journal.ErrCorrupt) }

// liveness is where to look for signs of life: a container sees no processes but its own, and those of all pods in the
// /proc of its node.
func (a *app) liveness() liveness {
	_, proc, _, err := a.nodeTree()
	if err != nil {
		return liveness{}
	}
	return liveness{Proc: proc}
}

// stateOf looks at the pod of an entry. A pod that may be alive is not reported as dead.
func stateOf(e *journal.Entry, w liveness) string {
	if e.BeforeBoot(journal.BootID("/proc")) {
		return stateBefore
	}
	if live, err := e.Alive(w); !live && err == nil {
		return stateDead
	}
	if !e.Attached {
		return stateBegun
	}
	return stateAttached
}

// unclear is why it could not be found out whether the pod is alive.
func (l *attached) unclear() error {
	_, err := l.entry.Alive(l.liveness)
	return err
}
