package doctor

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// initramfs looks for the image that the running kernel boots with, as Debian and dracut name it, and compares its age
// with that of the file that has netns_mode: what was written later is not in it.
func (h *Host) initramfs(root fs.FS) {
	for _, name := range []string{"initrd.img-" + h.Node.Kernel, "initramfs-" + h.Node.Kernel + ".img", "initrd-" +
		h.Node.Kernel} {
		image, err := fs.Stat(root, path.Join("boot", name))
		if err != nil {
			continue
		}
		h.Initramfs = "/boot/" + name
		conf, err := fs.Stat(root, strings.TrimPrefix(cmp.Or(h.ModeFile, "/nowhere"), "/"))
		h.InitramfsOld = err == nil && image.ModTime().Before(conf.ModTime())
		return
	}
}

// hostInitramfs reports whether the mode survives a boot: ib_core may be loaded from the initramfs, with the options
// that are in there.
func hostInitramfs(h *Host, _ topology.Fabrics) []Finding {
	switch {
	case h.Initramfs == "" || h.ModeFile == "" || h.Node.RDMAMode == "" || h.BuiltIn || h.ModeOnCmdline():
		return nil
	case h.InitramfsOld:
		return one(finding("host-initramfs", Warn, h.Initramfs+" is older than "+h.ModeFile))
	}
	return one(finding("host-initramfs", OK, h.Initramfs+" is newer than "+h.ModeFile))
}

// hostGUIDs finds GUIDs that two ports of the node have. A subnet manager gives both one LID, or none.
func hostGUIDs(h *Host, _ topology.Fabrics) (out []Finding) {
	ports := map[device.GUID][]string{}
	for i := range h.Node.HCAs {
		d := &h.Node.HCAs[i]
		for _, p := range d.Ports {
			if p.LinkLayer == device.InfiniBand && !p.GUID.IsUnset() {
				ports[p.GUID] = append(ports[p.GUID], fmt.Sprintf("%s:%d", d.Name, p.Number))
			}
		}
	}
	for _, g := range slices.SortedFunc(maps.Keys(ports),
		func(a, b device.GUID) int { return strings.Compare(a.String(), b.String()) }) {
		if len(ports[g]) > 1 {
			out = append(
				out,
				finding("host-guid", Fail, strings.Join(ports[g], " and ")+" have the port GUID "+g.String()),
			)
		}
	}
	if len(ports) == 0 {
		return nil
	}
	return pass(out, "host-guid", fmt.Sprintf("%d port GUIDs, each once", len(ports)))
}

// hostVersion compares the installed plugin with the program that asks.
func hostVersion(h *Host, _ topology.Fabrics) []Finding {
	switch {
	case h.PluginVersion == "" || h.Version == "":
		return nil
	case h.PluginVersion != h.Version:
		return one(finding("host-version", Warn, "fabricctl is "+h.Version+", /opt/cni/bin/fabric "+h.PluginVersion))
	}
	return one(finding("host-version", OK, h.Version))
}
