package nccl

import (
	"path"
	"slices"
	"strings"
)

// List is the value of a variable that selects ports, as the library reads it that has the variable.
type List struct {
	Not     bool // the entries are what is not to be used
	All     bool // every port is used
	None    bool // none is
	Entries []Entry
}

// Entry is one entry of a list.
type Entry struct {
	Text    string // as it was written
	HCA     string // the device it names, if it names one exactly
	Pattern bool   // it may mean several devices
	matches func(hca string, port uint32) bool
}

// Matches reports whether the entry means a port.
func (e *Entry) Matches(hca string, port uint32) bool { return e.matches(hca, port) }

// Selects reports whether the library would use a port.
func (l *List) Selects(hca string, port uint32) bool {
	if l.All || l.None {
		return l.All
	}
	return slices.ContainsFunc(l.Entries, func(e Entry) bool { return e.matches(hca, port) }) != l.Not
}

// The most entries that NCCL reads, and the longest name.
const (
	maxEntries = 32
	maxName    = 63
)

// ParseNCCL reads NCCL_IB_HCA and NCCL_SOCKET_IFNAME (src/misc/utils.cc, parseStringList and matchIfList): ^ for what
// is not to be used, then = for exact names, then entries name or name:port with commas between them. Without = a name
// is the beginning of one. What is behind a colon is a number as atoi reads it, and -1 means any port.
func ParseNCCL(value string) List {
	rest, not := strings.CutPrefix(value, "^")
	rest, exact := strings.CutPrefix(rest, "=")
	l := List{Not: not}
	for text := range strings.SplitSeq(rest, ",") {
		name, port, hasPort := strings.Cut(text, ":")
		if name == "" || len(l.Entries) == maxEntries {
			continue
		}
		name = name[:min(len(name), maxName)]
		want := int64(-1)
		if hasPort {
			want = atoi(port)
		}
		l.Entries = append(l.Entries, Entry{text, name, !exact, func(hca string, p uint32) bool {
			named := hca == name || !exact && strings.HasPrefix(hca, name)
			return named && (want == -1 || want == int64(p))
		}})
	}
	l.All, l.None = len(l.Entries) == 0 && !not, len(l.Entries) == 0 && not
	return l
}

// atoi is the C library's: the number that a text begins with, or 0.
func atoi(s string) (n int64) {
	s = strings.TrimLeft(s, " \t\n\v\f\r")
	rest, negative := strings.CutPrefix(s, "-")
	if !negative {
		rest = strings.TrimPrefix(s, "+")
	}
	for _, c := range []byte(rest) {
		if c < '0' || c > '9' || n > 1<<31 {
			break
		}
		n = n*10 + int64(c-'0')
	}
	if negative {
		return -n
	}
	return n
}

// ParseUCX reads UCX_NET_DEVICES (ucs_config_sscanf_allow_list, ucs_config_names_search): all, or ^ for what is not to
// be used, then patterns of fnmatch for whole names of devices, to which the port belongs: mlx5_0:1.
func ParseUCX(value string) List {
	rest, not := strings.CutPrefix(value, "^")
	l := List{Not: not}
	for text := range strings.SplitSeq(rest, ",") {
		if text == "" {
			continue
		}
		pattern := strings.ReplaceAll(text, "[!", "[^")
		hca, _, _ := strings.Cut(text, ":")
		matches := func(hca string, p uint32) bool {
			ok, err := path.Match(pattern, portName(hca, p))
			return err == nil && ok
		}
		l.Entries = append(l.Entries, Entry{text, hca, strings.ContainsAny(text, "*?["), matches})
	}
	l.All = !not && len(l.Entries) == 1 && l.Entries[0].Text == "all"
	return l
}

// ParseNVSHMEM reads NVSHMEM_HCA_LIST (nvshmemt_parse_hca_list): ^ for what is not to be used, then entries name or
// name:port, whose names are exact.
func ParseNVSHMEM(value string) List {
	rest, not := strings.CutPrefix(value, "^")
	l := ParseNCCL("=" + rest)
	l.Not, l.All = not, len(l.Entries) == 0
	return l
}
