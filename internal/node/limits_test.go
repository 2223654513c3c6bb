package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// packed is an archive of these headers; a file has zeros. The archive may end before its last file does.
func packed(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	zip := &members{t: t, known: map[string][]byte{}}
	out := tar.NewWriter(zip)
	for _, h := range headers {
		h.Format = tar.FormatPAX
		if err := out.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size <= maxRecord && h.Typeflag == tar.TypeReg {
			if _, err := out.Write(make([]byte, h.Size)); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = out.Flush()
	zip.flush(nil)
	return zip.packed.Bytes()
}

// members compresses each chunk as a member of its own (RFC 1952, section 2.2), and one that comes again only once:
// under the race detector hundreds of megabytes take a minute.
type members struct {
	t             testing.TB
	known         map[string][]byte
	small, packed bytes.Buffer
}

func (m *members) Write(b []byte) (int, error) {
	if len(b) >= 1<<16 {
		m.flush(b)
		return len(b), nil
	}
	if m.small.Len() >= 1<<20 { // many headers that are the same are many chunks that are
		m.flush(nil)
	}
	return m.small.Write(b)
}

// flush writes what has come in small pieces, and b.
func (m *members) flush(b []byte) {
	m.t.Helper()
	for _, data := range [][]byte{m.small.Bytes(), b} {
		if len(data) == 0 {
			continue
		}
		done, ok := m.known[string(data)]
		if !ok {
			var one bytes.Buffer
			zip := gzip.NewWriter(&one)
			_, err := zip.Write(data)
			if err = errors.Join(err, zip.Close()); err != nil {
				m.t.Fatal(err)
			}
			done = one.Bytes()
			m.known[string(data)] = done
		}
		m.packed.Write(done)
	}
	m.small.Reset()
}

// sparse is an archive of a few hundred bytes with a sparse file of 100 GB, as GNU tar writes one.
func sparse(t testing.TB, size int64) []byte {
	t.Helper()
	block := func(name string, flag byte, n int) []byte {
		b := make([]byte, 512)
		copy(b, name)
		copy(b[100:], "0000644\x000000000\x000000000\x00")
		copy(b[124:], fmt.Sprintf("%011o\x0000000000000\x00        ", n))
		b[156] = flag
		copy(b[257:], "ustar\x0000")
		sum := 0
		for _, c := range b {
			sum += int(c)
		}
		copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
		return b
	}
	var records string
	for _, r := range []string{"GNU.sparse.major=0", "GNU.sparse.minor=1", "GNU.sparse.name=sys/x",
		"GNU.sparse.map=0,0",
		"GNU.sparse.numblocks=1", fmt.Sprint("GNU.sparse.size=", size)} {
		n := len(r) + 2
		for len(fmt.Sprint(n))+len(r)+2 != n {
			n = len(fmt.Sprint(n)) + len(r) + 2
		}
		records += fmt.Sprintf("%d %s\n", n, r)
	}
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	for _, part := range [][]byte{block("h", 'x', len(records)), []byte(records), make([]byte, 512-len(records)),
		block("sys/x", '0', 0), make([]byte, 1024)} {
		if _, err := zip.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A recording that is longer than the limits when it is unpacked is refused, and takes no more memory than they say.
func TestRecordingBomb(t *testing.T) {
	var many []tar.Header
	for i := range 16 {
		many = append(many, tar.Header{Name: fmt.Sprint("sys/", i), Size: maxFile, Typeflag: tar.TypeReg})
	}
	pax := tar.Header{Name: "sys/x", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"X.y": strings.Repeat("0",
		900_000)}}
	var headers []tar.Header
	for range 300 {
		headers = append(headers, pax)
	}
	for name, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"one file of 100 GB": {packed(t, tar.Header{Name: "sys/x", Size: 100 << 30, Typeflag: tar.TypeReg}),
			"more than 16777216"},
		"one sparse file of 100 GB":    {sparse(t, 100<<30), "more than 16777216"},
		"16 files of 16 MB":            {packed(t, many...), "more than 67108864 bytes unpacked"},
		"sparse file within the limit": {sparse(t, 1<<20), ""},
		"headers of 270 MB":            {packed(t, headers...), "longer than a recording may be"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Unpack(bytes.NewReader(c.archive))
		runtime.ReadMemStats(&after)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
		used := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d bytes packed, %d MB allocated in all", name, len(c.archive), used>>20)
		if used > 8*maxStream { // the race detector doubles it
			t.Errorf("%s: %d bytes packed took %d bytes of memory", name, len(c.archive), used)
		}
	}
}

// What can't be in a recording is refused, and named.
func TestRecordingRefused(t *testing.T) {
	var entries []tar.Header
	for range maxEntries + 1 {
		entries = append(entries, tar.Header{Name: "sys", Typeflag: tar.TypeDir})
	}
	for want, headers := range map[string][]tar.Header{
		"more than 200000 entries":     entries,
		"more than 64 levels deep":     {{Name: strings.Repeat("a/", 65), Typeflag: tar.TypeDir}},
		"name of more than 255 bytes":  {{Name: strings.Repeat("a", 256), Typeflag: tar.TypeDir}},
		`link "sys" leaves the tree`:   {{Name: "sys", Linkname: "/sys", Typeflag: tar.TypeSymlink}},
		`link "sys/x" leaves the tree`: {{Name: "sys/x", Linkname: "../../etc/shadow", Typeflag: tar.TypeSymlink}},
		`path "../x": leaves the tree`: {{Name: "../x", Typeflag: tar.TypeReg}},
		`"sys/c" is no file`:           {{Name: "sys/c", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}},
		`"sys/b" is no file`:           {{Name: "sys/b", Typeflag: tar.TypeBlock}},
		`"sys/p" is no file`:           {{Name: "sys/p", Typeflag: tar.TypeFifo}},
		`"sys/h" is no file`:           {{Name: "sys/h", Linkname: "sys/x", Typeflag: tar.TypeLink}},
	} {
		if _, err := Unpack(bytes.NewReader(packed(t, headers...))); err == nil || !strings.Contains(err.Error(),
			want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A directory has the same limits as an archive: no link leads out of it, and what would wait or has no end is not
// opened.
func TestRecordingDirectory(t *testing.T) {
	top := t.TempDir()
	root := filepath.Join(top, "root")
	for _, d := range []string{"sys/class/net", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(root, name) }
	for _, err := range []error{
		os.WriteFile(filepath.Join(top, "secret"), []byte("x"), 0o600),
		os.WriteFile(in("sys/good"), []byte("x"), 0o600),
		os.Symlink("../sys/good", in("etc/inside")),
		os.Symlink("../../secret", in("etc/outside")),
		os.Symlink(filepath.Join(top, "secret"), in("etc/absolute")),
		os.Symlink("..", in("sys/up")),
		unix.Mkfifo(in("etc/fifo"), 0o600),
		unix.Mkfifo(in("live.json"), 0o600),
		unix.Mknod(in("etc/socket"), unix.S_IFSOCK|0o600, 0),
		os.WriteFile(in("etc/big"), nil, 0o600),
		os.Truncate(in("etc/big"), 100<<30),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{ // and the error
		"sys/good": "", "etc/inside": "", "etc/outside": "escapes", "etc/absolute": "escapes",
		"sys/up/../secret": "leaves the tree", "etc/fifo": "is no file", "etc/socket": "is no file",
		"etc/big": "more than 16777216",
	}
	switch err := unix.Mknod(in("etc/zero"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); {
	case err == nil:
		files["etc/zero"] = "is no file"
	case os.Geteuid() == 0:
		t.Fatal(err)
	}
	tree, err := OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	ended := time.AfterFunc(30*time.Second, func() { panic("it hangs") })
	defer ended.Stop()
	for name, want := range files {
		_, err := fs.ReadFile(tree, name)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", name, err)
		}
		f, err := tree.Open(name)
		if err != nil {
			continue
		}
		if n, err := io.Copy(io.Discard, f); n > maxFile || n > 1 && err == nil {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
		f.Close()
	}
	if _, err := Open(tree, journal.Store{}); err == nil || !strings.Contains(err.Error(), "live.json") {
		t.Errorf("fifo as live.json: %v", err)
	}
	ended.Stop()
	for range 5 {
		if err := os.WriteFile(in("sys/much"), make([]byte, maxFile), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = fs.ReadFile(tree, "sys/much")
	}
	if err == nil || !strings.Contains(err.Error(), "in all") {
		t.Errorf("80 MB: %v", err)
	}
}

// Whatever an archive has: an error or a picture, within the limits.
func FuzzRecording(f *testing.F) {
	f.Add(sparse(f, 1<<30))
	f.Add(sparse(f, 1<<20))
	f.Add(packed(f, tar.Header{Name: "sys/class", Typeflag: tar.TypeDir}, tar.Header{Name: LiveFile,
		Typeflag: tar.TypeReg},
		tar.Header{Name: "sys/class/net", Linkname: "../x", Typeflag: tar.TypeSymlink}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		for _, b := range [][]byte{archive, gzipped(t, archive)} { // what is unpacked changes more easily as it is
			tree, err := Unpack(bytes.NewReader(b))
			if err != nil {
				continue
			}
			r, _, err := Record(tree, journal.Store{})
			if err != nil {
				continue
			}
			var again bytes.Buffer
			if _, err := r.WriteTo(&again); err != nil {
				continue // a time that tar has no room for
			}
			if _, err := Unpack(&again); err != nil {
				t.Errorf("the recording of a recording is refused: %v", err)
			}
		}
	})
}

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	if _, err := zip.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
