package lab

import (
	"fmt"
	"os"
	"path/filepath"
)

// userLandVersion is the file that names what a user land was made of, each package with its SHA-256. It is written
// last.
const userLandVersion = "version"

// UserLand returns the directory with Debian's programs that do RDMA (perftest, ibverbs-utils, rdmacm-utils, Open MPI,
// UCX, libfabric) and their libraries: root/usr, root/etc. A guest sees it under the same path; guest.UserLand lays it
// over the guest's /usr. It is an error if it is not prepared.
func UserLand() (string, error) { return userLand("userland", "traffic") }

// Pyverbs returns the directory with rdma-core's own tests and the Python that runs them: root/usr, tests. It is an
// error if it is not prepared.
func Pyverbs() (string, error) { return userLand("pyverbs", "pyverbs") }

func userLand(name, setup string) (string, error) {
	dir := filepath.Join(Cache(), name)
	if _, err := os.Stat(filepath.Join(dir, userLandVersion)); err != nil {
		return "", fmt.Errorf("find what guests need for traffic (scripts/lab-setup.sh %s): %w", setup, err)
	}
	return dir, nil
}

// userLands returns what the suite's guests have in addition to this machine's user land: variables of their
// environment, each with a directory.
func (s Suite) userLands() (vars [][2]string, err error) {
	for _, land := range []struct {
		wanted bool
		name   string
		find   func() (string, error)
	}{
		{s.UserLand, "FABRIC_USERLAND", UserLand},
		{s.Pyverbs, "FABRIC_PYVERBS", Pyverbs},
	} {
		if !land.wanted {
			continue
		}
		dir, err := land.find()
		if err != nil {
			return nil, fmt.Errorf("suite %s: %w", s.Name, err)
		}
		vars = append(vars, [2]string{land.name, dir})
	}
	return vars, nil
}
