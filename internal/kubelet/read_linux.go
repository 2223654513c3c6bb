package kubelet

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// read reads the file, and no link to it, if only root can have written it.
func read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != 0 || st.Mode&0o022 != 0:
		return nil, fmt.Errorf("%s: want a regular file that only root can write", path)
	case st.Size > maxFile:
		return nil, fmt.Errorf("%s: %d bytes, want at most %d", path, st.Size, maxFile)
	}
	b := make([]byte, st.Size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}
