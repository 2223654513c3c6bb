package ipam

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

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
