package netconf

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Longest names, in bytes.
const (
	maxID      = 200 // container id, network name: a journal file is named after id and interface, NAME_MAX is 255
	maxIfName  = 15  // IFNAMSIZ - 1
	maxAltName = 127 // ALTIFNAMSIZ - 1
	maxRDMA    = 63  // IB_DEVICE_NAME_MAX - 1
	maxPath    = 4095
)

const (
	wantID     = "letters, digits, '_', '.' and '-', a letter or digit first, at most 200"
	wantIfName = "1 to 15 characters without '/', ':', '%', spaces and control characters, not \".\" or \"..\""
)

// PodInterfaceNames says in words what IsPodInterface wants.
const PodInterfaceNames = wantIfName + ", \"lo\", \"all\" or \"default\""

// IsPodInterface reports whether an interface in a pod may have this name: CNI_IFNAME of an ADD.
func IsPodInterface(name string) bool { return isIfName(name) && !isKernels(name) }

// isKernels tells the loopback's name, and those that are directories of their own below /proc/sys/net/ipv[46]/conf:
// the kernel refuses these (sysctl_dev_name_is_allowed, net/ipv4/devinet.c) after the device has moved.
func isKernels(name string) bool { return name == "all" || name == "default" || name == "lo" }

// checkEnv validates what the runtime says about the call. DEL is as strict here as ADD: these strings become part of
// paths, and nothing was ever added under a name that is refused.
func checkEnv(env Env) *Error {
	bad := func(name, v, allowed string) *Error {
		e := &Error{Code: CodeEnvironment, Field: name, Allowed: allowed}
		if v != "" {
			e.Value = quoted(v)
		}
		return e
	}
	switch env.Command {
	case "GC", "STATUS": // about no container
		return nil
	case "ADD", "DEL", "CHECK":
	default:
		return bad("CNI_COMMAND", env.Command, "ADD, DEL, CHECK, GC or STATUS")
	}
	if !isID(env.ContainerID) {
		return bad("CNI_CONTAINERID", env.ContainerID, wantID)
	}
	if !isIfName(env.IfName) {
		return bad("CNI_IFNAME", env.IfName, wantIfName)
	}
	if n := env.IfName; env.Command != "DEL" && isKernels(n) {
		return bad("CNI_IFNAME", n, "a name other than \"lo\", \"all\" and \"default\"")
	}
	if env.Netns == "" && env.Command == "DEL" {
		return nil // the namespace is gone
	}
	if !strings.HasPrefix(env.Netns, "/") || len(env.Netns) > maxPath || hasControl(env.Netns) {
		return bad("CNI_NETNS", env.Netns, "the absolute path of a network namespace")
	}
	return nil
}

// cniArgs are the parts of CNI_ARGS that are read here. The rest (IgnoreUnknown, ...) is for others.
type cniArgs struct {
	mac net.HardwareAddr
	ips []netip.Prefix
	pod Pod
}

// parseArgs reads KEY=VALUE;KEY=VALUE.
func parseArgs(s string) (cniArgs, *Error) {
	var a cniArgs
	for pair := range strings.SplitSeq(s, ";") {
		key, v, ok := strings.Cut(pair, "=")
		if !ok && pair != "" {
			return a, &Error{
				Code:    CodeEnvironment,
				Field:   "CNI_ARGS",
				Value:   quoted(pair),
				Allowed: "KEY=VALUE pairs separated by ';'",
			}
		}
		switch key {
		case "K8S_POD_UID":
			if a.pod.UID != "" && a.pod.UID != v { // whose claims are meant?
				return a, &Error{
					Code: CodeEnvironment, Field: "CNI_ARGS K8S_POD_UID", Value: quoted(v), Problem: "is a second one",
				}
			}
			a.pod.UID = v
		case "K8S_POD_NAMESPACE":
			a.pod.Namespace = v
		case "K8S_POD_NAME":
			a.pod.Name = v
		case "MAC":
			if a.mac, ok = parseMAC(v); !ok {
				return a, &Error{Code: CodeEnvironment, Field: "CNI_ARGS MAC", Value: quoted(v), Allowed: wantMAC}
			}
		case "IP":
			if e := TooLong("CNI_ARGS IP", strings.Count(v, ",")+1); e != nil {
				e.Code = CodeEnvironment
				return a, e
			}
			for ip := range strings.SplitSeq(v, ",") {
				prefix, ok := parseIP(ip)
				if !ok {
					return a, &Error{Code: CodeEnvironment, Field: "CNI_ARGS IP", Value: quoted(v), Allowed: wantIP}
				}
				a.ips = append(a.ips, prefix)
			}
		}
	}
	return a, nil
}

// isID tells a container id or network name of the CNI specification that is safe as a path component.
func isID(s string) bool {
	for i := range len(s) {
		c := s[i]
		if alnum := '0' <= c && c <= '9' ||
			'a' <= c|0x20 && c|0x20 <= 'z'; !alnum &&
			(i == 0 || c != '_' && c != '.' && c != '-') {
			return false
		}
	}
	return s != "" && len(s) <= maxID
}

// isIfName tells a name that the kernel gives to a netdev (dev_valid_name, net/core/dev.c) and takes literally: a '%'
// would make it a template.
func isIfName(s string) bool {
	return len(s) <= maxIfName && isName(s) && !strings.Contains(s, "%")
}

// isName tells a name of a netdev or an altname.
func isName(s string) bool {
	return s != "" && len(s) <= maxAltName && s != "." && s != ".." && !strings.ContainsFunc(s, func(r rune) bool {
		return r == '/' || r == ':' || r == ' ' || r == utf8.RuneError || !strconv.IsPrint(r)
	})
}

// isRDMAName tells a name that an RDMA device can have.
func isRDMAName(s string) bool {
	return len(s) <= maxRDMA && isName(s) && !strings.Contains(s, "%")
}

func hasControl(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] == 0x7f {
			return true
		}
	}
	return false
}
