package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// IPAMDir is the directory in the state directory in which host-local keeps the addresses of the node's own ranges.
const IPAMDir = "ipam"

// PublishedDir is the directory in the state directory in which the agent notes the configurations that may give
// addresses of IPAMDir: those that it has written for this node, each in the file that Published names.
const PublishedDir = "networks"

// PublishedPrefix marks the agent's files. Multus looks for a network by the name in the file, not by the file's.
const PublishedPrefix = "fabric-agent-"

// Published is the name of the file with the configuration of a network, in PublishedDir as in Multus's directory.
func Published(network string) string { return PublishedPrefix + network + ".conf" }

// maxPublished bounds it, in bytes.
const maxPublished = 1 << 20

// Defaults of what an IPAM plugin may work with. All of them are root's alone.
const (
	networksDir = "/var/lib/cni/networks"
	dhcpSocket  = "/run/cni/dhcp.sock"
	nvSocket    = "unix:///var/lib/cni/nv-ipam/daemon.sock"
)

// confDirs have files that an IPAM plugin may read. /etc/resolv.conf often is a link to one of the others.
var confDirs = []string{"/etc", "/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf"}

// ipamPaths are the fields of a network configuration with which the IPAM plugins that are known open files. The types
// are those of the plugins, so that the decoder treats a key that is there twice, or in capitals, as theirs does:
// host-local and dhcp v1.9.1, whereabouts v0.8.0 (pkg/types) and its releases with etcd, nv-ipam (pkg/cni/types).
type ipamPaths struct {
	Name string `json:"name"`
	IPAM struct {
		DataDir          string `json:"dataDir"`
		ResolvConf       string `json:"resolvConf"`
		DaemonSocketPath string `json:"daemonSocketPath"`
		Kubernetes       struct {
			Kubeconfig string `json:"kubeconfig"`
		} `json:"kubernetes"`
		ConfigurationPath string `json:"configuration_path"`
		EtcdKeyFile       string `json:"etcd_key_file"`
		EtcdCertFile      string `json:"etcd_cert_file"`
		EtcdCACertFile    string `json:"etcd_ca_cert_file"`
		LogFile           string `json:"log_file"`
		DaemonSocket      string `json:"daemonSocket"`
		ConfDir           string `json:"confDir"`
		NVLogFile         string `json:"logFile"`
	} `json:"ipam"`
}

// IPAMCall is a call of an IPAM plugin.
type IPAMCall struct {
	Type     string // of the plugin
	Command  string // CNI_COMMAND
	Conf     []byte // the network configuration
	Asked    []byte // the same before the plugin has put the device of a claim into it; nil: Conf
	Executed bool   // by a plugin that is not built in
}

// IPAM returns an error that matches ErrRefused if the node's owner does not let a configuration run its IPAM plugin,
// or name a file that this plugin would open as root. Of plugins that are not known, the name is all that is looked at.
func (p *Policy) IPAM(c IPAMCall) error {
	if len(p.IPAMTypes) > 0 && !slices.Contains(p.IPAMTypes, c.Type) {
		return fmt.Errorf("%w: ipam.type %q is not among %q (ipamTypes)", ErrRefused, c.Type, p.IPAMTypes)
	}
	var n ipamPaths
	_ = json.Unmarshal(c.Conf, &n) // a field of the wrong type is left out, and the plugin refuses it
	s := &n.IPAM
	switch c.Type {
	case "host-local":
		return cmp.Or(p.dataDir(c, n.Name, s.DataDir), p.confFile("resolvConf", s.ResolvConf))
	case "dhcp":
		return socket("daemonSocketPath", s.DaemonSocketPath, dhcpSocket)
	case "whereabouts":
		return cmp.Or(
			p.confFile("kubernetes.kubeconfig", s.Kubernetes.Kubeconfig),
			p.confFile("configuration_path", s.ConfigurationPath),
			p.confFile("etcd_key_file", s.EtcdKeyFile), p.confFile("etcd_cert_file", s.EtcdCertFile),
			p.confFile("etcd_ca_cert_file", s.EtcdCACertFile), p.ipamLog("log_file", s.LogFile))
	case "nv-ipam":
		return cmp.Or(p.confFile("confDir", s.ConfDir), p.ipamLog("logFile", s.NVLogFile),
			socket("daemonSocket", s.DaemonSocket, nvSocket))
	}
	return nil
}

// dataDir refuses a directory that is not one of the node owner's for addresses. It has to be one of these itself: a
// directory inside of one may be that of another network, or take the name of one of its files.
func (p *Policy) dataDir(c IPAMCall, network, dir string) error {
	if dir == "" {
		return nil
	}
	if p.stateDir != "" && filepath.Clean(dir) == filepath.Join(p.stateDir, IPAMDir) {
		if c.Executed {
			return fmt.Errorf("%w: ipam.dataDir %q is for addresses.nodeRanges, and only the built-in host-local "+
				"works there", ErrRefused, dir)
		}
		if c.Command != "ADD" { // others see what the attachment itself has, and create nothing
			return nil
		}
		return p.published(network, dir, c)
	}
	dirs := append([]string{networksDir}, p.IPAMDirs...)
	if slices.ContainsFunc(dirs, func(d string) bool { return path.Clean(d) == path.Clean(dir) }) {
		return nil
	}
	return fmt.Errorf("%w: ipam.dataDir %q is not one of %q (ipamDirs)", ErrRefused, dir, dirs)
}

