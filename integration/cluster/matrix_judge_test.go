package cluster

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
)

// fileOf is the device file that comes with a rail.
var fileOf = map[string]string{"rail0": "fuse", "rail1": "hwrng", "rail2": "autofs"}

// view is what a container has seen at one moment: interfaces by rail, and device files.
type view struct {
	rails map[string]string // rail -> interface
	files []string
	text  string
}

// views are all that containers of a pod have ever seen.
func (m *matrix) views(name string) (out []view, err error) {
	b, err := os.ReadFile(filepath.Join(m.seen, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "reads ") {
			continue
		}
		v := view{rails: map[string]string{}, text: strings.TrimSpace(line)}
		for _, word := range strings.Fields(line)[1:] {
			if iface, peer, ok := strings.Cut(word, "="); ok {
				v.rails[m.peers[peer]] = iface
			} else {
				v.files = append(v.files, word)
			}
		}
		out = append(out, v)
	}
	return out, err
}

// reads are all that containers of a pod have read of their devices at their start.
func (m *matrix) reads(name string) (out []*metadata.DeviceMetadata, err error) {
	b, err := os.ReadFile(filepath.Join(m.seen, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for line := range strings.Lines(string(b)) {
		text, is := strings.CutPrefix(line, "reads ")
		if !is {
			continue
		}
		var one metadata.DeviceMetadata
		text = strings.TrimSpace(text)
		in := json.NewDecoder(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
		if derr := devicemetadata.DecodeMetadataFromStream(in, &one); derr != nil {
			err = errors.Join(err, fmt.Errorf("metadata %q: %w", text, derr))
		}
		out = append(out, &one)
	}
	return out, err
}

// readRight asserts that a container has read of so many rails, under the names that they have, with an address each.
func readRight(m *metadata.DeviceMetadata, rails int) error {
	var names []string
	for _, r := range m.Requests {
		for _, d := range r.Devices {
			if d.NetworkData == nil || len(d.NetworkData.IPs) != 1 || d.NetworkData.HardwareAddress == "" {
				return fmt.Errorf("it reads of %s: %+v", d.Name, d.NetworkData)
			}
			names = append(names, d.NetworkData.InterfaceName)
		}
	}
	if slices.Sort(names); !slices.Equal(names, []string{"net1", "net2"}[:rails]) {
		return fmt.Errorf("it reads of %v, want %d rails", names, rails)
	}
	return nil
}

// right asserts that a view is of so many rails, under the names that they have in the order of rails, with their
// device files and no others.
func (v *view) right(rails int) error {
	if len(v.rails) != rails {
		return fmt.Errorf("it sees %q, want %d rails", v.text, rails)
	}
	var files []string
	for i, r := range slices.Sorted(maps.Keys(v.rails)) {
		if want := fmt.Sprint("net", i+1); v.rails[r] != want {
			return fmt.Errorf("it sees %q: %s is %s, want %s", v.text, r, v.rails[r], want)
		}
		files = append(files, fileOf[r])
	}
	if slices.Sort(files); !slices.Equal(files, slices.Sorted(slices.Values(v.files))) {
		return fmt.Errorf("it sees %q, want the device files %v", v.text, files)
	}
	return nil
}

// alwaysHad asserts that no container of a pod has ever, at any moment of its life, had less or more than its devices.
func (m *matrix) alwaysHad(t *testing.T, name string, rails int) {
	t.Helper()
	views, err := m.views(name)
	if err != nil {
		t.Error(err)
	}
	for i := range views {
		if err := views[i].right(rails); err != nil {
			t.Errorf("RUNNING WITHOUT ITS DEVICES: %s: %v", name, err)
		}
	}
	reads, err := m.reads(name)
	if err != nil {
		t.Errorf("RUNNING WITHOUT METADATA: %s: %v", name, err)
	}
	for _, r := range reads {
		if err := readRight(r, rails); err != nil {
			t.Errorf("RUNNING WITH WRONG METADATA: %s: %v", name, err)
		}
	}
}

// hasExactly asserts that scheduler, agent, plugin, claim status and the container itself agree on a pod's devices.
func (m *matrix) hasExactly(name string, rails int) error {
	views, err := m.views(name)
	if err != nil || len(views) == 0 {
		return errors.Join(err, errors.New("no container has said what it sees"))
	}
	last := views[len(views)-1]
	if err := last.right(rails); err != nil {
		return err
	}
	want := slices.Sorted(maps.Keys(last.rails))
	c, err := m.claim(name)
	if err != nil {
		return err
	}
	reads, err := m.reads(name)
	if err != nil || len(reads) == 0 {
		return errors.Join(err, errors.New("no container has said what it reads"))
	}
	read := reads[len(reads)-1]
	var allocated, shown []string
	if c.Status.Allocation != nil {
		for _, r := range c.Status.Allocation.Devices.Results {
			allocated = append(allocated, strings.TrimPrefix(r.Device, "netdev-"))
		}
	}
	for _, d := range c.Status.Devices {
		r := strings.TrimPrefix(d.Device, "netdev-")
		if d.NetworkData == nil || d.NetworkData.InterfaceName != last.rails[r] || len(d.NetworkData.IPs) != 1 {
			return fmt.Errorf("networkData of %s in claim %s: %+v, want %s", d.Device, c.Name, d.NetworkData,
				last.rails[r])
		}
		at := slices.IndexFunc(read.Requests[0].Devices, func(m metadata.Device) bool { return m.Name == d.Device })
		if at < 0 || !reflect.DeepEqual(read.Requests[0].Devices[at].NetworkData, d.NetworkData) {
			return fmt.Errorf("the claim says of %s %+v, the container reads %+v", d.Device, d.NetworkData, read)
		}
		shown = append(shown, r)
	}
	p, err := prepared.In(journal.DefaultDir).Of(string(c.Status.ReservedFor[0].UID))
	if err != nil {
		return err
	}
	var given, attached []string
	for _, d := range prepared.OfFabric(p, rigFabric) {
		given = append(given, d.Address.Name)
	}
	list, err := journal.Store{Dir: journal.DefaultDir}.List()
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.Pod() == "default/"+name && e.Attached {
			attached = append(attached, strings.TrimPrefix(e.DeviceKey, "netdev/"))
		}
	}
	for who, have := range map[string][]string{
		"the scheduler": allocated, "the claim's status": shown, "the prepared claim": given, "the journal": attached,
	} {
		if slices.Sort(have); !slices.Equal(have, want) {
			return fmt.Errorf("%s has %v, the container %v", who, have, want)
		}
	}
	return nil
}

// atRest asserts that there is nothing but the steady pod: its devices are with it, all others on the host as they
// were, and no program remembers anything else.
func (m *matrix) atRest() error {
	if err := m.hasExactly(steady, 1); err != nil {
		return fmt.Errorf("pod %s: %w", steady, err)
	}
	views, err := m.views(steady)
	if err != nil {
		return err
	}
	for _, r := range m.rig.rails {
		if _, ok := views[len(views)-1].rails[r]; ok {
			continue
		}
		n, err := net.InterfaceByName(r)
		if err != nil {
			return fmt.Errorf("LOST: %s: %w", r, err)
		}
		addrs, err := n.Addrs()
		own := func(a net.Addr) bool { return a.String() == "192.0.2.1/24" }
		if err != nil || n.MTU != 1400 || !slices.ContainsFunc(addrs, own) {
			return fmt.Errorf("%s is not as it was: MTU %d, %v, %w", r, n.MTU, addrs, err)
		}
	}
	c, err := m.claim(steady)
	if err != nil {
		return err
	}
	claims, err := clientset(m.t).ResourceV1().ResourceClaims("").List(m.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	if n := len(claims.Items); n != 1 {
		return fmt.Errorf("%d claims", n)
	}
	return errors.Join(m.onlyOf(string(c.UID)), m.rig.published())
}

// onlyOf asserts that all files on the node are those of one claim with one device.
func (m *matrix) onlyOf(uid string) error {
	list, err := journal.Store{Dir: journal.DefaultDir}.List()
	if err != nil {
		return err
	}
	if len(list) != 1 {
		return fmt.Errorf("journal: %v", list)
	}
	all, err := prepared.In(journal.DefaultDir).All()
	if err != nil {
		return err
	}
	if len(all) != 1 || all[0].UID != uid {
		return fmt.Errorf("prepared claims: %d", len(all))
	}
	files, err := filepath.Glob("/run/cdi/*")
	if err != nil {
		return err
	}
	if len(files) != 1 || !strings.Contains(files[0], uid) {
		return fmt.Errorf("CDI specs: %v, want one of claim %s", files, uid)
	}
	addresses, err := filepath.Glob(journal.DefaultDir + "/ipam/*/10.*")
	if err != nil {
		return err
	}
	if len(addresses) != 1 {
		return fmt.Errorf("addresses: %v", addresses)
	}
	return nil
}

// report prints what came of all cells.
func (m *matrix) report() {
	bad := 0
	var out strings.Builder
	for _, r := range m.results {
		verdict := "ok  "
		if !r.ok {
			verdict, bad = "FAIL", bad+1
		}
		fmt.Fprintf(&out, "%s %-70s %5.1f s  %s\n", verdict, r.cell, r.took.Seconds(), r.outcome)
	}
	m.t.Logf("%d cells, %d failed\n%s", len(m.results), bad, &out)
}
