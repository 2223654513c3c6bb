package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// usualDirs are where runtimes look for plugins too: one that is there may be found, so it is not called missing.
var usualDirs = []string{"/opt/cni/bin", "/usr/libexec/cni", "/usr/lib/cni", "/var/lib/cni/bin"}

// maxDirs bounds the directories in which plugins are looked for.
const maxDirs = 16

// ipamReconciler finds out whether the IPAM plugins of fabrics are on the node, where the container runtime looks for
// them.
type ipamReconciler struct {
	binDir   string
	hostProc string
	log      *slog.Logger

	// missing is what the last look did not find: an installer that replaces a plugin may remove it first.
	missing map[string]bool
}

// reconcile returns the fabrics whose IPAM plugin is missing. paths are the CNI_PATHs of this node's attachments.
func (r *ipamReconciler) reconcile(v *view, paths []string) map[string]bool {
	out, missing := map[string]bool{}, map[string]bool{}
	var root *survey.Root
	for i := range v.fabrics {
		f := &v.fabrics[i]
		typ, key := executable(f)
		if typ == "" || len(v.assigned[f.Name]) == 0 {
			continue
		}
		if root == nil {
			var err error
			if root, err = survey.OpenRoot(r.hostProc); err != nil {
				r.log.Debug("cannot look for IPAM plugins", "error", err)
				return nil
			}
			defer root.Close()
		}
		text := r.look(root, typ, directories(r.binDir, paths))
		if text == "" {
			continue
		}
		if missing[typ] = true; !r.missing[typ] {
			continue
		}
		out[f.Name] = true
		if key != "" {
			text += fmt.Sprintf("; it is needed because the built-in %s does not know the key %s", typ,
				quote.Terminal(cut(key)))
		}
		v.findings.Add(condition.IPAMMissing, condition.Fabric(f.Name), "fabric %s: %s", f.Name, text)
	}
	r.missing = missing
	return out
}

// executable is the IPAM plugin that a fabric needs as a program on the node; empty: none.
func executable(f *fabrics.Fabric) (typ, key string) {
	section, ok := f.Network["ipam"]
	if !ok || f.NodeRanges != nil {
		return "", ""
	}
	b, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": f.Name, "ipam": section})
	if err != nil {
		return "", ""
	}
	return ipam.Executable(b)
}

// directories are where a plugin may be: the first is the runtime's, as the agent was told.
func directories(binDir string, paths []string) []string {
	out := []string{filepath.Clean(binDir)}
	for _, path := range paths {
		out = append(out, filepath.SplitList(path)...)
	}
	out = append(out, usualDirs...)
	seen := map[string]bool{}
	out = slices.DeleteFunc(out, func(dir string) bool {
		again := seen[filepath.Clean(dir)]
		seen[filepath.Clean(dir)] = true
		return again || !filepath.IsAbs(dir)
	})
	return out[:min(len(out), maxDirs)]
}

// look says why a plugin can't be started. It says nothing if it is there, or if that can't be told.
func (r *ipamReconciler) look(root *survey.Root, typ string, dirs []string) string {
	name := quote.Terminal(cut(typ))
	if typ == "." || typ == ".." || strings.ContainsAny(typ, "/\x00") {
		return fmt.Sprintf("addresses.ipam.type %q: want the plain file name of a plugin", name)
	}
	var there []string // and of no use
	for _, dir := range dirs {
		err := root.Executable(filepath.Join(dir, typ))
		switch {
		case err == nil:
			return ""
		case errors.Is(err, survey.ErrNotExecutable) || errors.Is(err, survey.ErrDangling) && r.hostProc != "":
			there = append(there, quote.Terminal(err.Error()))
		case errors.Is(err, survey.ErrDangling) || !errors.Is(err, os.ErrNotExist):
			r.log.Debug("cannot tell whether an IPAM plugin is there", "plugin", name, "error", err)
			return ""
		}
	}
	if len(there) > 0 {
		return fmt.Sprintf("the IPAM plugin %s can't be started: %s; install it again", name, strings.Join(there, ", "))
	}
	text := fmt.Sprintf("there is no IPAM plugin %q in %s of this node", name, dirs[0])
	meant := slices.DeleteFunc(append(ipam.Names(), root.Names(dirs[0])...), func(n string) bool { return n == typ })
	if similar := netconf.Similar(typ, meant); similar != "" && !slices.Contains(ipam.Names(), typ) {
		text += fmt.Sprintf(": did you mean %s?", quote.Terminal(cut(similar)))
	}
	return text + "; install it there, or correct addresses.ipam.type"
}
