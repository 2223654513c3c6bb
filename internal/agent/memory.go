package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
)

// memory is what an agent that starts again has to know of the one before. It is a file of the state directory: a
// reboot, which ends all pods, ends it too.
type memory struct {
	Good    json.RawMessage   `json:"settings,omitempty"` // the last that made sense
	Leaving []string          `json:"leaving,omitempty"`  // namespace/name of definitions to be removed when no pod asks for them
	Devices map[string]string `json:"devices,omitempty"`  // device id -> the fabric it was in when its port was last up
}

func (l *looker) memoryFile() string { return filepath.Join(l.o.StateDir, "agent.json") }

// recall reads the file. What can't be read is forgotten: it is all found out again, but for what left meanwhile.
func (l *looker) recall() {
	b, err := os.ReadFile(l.memoryFile())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var m memory
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		l.log.Error("cannot read what the last agent knew", "file", l.memoryFile(), "error", err)
		return
	}
	l.memory = m
	if s, err := settings.Parse(m.Good); err == nil && len(m.Good) > 0 {
		l.good = s.Fabrics
	}
}

// save writes the file, seen whole or not at all.
func (l *looker) save() {
	b, err := json.Marshal(l.memory)
	if err == nil {
		if old, rerr := os.ReadFile(l.memoryFile()); rerr == nil && bytes.Equal(old, b) {
			return
		}
		err = atomicfile.File{Path: l.memoryFile(), Mode: 0o600}.Write(b)
	}
	if err != nil {
		l.log.Error("cannot keep what the next agent should know", "error", err)
	}
}

// accept makes settings the ones in force. The definitions of fabrics that are not in them any more will have to go,
// unless there is no file at all: that is not how somebody says it.
func (l *looker) accept(s *settings.Settings) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("keep settings: %w", err)
	}
	here := map[string]bool{}
	for i := range s.Fabrics {
		here[s.Fabrics[i].Definition()] = true
	}
	gone := l.memory.Leaving
	if _, err := os.Stat(l.o.Settings); err == nil {
		for i := range l.good {
			gone = append(gone, l.good[i].Definition())
		}
	}
	seen := map[string]bool{}
	l.memory.Leaving = nil
	for _, name := range gone {
		if !here[name] && !seen[name] {
			l.memory.Leaving = append(l.memory.Leaving, name)
		}
		seen[name] = true
	}
	l.memory.Good, l.good = b, s.Fabrics
	l.rareNext = time.Time{}
	l.save()
	return nil
}

// remember notes where the devices are whose ports are up.
func (l *looker) remember(assigned map[string][]survey.Device) {
	if l.memory.Devices == nil {
		l.memory.Devices = map[string]string{}
	}
	for fabric, devices := range assigned {
		for i := range devices {
			if devices[i].Active() {
				l.memory.Devices[devices[i].ID] = fabric
			}
		}
	}
	if len(l.memory.Devices) > 0 {
		l.save()
	}
}
