package doctor

import (
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// collectLinks reads what sysfs says of the interfaces, as Documentation/ABI/testing/sysfs-class-net has it.
func (h *Host) collectLinks(root fs.FS) {
	h.Links = map[string]Link{}
	for i := range h.Node.Netdevs {
		name := h.Node.Netdevs[i].Name
		dir := node.Real(root, path.Join("sys/class/net", name))
		if dir == "" {
			continue
		}
		l := Link{Mode: read(root, path.Join(dir, "mode"))}
		flags, err := strconv.ParseUint(strings.TrimPrefix(read(root, path.Join(dir, "flags")), "0x"), 16, 32)
		l.Flags, l.Known = flags, err == nil
		if n, err := strconv.ParseUint(read(root, path.Join(dir, "carrier_down_count")), 10, 64); err == nil {
			l.Downs = &n
		}
		h.Links[name] = l
	}
}
