package cli

import (
	"errors"
	"io/fs"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// entry is an attachment in the plugin's journal.
type entry = journal.Entry

// attachments reads the journal. Entries that can't be read are in the error, beside the others.
func (a *app) attachments() ([]attached, error) {
	entries, err := a.store().List()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	out := []attached{}
	for _, e := range entries {
		l := attached{
			Pod:       e.Pod(),
			Container: e.ContainerID,
			IfName:    e.IfName,
			Network:   e.Network,
			Kind:      string(e.Kind),
			Device:    e.Claim,
			Netns:     e.NetnsPath,
			Created:   e.Created,
			State:     stateOf(e),
			entry:     e,
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

// stateOf looks at the pod of an entry. A pod that may be alive is not reported as dead.
func stateOf(e *journal.Entry) string {
	if e.BeforeBoot(journal.BootID("/proc")) {
		return stateBefore
	}
	if live, err := e.Alive(journal.Witness{}); !live && err == nil {
		return stateDead
	}
	if !e.Attached {
		return stateBegun
	}
	return stateAttached
}

// unclear is why it could not be found out whether the pod is alive.
func (l *attached) unclear() error {
	_, err := l.entry.Alive(journal.Witness{})
	return err
}
