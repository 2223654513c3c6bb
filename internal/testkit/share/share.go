// Package share picks what a run of the gate does of a matrix that is too long for each commit, and says when there is
// no time left for more.
//
//	FABRIC_SEED      what the picks depend on, the commit's hash in `make gate`. Equal seeds pick the same. Not set:
//	                 everything is picked: a developer runs one test by its name
//	FABRIC_LAB_FULL  everything is picked, whatever the seed (`make test-full`)
//	FABRIC_DEADLINE  seconds since 1970: nothing begins that would probably end later. Not set: no deadline
//
// docs/testing.md says how many landings it takes until each cell has run.
package share

import (
	"cmp"
	"crypto/sha256"
	"os"
	"slices"
	"strconv"
	"time"
)

// All reports whether nothing is left out.
func All() bool { return os.Getenv("FABRIC_LAB_FULL") != "" || os.Getenv("FABRIC_SEED") == "" }

// Order returns the names in the order in which this run would do them: another one for each seed. With All, as they
// are.
func Order(names []string) []string {
	ordered := slices.Clone(names)
	if All() {
		return ordered
	}
	seed := os.Getenv("FABRIC_SEED")
	slices.SortStableFunc(ordered, func(a, b string) int { return cmp.Compare(rank(seed, a), rank(seed, b)) })
	return ordered
}

// Pick returns n of the names, all of them with All.
func Pick(n int, names ...string) []string {
	if All() {
		return slices.Clone(names)
	}
	return Order(names)[:min(n, len(names))]
}

// TimeFor reports whether something that takes so long still ends before the deadline.
func TimeFor(d time.Duration) bool {
	deadline, err := strconv.ParseInt(os.Getenv("FABRIC_DEADLINE"), 10, 64)
	return err != nil || time.Now().Add(d).Before(time.Unix(deadline, 0))
}

func rank(seed, name string) string {
	sum := sha256.Sum256([]byte(seed + "\x00" + name))
	return string(sum[:])
}
