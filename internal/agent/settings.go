package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"reflect"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
)

// settingsReconciler decides which settings are in force: those of the file, or the last accepted ones if the file is
// not valid.
type settingsReconciler struct {
	file     string
	saved    *savedState
	capacity *capacityChecker
	log      *slog.Logger

	fabrics []settings.Fabric // in force
}

// reconcile loads the file and returns the fabrics in force, and whether they have changed.
func (r *settingsReconciler) reconcile(
	ctx context.Context, devices []survey.Device, conditions *condition.Set,
) (fabrics []settings.Fabric, changed bool) {
	s, err := loadSettings(r.file)
	if err == nil && r.saved.Settings != nil && reflect.DeepEqual(s.Fabrics, r.fabrics) {
		return r.fabrics, false
	}
	if err == nil {
		assigned := network.Assign(s.Fabrics, devices, r.saved.Devices)
		err = r.capacity.checkSettings(ctx, s.Fabrics, assigned)
	}
	if err == nil {
		err = r.accept(s)
	}
	if err != nil {
		conditions.Fail(condition.SettingsAccepted, condition.Node,
			"the last accepted settings stay in force: %v", err)
	}
	return r.fabrics, err == nil
}

// loadSettings reads the file, and has each fabric's network checked by the plugin's own parser.
func loadSettings(file string) (*settings.Settings, error) {
	s, err := settings.Load(file)
	if err != nil {
		return nil, err
	}
	for i := range s.Fabrics {
		if err := network.Check(&s.Fabrics[i]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// accept puts settings into force, and saves them. Definitions of fabrics that are no longer in them are marked for
// removal, unless there is no file at all: a missing file does not mean that the fabrics are to go.
func (r *settingsReconciler) accept(s *settings.Settings) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("save settings: %w", err)
	}
	leaving := r.saved.Leaving
	if _, err := os.Stat(r.file); err == nil {
		for i := range r.fabrics {
			leaving = append(leaving, r.fabrics[i].Definition())
		}
	}
	seen := map[string]bool{}
	for i := range s.Fabrics {
		seen[s.Fabrics[i].Definition()] = true
	}
	r.saved.Leaving = nil
	for _, name := range leaving {
		if !seen[name] {
			r.saved.Leaving = append(r.saved.Leaving, name)
		}
		seen[name] = true
	}
	r.saved.Settings, r.fabrics = b, s.Fabrics
	if err := r.saved.save(); err != nil {
		r.log.Error(err.Error())
	}
	return nil
}
