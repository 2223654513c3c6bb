package netconf

import "strings"

// kind says who reads a top-level field, hence how strictly its spelling is taken.
type kind uint8

const (
	ours     kind = iota // only this plugin: the exact spelling
	peer                 // a peer reads it too: any case, because encoding/json gave it to the peer in any case
	envelope             // of the CNI specification, or added by a runtime: any case
	ignored              // of a peer, without a meaning here: any case, listed in Config.Ignored
)

// field is a top-level field.
type field struct {
	name string
	kind kind
}

// fields are the top-level fields, the order is the one in which suggestions are preferred.
var fields = append(otherFields, vfKeys()...)

// otherFields are those that are not in the table of a VF's settings.
var otherFields = []field{
	{"mode", ours},
	{"rdma", ours},
	{"rdmaName", ours},
	{"rdmaDevice", ours},
	{"allPorts", ours},
	{"tos", ours},
	{"roceMode", ours},
	{"trafficClass", ours},
	{"ipoibMode", ours},
	{"umcast", ours},
	{"allowDown", ours},
	{"routing", ours},
	{"detectConflicts", ours},
	{"hostAddresses", ours},
	{"keepLeases", ours},
	{"ignoreRADefaultRoute", ours},
	{"allocation", ours},
	{"railOrder", ours},

	{"deviceID", peer},
	{"pciBusID", peer},
	{"device", peer},
	{"hwaddr", peer},
	{"kernelpath", peer},
	{"master", peer},
	{"guid", peer},
	{"pkey", peer},
	{"mtu", peer},
	{"rdmaIsolation", peer},
	{"ibKubernetesEnabled", peer},
	{"vfioPciMode", peer},
	{"logLevel", peer},
	{"logFile", peer},

	{"cniVersion", envelope},
	{"name", envelope},
	{"type", envelope},
	{"ipam", envelope},
	{"dns", envelope},
	{"args", envelope},
	{"runtimeConfig", envelope},
	{"capabilities", envelope},
	{"prevResult", envelope},
	{"disableCheck", envelope},
	{"disableGC", envelope},
	{"loadOnlyInlinedPlugins", envelope},
	{"resourceName", envelope},

	{"publishPfGuid", ignored},
	{"kubeconfig", ignored},
	{"ipMasq", ignored},
	{"VFID", ignored},
	{"DPDKMode", ignored},
	{"ContIFNames", ignored},
	{"HostIFNames", ignored},
	{"HostIFGUID", ignored},
	{"OrigVfState", ignored},
	{"RdmaNetState", ignored},
}

// Fields lists the top-level fields that a configuration may have, and those within "routing".
func Fields() (names []string) {
	for _, f := range fields {
		names = append(names, f.name)
	}
	return append(names, routingFields...)
}

var routingFields = []string{"sourceBased"}

// lookup returns our spelling of a top-level field, and false for an unknown one.
func lookup(written string) (string, kind, bool) {
	for _, f := range fields {
		if f.name == written || f.kind != ours && strings.EqualFold(f.name, written) {
			return f.name, f.kind, true
		}
	}
	return written, envelope, isForeign(written)
}

// isForeign tells a key that can only be someone else's: with a namespace (cni.dev/valid-attachments, example.com:x),
// or marked as private or as a comment (_comment, $schema).
func isForeign(key string) bool {
	return strings.ContainsAny(key, "/.:") || strings.HasPrefix(key, "_") || strings.HasPrefix(key, "$")
}

// nearest returns the candidate that takes the fewest edits to reach from key. Case, underscores and dashes are free.
func nearest(key string, candidates []string) string {
	const longest = 64 // of a key that is compared: the cost is the product of the lengths
	key = plain(key[:min(len(key), longest)])
	best, fewest := "", int(^uint(0)>>1)
	for _, c := range candidates {
		if d := distance(key, plain(c)); d < fewest {
			best, fewest = c, d
		}
	}
	return best
}

// Similar returns the candidate that this word may be a misspelling of, and "" if none is near: a third of its letters
// may be wrong.
func Similar(word string, candidates []string) string {
	best := nearest(word, candidates)
	if word = plain(word); best == "" || distance(word[:min(len(word), 64)], plain(best)) > max(1, len(best)/3) {
		return ""
	}
	return best
}

func plain(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s))
}

// distance counts the insertions, deletions, replacements and swaps of neighbours between two strings.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// unknown is the error for a key that is not among the known ones.
func unknown(v value, known []string) *Error {
	return &Error{
		Code: CodeConfig, Field: shown([]byte(v.path)), Problem: "is unknown",
		Hint: `the nearest known field is "` + nearest(v.path[strings.LastIndexByte(v.path, '.')+1:], known) + `"`,
	}
}

// known lists the fields that a suggestion may name.
func known() []string {
	var names []string
	for _, f := range fields {
		if f.kind != ignored {
			names = append(names, f.name)
		}
	}
	return names
}
