package doctor

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// modprobeDirs are those that modprobe reads, the first ones first in rank: a file of a name hides those of the same
// name in later ones (kmod, libkmod.c: default_config_paths). /usr/lib is /lib on most systems.
var modprobeDirs = []string{
	"etc/modprobe.d", "run/modprobe.d", "usr/local/lib/modprobe.d", "lib/modprobe.d", "usr/lib/modprobe.d",
}

// modprobe finds netns_mode in modprobe.d as modprobe does: files in the order of their names, whatever their
// directories, and the last one wins.
func (h *Host) modprobe(root fs.FS) {
	files := map[string]string{} // by name
	for _, dir := range modprobeDirs {
		for _, name := range list(root, dir) {
			if _, hidden := files[name]; !hidden && strings.HasSuffix(name, ".conf") {
				files[name] = path.Join(dir, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if v := modeOption(read(root, files[name])); v != "" {
			h.ModeConf, h.ModeFile = v, "/"+files[name]
		}
	}
	// A module has initstate, and what is built in has not (kernel/module/sysfs.c). A recording that does not have
	// what is in the directory does not tell.
	in := list(root, "sys/module/ib_core")
	h.BuiltIn = len(in) > 0 && !slices.Contains(in, "initstate")
}

// modeOption is netns_mode of the options lines for ib_core; empty without one.
func modeOption(conf string) (value string) {
	for line := range strings.Lines(conf) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "options" || underscores(f[1]) != "ib_core" {
			continue
		}
		for _, o := range f[2:] {
			value = modeOf(o, value)
		}
	}
	return value
}

// modeParameter is ib_core.netns_mode on the kernel's command line; empty without it. modprobe reads it there after
// modprobe.d, so it wins; what is built in reads nothing else. After -- the words are init's.
func modeParameter(cmdline string) (value string) {
	for _, w := range strings.Fields(cmdline) {
		if w == "--" {
			break
		}
		w = strings.ReplaceAll(w, `"`, "")
		if module, o, ok := strings.Cut(w, "."); ok && underscores(module) == "ib_core" {
			value = modeOf(o, value)
		}
	}
	return value
}

// modeOf is the value of netns_mode=VALUE, 0 or 1 as the kernel reads it (lib/kstrtox.c, kstrtobool), else what it was.
func modeOf(option, was string) string {
	name, v, has := strings.Cut(option, "=")
	v = strings.ToLower(strings.Trim(v, `"`))
	switch {
	case underscores(name) != "netns_mode":
		return was
	case !has, strings.HasPrefix(v, "on"), strings.IndexAny(v, "yt1") == 0:
		return "1"
	case strings.HasPrefix(v, "of"), strings.IndexAny(v, "nf0") == 0:
		return "0"
	}
	return was // the kernel does not load ib_core with it
}

// underscores spells a name as the kernel does: it takes - for _.
func underscores(s string) string { return strings.ReplaceAll(s, "-", "_") }

// NextMode is the mode that the next boot will have, exclusive or shared, and what decides it; decided: it is set, and
// not the kernel's default, which is shared.
func (h *Host) NextMode() (mode, where string, decided bool) {
	value, where := h.ModeConf, "no netns_mode in modprobe.d or on the kernel command line"
	switch boot := modeParameter(h.Cmdline); {
	case boot != "":
		value, where = boot, "ib_core.netns_mode="+boot+" on the kernel command line"
	case h.BuiltIn:
		value, where = "", "ib_core is built into the kernel, and its command line has no ib_core.netns_mode"
	case value != "":
		where = "netns_mode=" + value + " in " + h.ModeFile
	}
	mode = device.NetnsShared.String()
	if value == NetnsModes[device.NetnsExclusive.String()] {
		mode = device.NetnsExclusive.String()
	}
	return mode, where, value != ""
}

// ModeOnCmdline tells whether the kernel command line decides the mode: modprobe.d does not count then.
func (h *Host) ModeOnCmdline() bool { return modeParameter(h.Cmdline) != "" }

// hostMode compares the mode with what the next boot will have.
func hostMode(h *Host, _ topology.Fabrics) []Finding {
	mode := h.Node.RDMAMode
	if mode == "" {
		return nil
	}
	next, where, decided := h.NextMode()
	if mode == next {
		return one(finding("host-rdma-mode", OK, mode+"; "+where))
	}
	f := finding("host-rdma-mode", Warn, "the mode is "+mode+", "+where)
	switch {
	case h.ModeOnCmdline():
		f.Cause = "something has run rdma system set since the boot. " + f.Cause
		f.Cure = "find what runs rdma system set netns; reboot"
	case decided:
		f.Cause = "ib_core was loaded from an initramfs that does not have the file, or something has run rdma " +
			"system set. " + f.Cause
		f.Cure = "update-initramfs -u (dracut -f); reboot"
	default: // it is exclusive
		f.Cause = "the next boot will be in shared mode: pods in need of exclusive mode get error 103 then"
	}
	if h.BuiltIn && !h.ModeOnCmdline() {
		f.Cure = "ib_core.netns_mode=0 on the kernel command line: modprobe.d does not count for what is " +
			"built in; reboot"
	}
	return one(f)
}
