package ipam

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// PATH is that of the plugin, and so of the IPAM plugins that it runs, where no container runtime gives it one.
const PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// DepthVariable marks the environment of an IPAM plugin. A program that finds it in its own was started by one,
// directly or through other programs: a main plugin that is called so is in a loop, which would go on until the node
// has no process to give. A copy of the plugin under another name, or a script that calls it, can only be told by this.
const DepthVariable = "FABRIC_CNI_DEPTH"

// errSelf is matched by the error for an IPAM plugin whose file is the running executable.
var errSelf = fmt.Errorf("%w: it would start itself", ErrNotStarted)

// isSelf tells the running executable by device and inode: under any name, through links of both kinds.
func isSelf(fi os.FileInfo) bool {
	self, err := os.Stat("/proc/self/exe")
	return err == nil && os.SameFile(fi, self)
}

// find looks for the plugin in the directories of path (CNI_PATH), first match wins. Empty elements are skipped: they
// would mean the working directory, or $PATH.
func find(typ, path string) (string, error) {
	if typ == "." || typ == ".." || strings.ContainsAny(typ, "/\x00") {
		return "", fmt.Errorf("%w: ipam.type %q: want the plain file name of a plugin", ErrNotStarted, typ)
	}
	var dirs, unusable []string
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			continue
		}
		dirs = append(dirs, dir)
		file := filepath.Join(dir, typ)
		if !filepath.IsAbs(file) {
			file = "./" + file // else os/exec looks up a bare name in $PATH
		}
		switch fi, err := os.Stat(file); {
		case err != nil:
			if !os.IsNotExist(err) {
				unusable = append(unusable, err.Error())
			}
		case !fi.Mode().IsRegular() || fi.Mode()&0o111 == 0:
			unusable = append(unusable, fmt.Sprintf("%s is no executable file (%s)", file, fi.Mode()))
		case isSelf(fi):
			return "", fmt.Errorf("%w: %q: %s is this plugin; let ipam.type name an IPAM plugin", errSelf, typ, file)
		default:
			return file, nil
		}
	}
	switch {
	case len(dirs) == 0:
		return "", fmt.Errorf(
			"%w: %q: CNI_PATH is empty; let the runtime set it to the directories of the CNI plugins",
			ErrNotStarted,
			typ,
		)
	case len(unusable) > 0:
		return "", fmt.Errorf("%w: %q: %s; install the plugin again", ErrNotStarted, typ, strings.Join(unusable, "; "))
	}
	return "", fmt.Errorf("%w: %q is in none of %s (CNI_PATH); install the plugin there, or correct ipam.type",
		ErrNotStarted, typ, strings.Join(dirs, ", "))
}
