package inventory

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m, nil) }

// plant makes a recorded tree of testdata as files and links, and of each netdev that it mentions a bridge in a network
// namespace: a netdev without hardware, parent and peer. Lines are "path = content" or "path -> target".
func plant(t *testing.T, name string) (*Reader, sandbox.Netns) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".tree"))
	if err != nil {
		t.Fatal(err)
	}
	n := sandbox.New(t)
	c := n.Link(t)
	dir := t.TempDir()
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		path, target, link := strings.Cut(line, " -> ")
		path, content, _ := strings.Cut(path, " = ")
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if link {
			err = os.Symlink(target, path)
		} else {
			if strings.HasPrefix(content, "{") {
				dev := strings.Trim(content, "{}")
				n.IP(t, "link", "add", dev, "type", "bridge")
				found, err := c.ByName(dev)
				if err != nil {
					t.Fatal(err)
				}
				content = strconv.Itoa(found.Index)
			}
			err = os.WriteFile(path, []byte(content+"\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return &Reader{Sys: os.DirFS(dir), Link: c}, n
}

// changing is a tree that shows something else the first time a directory is read.
type changing struct {
	fs.FS
	dir  string
	once func()
}

func (c *changing) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(c.FS, name)
	if name == c.dir && c.once != nil {
		c.once()
		c.once = nil
	}
	return entries, err
}

func (c *changing) ReadLink(name string) (string, error)   { return fs.ReadLink(c.FS, name) }
func (c *changing) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(c.FS, name) }
