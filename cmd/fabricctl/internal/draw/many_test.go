package draw

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// Many functions are one card, whatever their PF is called.
func TestMany(t *testing.T) {
	n := &node.Node{Name: "x", HCAs: []node.HCA{{Name: `<script a="b">`, Kind: "PF", PCI: "0000:18:00.0"}}}
	for i := range node.Few + 1 {
		pod := ""
		if i < 3 {
			pod = "ml/train-0"
		}
		n.HCAs = append(n.HCAs, node.HCA{
			Name: fmt.Sprintf("v%d", i), Kind: "VF", Parent: "0000:18:00.0", PCI: fmt.Sprintf("0000:18:01.%d", i),
			InPod: pod, Ports: []node.Port{{Number: 1, State: "Active"}},
		})
	}
	var b strings.Builder
	if err := SVG(&b, n, topology.Fabrics{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"+ 9 VFs of &lt;script a=&#34;b&#34;&gt;", "0000:18:01.0-0000:18:01.8  Active  3 in pods",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in %s", want, b.String())
		}
	}
	cards := 0
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			if e.Name.Local == "script" {
				t.Error("a name is an element")
			}
			if e.Name.Local == "g" {
				cards++
			}
		}
	}
	if cards != 2 {
		t.Errorf("%d cards, want the PF and one for its VFs", cards)
	}
}
