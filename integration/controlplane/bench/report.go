package main

import (
	"fmt"
	"math"
)

// report is a Markdown table with a row for each phase, and below it what was called in each.
type report struct {
	details bool
	phases  []*phase
}

func newReport(title string, details bool) *report {
	fmt.Printf("\n## %s\n", title)
	return &report{details: details}
}

const header = `
| phase | nodes | time | requests | 1/s and node | sent by the API server | a second | sent to it | etcd | 409 | 429 |
|---|---|---|---|---|---|---|---|---|---|---|
`

// add prints a phase.
func (r *report) add(p *phase, found, memory string) {
	r.phases = append(r.phases, p)
	fmt.Print(header + p.line())
	fmt.Printf("\n%s.\n", found)
	if memory != "" {
		fmt.Printf("Controller: %s.\n", memory)
	}
	if r.details {
		fmt.Print(p.detail())
	}
}

func (p *phase) line() string {
	return fmt.Sprintf("| %s | %d | %.0f s | %.0f | %.4f | %s | %s | %s | %s | %.0f | %.0f |\n", p.name, p.nodes,
		p.seconds, p.requests(), p.requests()/p.seconds/float64(p.nodes), size(p.bytes()),
		size(p.bytes()/p.seconds), size(p.body), size(p.etcd), p.lost, p.shed)
}

// extrapolate prints, for each phase, what its two largest measurements come to with n nodes, if each number goes on
// growing with the power of the nodes with which it has grown between them.
func (r *report) extrapolate(n int) {
	byName := map[string][]*phase{}
	var names []string
	for _, p := range r.phases {
		if byName[p.name] == nil {
			names = append(names, p.name)
		}
		byName[p.name] = append(byName[p.name], p)
	}
	fmt.Printf("\nExtrapolated to %d nodes, not measured (by the power of the nodes by which it has grown):\n"+
		"\n| phase | from | requests | sent by the API server | sent to it | etcd |\n|---|---|---|---|---|---|\n", n)
	for _, name := range names {
		all := byName[name]
		if len(all) < 2 {
			continue
		}
		a, b := all[len(all)-2], all[len(all)-1]
		grown := func(f func(p *phase) float64) (float64, float64) {
			return power(f(a), f(b), float64(a.nodes), float64(b.nodes), float64(n))
		}
		requests, e1 := grown((*phase).requests)
		sent, e2 := grown((*phase).bytes)
		body, e3 := grown(func(p *phase) float64 { return p.body })
		etcd, e4 := grown(func(p *phase) float64 { return p.etcd })
		fmt.Printf("| %s | %d and %d nodes | %.3g (^%.1f) | %s (^%.1f) | %s (^%.1f) | %s (^%.1f) |\n", name, a.nodes,
			b.nodes, requests, e1, size(sent), e2, size(body), e3, size(etcd), e4)
	}
}

// power continues what is a at x and b at y to z as a power of its argument, which is at most the square.
func power(a, b, x, y, z float64) (value, exponent float64) {
	if a <= 0 || b <= 0 {
		return b, 0
	}
	exponent = min(2, max(0, math.Log(b/a)/math.Log(y/x)))
	return b * math.Pow(z/y, exponent), exponent
}
