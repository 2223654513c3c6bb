// Package sample holds what the benchmark measured in the guest, and what can be said about it.
package sample

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// Set is everything that one guest measured. A series has one value for each cycle, so that values of one index were
// taken within seconds of each other: noise that lasts longer hits all of them.
type Set struct {
	Series map[string][]float64 // milliseconds, by "GROUP/CONTESTANT/VERB"
	Values map[string]float64   // measured once
}

// New returns an empty Set.
func New() *Set { return &Set{Series: map[string][]float64{}, Values: map[string]float64{}} }

// Add appends to a series.
func (s *Set) Add(name string, ms float64) { s.Series[name] = append(s.Series[name], ms) }

// Write stores the set in a file.
func (s *Set) Write(path string) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode samples: %w", err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return fmt.Errorf("write samples: %w", err)
	}
	return nil
}

// Merge reads a file that Write made into the set.
func (s *Set) Merge(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read samples: %w", err)
	}
	if err := json.Unmarshal(b, s); err != nil { // adds to maps that are there
		return fmt.Errorf("decode samples %s: %w", path, err)
	}
	return nil
}

// Quantile returns the q-quantile of values, interpolated; 0 of none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	at := q * float64(len(v)-1)
	i := int(at)
	if i+1 == len(v) {
		return v[i]
	}
	return v[i] + (at-float64(i))*(v[i+1]-v[i])
}

// Median is the middle of values.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Ratios divides value by value.
func Ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}
