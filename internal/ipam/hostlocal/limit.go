package hostlocal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/disk"

	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
)

// limitFile, in the directory of a network, says which ranges addresses may be given of. Its name is no address, and
// its content is nobody's: the plugin's own binary looks over it.
const limitFile = "ranges"

// limit is the content of the file.
type limit struct {
	Ranges []netip.Prefix `json:"ranges"`
}

// Limit says of which ranges addresses of a network may be given from now on; none: of no range. An Add that has read
// an older configuration, and comes later, fails: when Limit has returned, no address outside of these ranges is given
// any more, and those that are have their file. A network without a directory is given one only if it has a range.
func Limit(ctx context.Context, dataDir, network string, to []netip.Prefix) error {
	dir := filepath.Join(dataDir, network)
	if len(to) == 0 {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		to = []netip.Prefix{}
	}
	want, err := json.Marshal(limit{to})
	if err != nil {
		return fmt.Errorf("limit the addresses of %s: %w", network, err)
	}
	file := filepath.Join(dir, limitFile)
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, want) {
		return nil
	}
	s, err := disk.New(network, dataDir)
	if err != nil {
		return fmt.Errorf("limit the addresses of %s: %w", network, err)
	}
	if err := lock(ctx, s); err != nil {
		return fmt.Errorf("limit the addresses of %s: %w", network, err)
	}
	defer unlock(s)
	if err := (atomicfile.File{Path: file, Mode: 0o600, DirMode: 0o755}).Write(want); err != nil {
		return fmt.Errorf("limit the addresses of %s: %w", network, err)
	}
	return nil
}

// checkLimit returns an error if the configuration has ranges that addresses must not be given of. Its caller has the
// lock. A directory without the file has no limit.
func (c *IPAMConfig) checkLimit() error {
	b, err := os.ReadFile(filepath.Join(c.dir(), limitFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var l limit
	if err == nil {
		err = json.Unmarshal(b, &l)
	}
	if err != nil {
		return fmt.Errorf("read which ranges of network %s are this node's: %w", c.Name, err)
	}
	for _, set := range c.Ranges {
		for i := range set {
			if !l.holds(&set[i]) {
				return fmt.Errorf("range %s of network %s is not this node's: it has %v now; try again: the "+
					"configuration of this call was read before the node was given another range", &set[i], c.Name,
					l.Ranges)
			}
		}
	}
	return nil
}

func (l *limit) holds(r *Range) bool {
	first, ok := netip.AddrFromSlice(canonical(r.RangeStart))
	last, lok := netip.AddrFromSlice(canonical(r.RangeEnd))
	for _, p := range l.Ranges {
		if ok && lok && p.Contains(first) && p.Contains(last) {
			return true
		}
	}
	return false
}
