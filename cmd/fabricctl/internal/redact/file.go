package redact

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// Configs are the files and directories of other programs of which a bundle has what File leaves, from the root, beside
// those that are in a recording.
var Configs = []string{
	"etc/containerd/config.toml",
	"etc/containerd/conf.d",
	"var/lib/rancher/k3s/agent/etc/containerd/config.toml",
	"var/lib/rancher/rke2/agent/etc/containerd/config.toml",
	"var/lib/kubelet/config.yaml",
	"etc/cni/net.d",
}

// plainValue is a value that is kept: short words, numbers, paths, and lists of them.
var plainValue = regexp.MustCompile(`^[\[\]"' \w./,:+-]{0,200}$`)

// File reduces a file, by its path from the root, to what doctor and a maintainer need. What is below sys, and the
// recording's own files, are facts and keep them all, as Text does. Of a file that is not known nothing is kept.
func File(name string, b []byte) []byte {
	switch dir := path.Dir(name); {
	case strings.HasPrefix(name, "sys/") && path.Base(name) == "config":
		return b // registers of a PCI device
	case strings.HasPrefix(name, "sys/") && path.Base(name) == "vpd":
		return node.OnlyUUID(b) // has serial numbers
	case strings.HasPrefix(name, "sys/"), name == "live.json", name == "counters.json":
		return Text(b)
	case name == "proc/driver/nvidia/version", name == "proc/uptime":
		return Text(b)
	case name == "proc/cmdline":
		return Cmdline(b)
	case path.Base(dir) == "modprobe.d":
		return lines(b, modprobe)
	case strings.Contains(name, "systemd/system/"):
		return lines(continued.ReplaceAll(b, nil), unit)
	case strings.Contains(name, "/containerd/"):
		return toml(b)
	case strings.HasPrefix(name, "var/lib/kubelet/"):
		return lines(b, kubelet)
	case dir == "etc/cni/net.d":
		return CNI(b)
	}
	return []byte(Removed + "\n")
}

// lines keeps what keep makes of each line, and says how many are left out. What it makes must be a line that it would
// keep as it is.
func lines(b []byte, keep func(string) (string, bool)) []byte {
	var out bytes.Buffer
	left := 0
	for line := range strings.Lines(strings.ToValidUTF8(string(b), "?")) {
		line = strings.TrimRight(line, "\r\n")
		kept, ok := keep(line)
		switch {
		case ok:
			out.WriteString(kept + "\n")
		case leftOut.MatchString(line): // by an earlier run
			out.WriteString(line + "\n")
		case strings.TrimSpace(line) != "":
			left++
		}
	}
	if left > 0 {
		fmt.Fprintf(&out, "# %d lines left out\n", left)
	}
	return plain(out.Bytes())
}

var leftOut = regexp.MustCompile(`^# \d+ lines left out$`)

var (
	rdmaModule = regexp.MustCompile(`^(?:ib_\w+|rdma_\w+|iw_\w+|mlx\w+|irdma|ice|i40e|bnxt_\w+|efa|qed\w*|hns\w*|` +
		`erdma|rxe|siw|nvidia\w*|nv_peer_mem|amdgpu|vfio\w*|bonding|nouveau|mlxfw)$`)
	cmdlineKey = regexp.MustCompile(`^(?:BOOT_IMAGE|ro|rw|quiet|iommu\S*|\w+_iommu|pci|pcie_\w+|hugepages\w*|` +
		`default_hugepagesz|isolcpus|nohz\w*|rcu_nocbs|numa\w*|mitigations|net\.ifnames|biosdevname|` +
		`systemd\.unified_cgroup_hierarchy|(?:modprobe|module)[._]blacklist|` +
		`(?:ib_\w+|rdma_\w+|mlx\w+|irdma|ice|bnxt_\w+|nvidia\w*|vfio\w*)\.\w+)$`)
	unitKey = regexp.MustCompile(`^(?:Limit[A-Z]+|Type|Restart|RestartSec|Delegate|KillMode|TasksMax|OOMScoreAdjust|` +
		`After|Before|Requires|Wants|PartOf|WantedBy|Slice|CPUAffinity|NUMAPolicy|NUMAMask|PrivateMounts|MountFlags)$`)
	kubeletLine = regexp.MustCompile(`^(?:apiVersion|kind|topologyManager\w+|cpuManager\w+|memoryManagerPolicy|` +
		`maxPods|cgroupDriver|containerRuntimeEndpoint|failSwapOn|podPidsLimit|reservedSystemCPUs|featureGates):`)
	tomlHeader = regexp.MustCompile(`^\[(?:plugins|debug|cgroup|metrics|plugins\.["'][a-z0-9.]{1,60}["']` +
		`(?:\.(?:cni|containerd|runtimes|runc|nvidia|options|[a-z]{1,12}))*)\]$`)
	tomlKey = regexp.MustCompile(`^(?:version|root|state|bin_dirs?|conf_dir|conf_template|max_conf_num|ip_pref|` +
		`setup_serially|use_internal_loopback|SystemdCgroup|default_runtime_name|runtime_type|enable_cdi|` +
		`cdi_spec_dirs|netns_mounts_under_state_dir|privileged_without_host_devices|` +
		`device_ownership_from_security_context|` +
		`disabled_plugins|imports|sandbox_image)$`)
	continued = regexp.MustCompile(`\\[ \t\r]*\n`)
)

