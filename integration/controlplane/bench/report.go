package main

import "fmt"

const header = `
| phase | nodes | time | requests | 1/s and node | sent by the API server | a second | sent to it | etcd | 409 | 429 |
|---|---|---|---|---|---|---|---|---|---|---|
`

// add prints a Markdown table with the row of a phase, and below it what was called.
func (o *options) add(p *phase, found, memory string) {
	fmt.Print(header + p.line())
	fmt.Printf("\n%s.\n", found)
	fmt.Printf("Controller: %s.\n", memory)
	if o.details {
		fmt.Print(p.detail())
	}
}

func (p *phase) line() string {
	return fmt.Sprintf("| %s | %d | %.0f s | %.0f | %.4f | %s | %s | %s | %s | %.0f | %.0f |\n", p.name, p.nodes,
		p.seconds, p.requests(), p.requests()/p.seconds/float64(p.nodes), size(p.bytes()),
		size(p.bytes()/p.seconds), size(p.body), size(p.etcd), p.lost, p.shed)
}
