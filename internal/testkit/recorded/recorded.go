// Package recorded holds journal entries that released binaries have written, as they were found in
// /run/fabric-cni/attachments after ADD: a newer binary has to read and return them. Each directory is named by the
// commit of the binary that wrote its entries, on the simulated nodes of integration/lab.
package recorded

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

//go:embed eaf08fa
var files embed.FS

// Entries returns all entries by their name: the mode of the attachment.
func Entries() (map[string][]byte, error) {
	const dir = "eaf08fa"
	list, err := files.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list recorded entries: %w", err)
	}
	out := map[string][]byte{}
	for _, f := range list {
		b, err := files.ReadFile(path.Join(dir, f.Name()))
		if err != nil {
			return nil, fmt.Errorf("read recorded entry: %w", err)
		}
		out[strings.TrimSuffix(f.Name(), ".json")] = b
	}
	return out, nil
}

// ids are what differs from one attachment, boot or machine to the next. Everything else in an entry is what the binary
// wrote about the device.
var ids = [][]string{
	{"containerID"}, {"ifName"}, {"network"}, {"created"}, {"bootID"}, {"netnsPath"}, {"netns"},
	{"hca", "index"},
	{"netdev", "index"}, {"netdev", "hwAddr"}, {"netdev", "permAddr"}, {"netdev", "parent"},
	{"netdev", "txQueue"}, // of IPoIB it is the kernel's default: 256 up to 6.12, 1000 in 7.3
	{"child", "group"}, {"child", "hwAddr"},
	{"vf", "hca", "index"},
	{"conf"}, {"path"},
}

// Adopt returns a recorded entry as if it had been written for a live attachment: with the ids of its entry.
func Adopt(recorded, live []byte) ([]byte, error) {
	var old, now map[string]any
	if err := json.Unmarshal(recorded, &old); err != nil {
		return nil, fmt.Errorf("decode recorded entry: %w", err)
	}
	if err := json.Unmarshal(live, &now); err != nil {
		return nil, fmt.Errorf("decode live entry: %w", err)
	}
	for _, id := range ids {
		replace(old, now, id)
	}
	lifetimes(old, now)
	return json.Marshal(old)
}

// lifetimes copies the lifetime of temporary IPv6 addresses: the kernel's default is 7 days up to 6.12, 2 days in 7.3.
func lifetimes(old, now map[string]any) {
	const tempValidLifetime = 11 // DEVCONF_TEMP_VALID_LFT (include/uapi/linux/ipv6.h)
	conf := func(entry map[string]any) []any {
		n, _ := entry["netdev"].(map[string]any)
		list, _ := n["ipv6Conf"].([]any)
		return list
	}
	if o, n := conf(old), conf(now); len(o) > tempValidLifetime && len(n) > tempValidLifetime {
		o[tempValidLifetime] = n[tempValidLifetime]
	}
}

// replace copies one value. One that the recorded entry does not have is not added.
func replace(old, now map[string]any, at []string) {
	for _, k := range at[:len(at)-1] {
		var inOld, inNow bool
		old, inOld = old[k].(map[string]any)
		now, inNow = now[k].(map[string]any)
		if !inOld || !inNow {
			return
		}
	}
	last := at[len(at)-1]
	if _, ok := old[last]; !ok {
		return
	}
	if v, ok := now[last]; ok {
		old[last] = v
	}
}