// published refuses a directory to a configuration that is not the agent's, or that adds ranges.
func (p *Policy) published(network, dir string, c IPAMCall) error {
	refuse := func(why error) error {
		return fmt.Errorf("%w: ipam.dataDir %q is for the addresses.nodeRanges of Fabrics, and %w", ErrRefused, dir,
			why)
	}
	asked := c.Asked
	if asked == nil {
		asked = c.Conf
	}
	var got, used map[string]any
	if err := errors.Join(json.Unmarshal(asked, &got), json.Unmarshal(c.Conf, &used)); err != nil {
		return refuse(err)
	}
	if rc, ok := got["runtimeConfig"].(map[string]any); ok && rc["ipRanges"] != nil {
		return refuse(errors.New("runtimeConfig.ipRanges may not add to them"))
	}
	if got != nil {
		got["ipam"] = used["ipam"] // a claim has settings of the device, and none of addresses
	}
	if err := p.isPublished(network, got); err != nil {
		return refuse(err)
	}
	return nil
}

// Published refuses a configuration that is not the one that the agent has written for this network and node, except
// for what a runtime adds. What it says of itself proves nothing.
func (p *Policy) Published(network string, conf []byte) error {
	var got map[string]any
	err := json.Unmarshal(conf, &got)
	if err == nil {
		err = p.isPublished(network, got)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil
}

func (p *Policy) isPublished(network string, got map[string]any) error {
	if network == "" || path.Base(network) != network {
		return fmt.Errorf("name %q is that of no Fabric", network)
	}
	b, err := ReadPublished(p.stateDir, network)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("fabric-agent has published no configuration of name %q for this node now", network)
	}
	var want map[string]any
	if err == nil {
		err = json.Unmarshal(b, &want)
	}
	if err != nil {
		return fmt.Errorf("the configuration of network %q that fabric-agent has published can't be read: %w", network,
			err)
	}
	for _, m := range []map[string]any{want, got} {
		for key := range m {
			if !ofRuntime(key) && !reflect.DeepEqual(want[key], got[key]) {
				return fmt.Errorf("%.64q differs from the configuration of name %q that fabric-agent has published "+
					"for this node: let the pod name the Fabric's own NetworkAttachmentDefinition, or try again if "+
					"the Fabric has just changed", key, network)
			}
		}
	}
	return nil
}

// ofRuntime says whether a key of a configuration is Multus's or the runtime's.
func ofRuntime(key string) bool {
	switch key {
	case "cniVersion", "capabilities", "runtimeConfig", "args", "prevResult", "deviceID", "pciBusID":
		return true
	}
	return strings.HasPrefix(key, "cni.dev/")
}

// ReadPublished reads the configuration of a network that the agent has published for this node; fs.ErrNotExist if it
// has published none.
func ReadPublished(stateDir, network string) ([]byte, error) {
	if path.Base(network) != network { // that of no Fabric
		return nil, fs.ErrNotExist
	}
	file := filepath.Join(stateDir, PublishedDir, Published(network))
	if st, err := os.Lstat(file); err != nil || !st.Mode().IsRegular() { // only root writes there
		return nil, cmp.Or(err, fs.ErrInvalid)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxPublished))
}

// confFile refuses a file that an IPAM plugin would read as root and that the owner has not put there. Links count: the
// file that they lead to has to be in such a directory too.
func (p *Policy) confFile(field, file string) error {
	if file == "" {
		return nil
	}
	dirs := append(slices.Clone(confDirs), p.IPAMConfDirs...)
	target, err := filepath.EvalSymlinks(file)
	if err != nil { // it is not there: the plugin reports that, or there is nothing to read
		target = file
	}
	for _, f := range []string{file, target} {
		if !below(f, dirs) {
			return fmt.Errorf("%w: ipam.%s %q is not below one of %q (ipamConfDirs)", ErrRefused, field, f, dirs)
		}
	}
	return nil
}

// below reports whether a file is below a directory of a list, by its name. A name with "..", which may lead elsewhere
// behind a link, is below none.
func below(file string, dirs []string) bool {
	return path.Clean(file) == file && slices.ContainsFunc(dirs, func(d string) bool {
		return strings.HasPrefix(file, strings.TrimSuffix(path.Clean(d), "/")+"/")
	})
}

func (p *Policy) ipamLog(field, file string) error {
	if file == "" {
		return nil
	}
	if _, err := p.LogFile(file); err != nil {
		return fmt.Errorf("ipam.%s: %w", field, err)
	}
	return nil
}

// socket refuses another socket than the plugin's own: who answers there decides about addresses.
func socket(field, file, own string) error {
	if file == "" || file == own {
		return nil
	}
	return fmt.Errorf("%w: ipam.%s %q: want %q", ErrRefused, field, file, own)
}
