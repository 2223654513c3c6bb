// Command signals writes the page docs/reference/signals.md, with what fabric-cni tells people and programs:
// conditions, Events, metrics, alerts and exit codes. Each text has its one home in the code: a comment, the help of a
// metric, a rule of the chart.
//
//	signals   at the root of the repository
package main

import "github.com/fabric-cni/fabric-cni/scripts/refpage"

const out = "docs/reference/signals.md"

func main() { refpage.Main("signals", out, page) }

// page is the whole page, from the repository at root.
func page(root string) (string, error) {
	w := &writer{root: root}
	w.f("%s", head)
	for _, part := range []func() error{w.fabric, w.node, w.events, w.metrics, w.alerts, w.codes} {
		if err := part(); err != nil {
			return "", err
		}
	}
	return w.text.String(), nil
}
