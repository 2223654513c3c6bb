package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/fabric-cni/fabric-cni/internal/failpoint"
)

// block is the smallest unit in which a file system gives space to a file.
const block = 4096

// maxTriesKept is how many tries an entry has room for.
const maxTriesKept = 16

// padded makes room for tries behind an entry, in the last block that is written now. JSON ignores blanks at its end.
func padded(b []byte) []byte {
	if used := len(b) % block; used == 0 || used+maxTriesKept > block {
		return append(b, bytes.Repeat([]byte(" "), 2*maxTriesKept)...)
	}
	return b
}

// tries are the line breaks at the end of an entry's file.
func tries(b []byte) int { return len(b) - len(bytes.TrimRight(b, "\n")) }

// Try notes on disk that a DEL could not end, and counts it in the entry. It needs no space: where nothing else can be
// written, because /run is full, a DEL must still come to its end some time. A line break is added to the file in
// place, into the block that Save has left room in.
func (s Store) Try(e *Entry) error {
	e.Tries++
	if err := failpoint.Hit("journal/try"); err != nil {
		return err
	}
	f, err := os.OpenFile(s.entryPath(e.Key), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString("\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("count a try in journal entry %s: %w", e.Key, err)
	}
	return nil
}
