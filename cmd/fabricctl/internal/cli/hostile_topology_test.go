package cli

import (
	"fmt"
	"strings"
	"testing"
)

// cables are what ibnetdiscover prints of a fabric whose descriptions have the text, and LLDP of a node that is called
// so, with neighbours that are.
func (w *hostileWorld) cables(t *testing.T) []string {
	t.Helper()
	desc := strings.NewReplacer("\n", " ", "\r", " ").Replace(w.text) // as ibnetdiscover does
	var b strings.Builder
	fmt.Fprintf(&b, "vendid=0x2c9\nSwitch\t64 \"S-000000000000a001\"\t# \"%s\" base port 0 lid 1 lmc 0\n", desc)
	for n := range 4 {
		fmt.Fprintf(&b, "[%d]\t\"H-000000000000b0%d0\"[1](b0%d1) \t# \"gpu-%d mlx5_0\" lid 2 4xNDR\n", n+1, n, n, n)
	}
	for n := range 4 {
		name := fmt.Sprintf("gpu-%d mlx5_0", n)
		if n == 3 {
			name = desc
		}
		fmt.Fprintf(&b, "\nvendid=0x2c9\nCa\t1 \"H-000000000000b0%d0\"\t# \"%s\"\n[1](b0%d1) \t\"S-000000000000a001\""+
			"[%d]\t# lid 2 lmc 0 \"%s\" lid 1 4xNDR\n", n, name, n, n+1, desc)
	}
	lldp := w.json(t, map[string]any{"lldp": map[string]any{"interface": []any{map[string]any{
		"eth0" + w.text: map[string]any{
			"chassis": map[string]any{"leaf" + w.text: map[string]any{"id": map[string]string{"value": w.text + "x"}}},
			"port":    map[string]any{"id": map[string]string{"value": w.text}},
		},
	}}}})
	return []string{"-f", w.file(t, "fabric.txt", b.String()), "-f", w.file(t, "node"+pathName(w.text)+".json", lldp)}
}
