package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
)

// A recording whose links lead in a circle is refused, and the link is named.
func TestRecordingLoop(t *testing.T) {
	for _, links := range [][2]string{{"sys", "sys"}, {"sys", "sys/class"}, {"sys", "x/../x"}} {
		var b bytes.Buffer
		zip := gzip.NewWriter(&b)
		out := tar.NewWriter(zip)
		for _, h := range []tar.Header{
			{Name: links[0], Linkname: links[1], Typeflag: tar.TypeSymlink},
			{Name: "x", Linkname: "sys", Typeflag: tar.TypeSymlink},
		} {
			if err := out.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if out.Close() != nil || zip.Close() != nil {
			t.Fatal("write the recording")
		}
		if _, err := Unpack(&b); err == nil || !strings.Contains(err.Error(), "leads in a circle") {
			t.Errorf("%v: %v", links, err)
		}
	}
}
