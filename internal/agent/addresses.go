package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
	"github.com/fabric-cni/fabric-cni/internal/kubelet"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// addressReconciler notes for the plugin by which addresses the cluster knows the node: an interface that has one is
// not moved. It notes as well where kubelet's directory is, if that is another one than usual. The file is one of the
// state directory: the policy itself is its owner's.
type addressReconciler struct {
	addresses []netip.Addr                                // what kubelet tells pods
	link      *cluster.Link                               // nil: there is no API server
	server    func(context.Context) ([]netip.Addr, error) // from where it is reached; may be nil
	plugins   string                                      // kubelet's directory of device plugins
	dir       string                                      // the state directory
	log       *slog.Logger
	now       func() time.Time
	found     outcome

	noted policy.NodeAddresses // fabrics and their resources; nil: not known yet
}

// give notes which devices are in a fabric.
func (r *addressReconciler) give(ctx context.Context, v *view) {
	r.noted = policy.NodeAddresses{Fabrics: len(v.fabrics) > 0, Resources: map[string]string{}}
	for i := range v.fabrics {
		f := &v.fabrics[i]
		for j := range v.assigned[f.Name] {
			r.noted.Resources[v.assigned[f.Name][j].Address.String()] = f.Resource()
		}
	}
	r.reconcile(ctx)
}

// maxAddresses bounds what is noted, and what is believed of the FabricNode.
const maxAddresses = 64

// reconcile keeps the file as it should be.
func (r *addressReconciler) reconcile(ctx context.Context) {
	file := filepath.Join(r.dir, policy.NodeAddressesFile)
	old, _ := os.ReadFile(file) // one that can't be read is written again
	addresses, all := r.look(ctx)
	var was policy.NodeAddresses
	if json.Unmarshal(old, &was) != nil {
		was = policy.NodeAddresses{}
	}
	if !all { // an address that the node had is better than none
		addresses = append(addresses, was.Addresses[:min(len(was.Addresses), 2*maxAddresses)]...)
	}
	n := r.noted
	if n.Resources == nil {
		n = policy.NodeAddresses{Fabrics: was.Fabrics, Resources: was.Resources}
	}
	if n.Addresses = global(addresses); len(n.Addresses) == 0 && !n.Fabrics && len(old) == 0 {
		return
	}
	if r.plugins != kubelet.DefaultDir {
		n.DevicePluginDir = r.plugins
	}
	want, err := json.Marshal(n)
	if err == nil && !bytes.Equal(old, want) {
		err = (atomicfile.File{Path: file, Mode: 0o600, DirMode: 0o700}).Write(want)
	}
	if err != nil {
		r.log.Error("cannot note the addresses of the node", "error", fmt.Errorf("write %s: %w", file, err))
	}
}

// look returns the addresses that are known now, and whether these are all.
func (r *addressReconciler) look(ctx context.Context) (out []netip.Addr, all bool) {
	out, all = slices.Clone(r.addresses), true
	var errs []error
	if r.link != nil {
		own := r.link.Own()
		all = r.link.Synced() && own != nil
		if own != nil {
			more, err := parseAddresses(own.Annotations[v1alpha1.NodeAddressesAnnotation])
			if err != nil {
				errs = append(errs, fmt.Errorf("annotation %s of the FabricNode: %w", v1alpha1.NodeAddressesAnnotation,
					err))
			}
			out = append(out, more[:min(len(more), maxAddresses)]...)
		}
	}
	if r.server != nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		local, err := r.server(ctx)
		errs = append(errs, err)
		out, all = append(out, local...), all && err == nil && len(local) > 0
	}
	r.found.note(r.log, r.now(), errors.Join(errs...))
	return out, all
}

// global are the addresses of a list by which others can reach the node, each once.
func global(list []netip.Addr) []netip.Addr {
	out := []netip.Addr{} // in JSON no null
	for _, a := range list {
		if a.IsGlobalUnicast() {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// parseAddresses reads addresses with commas between them. Those that can't be read are in the error, beside the rest.
func parseAddresses(text string) (out []netip.Addr, err error) {
	for t := range strings.SplitSeq(text, ",") {
		if t = strings.TrimSpace(t); t == "" {
			continue
		}
		a, perr := netip.ParseAddr(t)
		if perr != nil {
			err = errors.Join(err, perr)
			continue
		}
		out = append(out, a.Unmap().WithZone(""))
	}
	return global(out), err
}
