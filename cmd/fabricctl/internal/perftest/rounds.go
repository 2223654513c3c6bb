package perftest

// Pair is two ends that are measured together, as indexes into a list.
type Pair struct{ A, B int }

// Rounds are all pairs of n ends, in rounds in which none is in two pairs: a port that serves two flows at once
// measures neither. There are n-1 rounds for even n, n for odd n, which is the least there can be (the circle method).
func Rounds(n int) (rounds [][]Pair) {
	if n < 2 {
		return nil
	}
	m := n + n%2 // with an odd number one pauses in each round
	ring := make([]int, m)
	for i := range ring {
		ring[i] = i
	}
	for range m - 1 {
		var round []Pair
		for i := range m / 2 {
			a, b := ring[i], ring[m-1-i]
			if a < n && b < n {
				round = append(round, Pair{min(a, b), max(a, b)})
			}
		}
		rounds = append(rounds, round)
		lastOne := ring[m-1]
		copy(ring[2:], ring[1:m-1]) // the first stays, the others turn
		ring[1] = lastOne
	}
	return rounds
}
