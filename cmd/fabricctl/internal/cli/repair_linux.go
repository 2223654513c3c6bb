package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/agent/repair"
)

// del calls the plugin, which it has to find first, as the agent would.
func (a *app) del(ctx context.Context, plugin string, e *entry) error {
	path, err := findPlugin(plugin, e.Path)
	if err != nil {
		return err
	}
	if err := repair.Del(ctx, path, e); err != nil {
		return err
	}
	return repair.Kept(a.store(), e)
}

func findPlugin(plugin, cniPath string) (string, error) {
	if plugin != "" {
		return exec.LookPath(plugin)
	}
	dirs := append(filepath.SplitList(cniPath), "/opt/cni/bin")
	for _, d := range dirs {
		if p := filepath.Join(d, "fabric"); filepath.IsAbs(p) {
			if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
				return p, nil
			}
		}
	}
	return "", fmt.Errorf("the plugin fabric is in none of %s; name it with --plugin", strings.Join(dirs, ", "))
}
