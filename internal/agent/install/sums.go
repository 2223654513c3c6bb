package install

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// Sums remembers the checksums of files, so that a file is read again only after a change, by however many loops it is
// watched. It may be used concurrently.
type Sums struct {
	mu    sync.Mutex
	known map[string]fileSum
}

// fileSum is a checksum, and the state of the file in which it was taken.
type fileSum struct {
	info os.FileInfo
	sum  string
}

// settled is how long a file must not have changed before its checksum is remembered. A file may be written to twice
// within the resolution of its timestamps.
const settled = time.Second

// Of returns the SHA-256 of a file in hexadecimal. A nil *Sums reads the file each time.
func (s *Sums) Of(path string) (string, error) {
	if s == nil {
		return hash(path)
	}
	// The state is taken before the content, so that a change made meanwhile is seen the next time.
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read binary: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.known[path]; ok && unchanged(k.info, info) {
		return k.sum, nil
	}
	sum, err := hash(path)
	if err != nil {
		return "", err
	}
	delete(s.known, path)
	if time.Since(changed(info)) > settled {
		if s.known == nil {
			s.known = map[string]fileSum{}
		}
		s.known[path] = fileSum{info, sum}
	}
	return sum, nil
}

// unchanged returns whether the file was not written, not replaced, and has the same attributes.
func unchanged(before, now os.FileInfo) bool {
	return os.SameFile(before, now) && before.Size() == now.Size() && changed(before).Equal(changed(now))
}

// changed is the inode's change time: unlike the modification time it cannot be set.
func changed(info os.FileInfo) time.Time {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctim.Unix())
	}
	return info.ModTime()
}

func hash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read binary: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read binary %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