// assigned splits name=value, and removes the value if the name is not known or the value is not a plain one.
func assigned(s string, known *regexp.Regexp) (name, whole string) {
	name, v, has := strings.Cut(s, "=")
	name = strings.TrimSpace(name)
	switch {
	case !known.MatchString(name) && !plainName.MatchString(name):
		return name, Removed
	case !has && known.MatchString(name):
		return name, name
	case known.MatchString(name) && plainValue.MatchString(v):
		return name, strings.TrimRight(s, " \t")
	case !has:
		return name, Removed
	}
	return name, name + "=" + Removed
}

// plainName is a name that is shown when its value is not.
var plainName = regexp.MustCompile(`^[A-Za-z][A-Za-z_.-]{0,40}$`)

// Cmdline reduces the kernel's command line to the parameters that matter for devices. Of others the name stays.
func Cmdline(b []byte) []byte {
	words := strings.Fields(strings.ToValidUTF8(string(b), "?"))
	for i, w := range words {
		_, words[i] = assigned(w, cmdlineKey)
	}
	return append([]byte(strings.Join(words, " ")), '\n')
}

// modprobe keeps what is about modules for RDMA, GPUs and their network interfaces.
func modprobe(line string) (string, bool) {
	f := strings.Fields(line)
	if len(f) < 2 || f[0] != "options" && f[0] != "blacklist" || !rdmaModule.MatchString(f[1]) {
		return "", false
	}
	if f[0] == "blacklist" {
		return f[0] + " " + f[1], true
	}
	for i, o := range f[2:] {
		_, f[i+2] = assigned(o, moduleOption)
	}
	return strings.Join(f, " "), true
}

var moduleOption = regexp.MustCompile(`^[a-zA-Z]\w{0,40}$`)

// unit keeps sections and settings of a systemd unit; of others, such as Environment, the name.
func unit(line string) (string, bool) {
	line = strings.TrimSpace(line)
	switch {
	case line == "[Unit]", line == "[Service]", line == "[Install]":
		return line, true
	case strings.HasPrefix(line, "#"), strings.HasPrefix(line, ";"), !strings.Contains(line, "="):
		return "", false
	}
	_, whole := assigned(line, unitKey)
	return whole, whole != Removed
}

// kubelet keeps the settings of kubelet that decide about devices and CPUs.
func kubelet(line string) (string, bool) {
	return line, kubeletLine.MatchString(line) && plainValue.MatchString(line)
}

// toml keeps the tables and settings of containerd that are about CNI, CDI and cgroups.
func toml(b []byte) []byte {
	within := "" // the quotes of a text of several lines
	return lines(b, func(line string) (string, bool) {
		line = strings.TrimSpace(line)
		if within != "" {
			if strings.Contains(line, within) {
				within = ""
			}
			return "", false
		}
		for _, q := range []string{`"""`, `'''`} {
			if strings.Count(line, q)%2 == 1 {
				within = q
				return "", false
			}
		}
		switch name, v, _ := strings.Cut(line, "="); {
		case strings.HasPrefix(line, "["):
			if tomlHeader.MatchString(line) {
				return line, true
			}
			return "[" + Removed + "]", true
		case tomlKey.MatchString(strings.TrimSpace(name)):
			if v = strings.TrimSpace(v); plainValue.MatchString(v) {
				return strings.TrimSpace(name) + " = " + v, true
			}
			return strings.TrimSpace(name) + " = " + Removed, true
		}
		return "", false
	})
}

// Log keeps the lines of the kernel's log that are about devices, network interfaces and memory.
func Log(b []byte) []byte {
	return lines(b, func(line string) (string, bool) {
		if before, cmdline, ok := strings.Cut(line, "ommand line: "); ok {
			return before + "ommand line: " + strings.TrimSpace(string(Cmdline([]byte(cmdline)))), true
		}
		return line, logLine.MatchString(line)
	})
}

// logLine is a line of the kernel itself: what programs write there begins with their name and number.
var logLine = regexp.MustCompile(`(?i)^(?:\[[^\]]*\] *)?(?:Linux` +
	` version|mlx\w*|ib_?\w*|infiniband|rdma\w*|iw_\w+|irdma|` +
	`ice|i40e|igb\w*|bnxt_\w+|efa|fakeib|rxe\w*|siw\w*|nvidia\S*|NVRM|nv_peer_mem|amdgpu|pci\w*|vfio\S*|DMAR\S*|` +
	`AMD-Vi|iommu|bond\w*|8021q|IPv6: ADDRCONF\S*|(?:eth|en|ib|net)\w*|netns\S*|Memory cgroup|Out of memory|oom\S*|` +
	`EDAC|WARNING|BUG|Call Trace|RIP|INFO: task|watchdog|Kernel panic|ACPI: PCI|acpi PNP\S*)[: ].{0,600}$`)
