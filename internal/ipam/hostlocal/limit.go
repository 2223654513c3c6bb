package hostlocal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
)

// limitFile, in the directory of a network, says which ranges addresses may be given of. Its name is no address, and
// its content names no attachment: the plugin's own binary looks over it.
const limitFile = "ranges"

// limit is the content of the file.
type limit struct {
	Ranges []netip.Prefix `json:"ranges"`
}

// Limit says of which ranges addresses of a network may be given from now on; none: of no range. An Add that has read
// an older configuration, and comes later, fails: when Limit has returned, no address outside of these ranges is given
// any more, and those that are have their file. A network that has never had a range is given no directory, and one
// that is there is left as it is: it is not the caller's.
func Limit(ctx context.Context, dataDir, network string, to []netip.Prefix) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("limit the addresses of %s: %w", network, err)
		}
	}()
	if len(to) == 0 {
		if !Limited(dataDir, network) {
			return nil
		}
		to = []netip.Prefix{}
	}
	want, err := json.Marshal(limit{to})
	if err != nil {
		return err
	}
	if now, err := readLimit(dataDir, network); err == nil && bytes.Equal(now, want) {
		return nil
	}
	d, err := openLocked(ctx, dataDir, network, true)
	if err != nil {
		return err
	}
	defer d.close()
	return atomicfile.File{Path: fmt.Sprintf("/proc/self/fd/%d/%s", d.fd(), limitFile), Mode: 0o600}.Write(want)
}

// Limited reports whether the directory of a network has a limit: the one that Limit has set last.
func Limited(dataDir, network string) bool {
	_, err := readLimit(dataDir, network)
	return !errors.Is(err, fs.ErrNotExist)
}

func readLimit(dataDir, network string) ([]byte, error) {
	d, err := openDir(dataDir, network, false)
	if err != nil {
		return nil, err
	}
	defer d.close()
	return d.read(limitFile, maxLimit)
}

// checkLimit returns an error if the configuration has ranges that addresses must not be given of. A directory without
// the file has no limit.
func (c *IPAMConfig) checkLimit(d *dir) error {
	b, err := d.read(limitFile, maxLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var l limit
	if err == nil {
		err = json.Unmarshal(b, &l)
	}
	if err != nil {
		return fmt.Errorf("read which ranges of network %s are this node's (file %s): %w", c.Name, limitFile, err)
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
