package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ErrForeign means that what has the name of a file is something else, or too long: no program of this project has
// written it.
var ErrForeign = errors.New("it is foreign")

// Read reads a regular file of at most most bytes. It follows no symbolic link and waits for nothing, such as the other
// end of a FIFO. Anything else under that name is ErrForeign.
func Read(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) { // a link, a socket
		return nil, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > most {
		return nil, fmt.Errorf("%w: %s is no regular file of at most %d bytes", ErrForeign, path, most)
	}
	b := make([]byte, st.Size(), st.Size()+1) // as os.ReadFile does: one read for a file that has not grown
	n, err := io.ReadFull(f, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // it has shrunk meanwhile
		err = nil
	}
	return b[:n], err
}
