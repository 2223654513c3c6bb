package ethtool

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Of include/uapi/linux/ethtool.h: the set of strings that names statistics, and how many there may be: mlx5 has about
// two thousand with all its queues.
const (
	ssStats     = 1 // ETH_SS_STATS
	maxStats    = 1 << 14
	infoHeader  = 16 // struct ethtool_sset_info
	statsHeader = 8  // struct ethtool_stats
)

// Stats returns the statistics of the netdev with this name, as ethtool -S prints them; nil when it has none.
func Stats(name string) (map[string]uint64, error) {
	fd, err := socket()
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	info := make([]byte, infoHeader+4)
	binary.NativeEndian.PutUint32(info, unix.ETHTOOL_GSSET_INFO)
	binary.NativeEndian.PutUint64(info[8:], 1<<ssStats)
	if err := call(fd, name, info); errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("count the statistics of %s: %w", name, err)
	}
	n := int(binary.NativeEndian.Uint32(info[infoHeader:]))
	if binary.NativeEndian.Uint64(info[8:]) == 0 || n == 0 || n > maxStats {
		return nil, nil
	}
	names := strings(fd, name, ssStats, n)
	b := make([]byte, statsHeader+n*8)
	binary.NativeEndian.PutUint32(b, unix.ETHTOOL_GSTATS)
	binary.NativeEndian.PutUint32(b[4:], uint32(n))
	if err := call(fd, name, b); errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the statistics of %s: %w", name, err)
	}
	out := map[string]uint64{}
	for i := range min(n, int(binary.NativeEndian.Uint32(b[4:])), len(names)) {
		out[names[i]] = binary.NativeEndian.Uint64(b[statsHeader+8*i:])
	}
	return out, nil
}
