// Command signals writes the page docs/reference/signals.md, with what fabric-cni tells people and programs:
// conditions, Events, metrics, alerts and exit codes. Each text has its one home in the code: a comment, the help of a
// metric, a rule of the chart.
//
//	signals   at the root of the repository
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

const out = "docs/reference/signals.md"

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "signals:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	text, err := page(root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, out), []byte(text), 0o644)
}

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
