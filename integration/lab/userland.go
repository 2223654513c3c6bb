package lab

import (
	"fmt"
	"os"
	"path/filepath"
)

// userLandVersion is the file that names what the user land was made of, each package with its SHA-256. It is written
// last.
const userLandVersion = "version"

func userLandDir() string { return filepath.Join(Cache(), "userland") }

// UserLand returns the directory with Debian's programs that do RDMA (perftest, ibverbs-utils, rdmacm-utils, Open MPI,
// UCX, libfabric) and their libraries: root/usr, root/etc. A guest sees it under the same path; guest.UserLand lays it
// over the guest's /usr. It is an error if it is not prepared.
func UserLand() (string, error) {
	dir := userLandDir()
	if _, err := os.Stat(filepath.Join(dir, userLandVersion)); err != nil {
		return "", fmt.Errorf("find the user land for traffic (scripts/lab-setup.sh traffic): %w", err)
	}
	return dir, nil
}

// prepared returns an error if something is not there that the suite's guests need.
func (s Suite) prepared() error {
	if !s.UserLand {
		return nil
	}
	if _, err := UserLand(); err != nil {
		return fmt.Errorf("suite %s: %w", s.Name, err)
	}
	return nil
}

// userLand returns $FABRIC_USERLAND of the suite's guests, "" if it has none.
func (s Suite) userLand() string {
	if !s.UserLand {
		return ""
	}
	return userLandDir()
}
