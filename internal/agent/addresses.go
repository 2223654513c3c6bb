package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
	"github.com/fabric-cni/fabric-cni/internal/kubelet"
	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// addressReconciler notes for the plugin by which addresses the cluster knows the node: an interface that has one is
// not moved. It notes as well where kubelet's directory is, if that is another one than usual. The file is one of the
// state directory: the policy itself is its owner's.
type addressReconciler struct {
	addresses []netip.Addr // none: nobody has said
	plugins   string       // kubelet's directory of device plugins
	dir       string       // the state directory
	log       *slog.Logger
}

// reconcile keeps the file as it should be.
func (r *addressReconciler) reconcile() {
	if len(r.addresses) == 0 {
		return
	}
	n := policy.NodeAddresses{Addresses: r.addresses}
	if r.plugins != kubelet.DefaultDir {
		n.DevicePluginDir = r.plugins
	}
	want, err := json.Marshal(n)
	file := filepath.Join(r.dir, policy.NodeAddressesFile)
	if err == nil {
		if old, rerr := os.ReadFile(file); rerr == nil && bytes.Equal(old, want) {
			return
		}
		err = (atomicfile.File{Path: file, Mode: 0o600, DirMode: 0o700}).Write(want)
	}
	if err != nil {
		r.log.Error("cannot note the addresses of the node", "error", fmt.Errorf("write %s: %w", file, err))
	}
}

// parseAddresses reads what kubelet says of status.hostIPs: addresses with commas between them.
func parseAddresses(text string) (out []netip.Addr, err error) {
	for _, t := range strings.Split(text, ",") {
		if t = strings.TrimSpace(t); t == "" {
			continue
		}
		a, perr := netip.ParseAddr(t)
		if perr != nil {
			err = errors.Join(err, fmt.Errorf("--node-ips: %w", perr))
			continue
		}
		if a = a.Unmap().WithZone(""); a.IsGlobalUnicast() {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out), err
}
