package perftest

import (
	"errors"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
)

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What the stories' clusters have measured.
func TestBandwidth(t *testing.T) {
	for _, c := range []struct {
		file string
		rate float64
		want float64
		text string
	}{
		{"bw-100g.txt", 100, 94.70, "94.7 of 100 Gb/s: good"},
		{"bw-200g.txt", 200, 183.60, "183.6 of 200 Gb/s: good"},
		{"bw-400g-mib.txt", 400, 366.0, "366 of 400 Gb/s: good"},
	} {
		b, err := ParseBandwidth(read(t, c.file))
		if err != nil {
			t.Fatal(c.file, err)
		}
		if math.Abs(b.AverageGb-c.want) > 0.05 || b.Bytes != 65536 || b.PeakGb < b.AverageGb {
			t.Errorf("%s: %+v, want %.2f", c.file, b, c.want)
		}
		if v, text := (&Limits{Percent: Threshold}).Judge(b.AverageGb, c.rate); v != Good || text != c.text {
			t.Errorf("%s: %s %q", c.file, v, text)
		}
	}
}

// What perftest of Debian 12 (4.5) has printed between two pods in the lab. Its columns have tabs; the side that only
// receives knows no peak.
func TestDebian(t *testing.T) {
	for file, want := range map[string]Bandwidth{
		"write-bw":       {65536, 3.79, 3.13},
		"write-bw-gbits": {65536, 4.31, 4.17},
		"read-bw":        {65536, 8.61, 7.51},
		"send-bw":        {65536, 0, 291.01},
	} {
		b, err := ParseBandwidth(read(t, "debian12-"+file+".txt"))
		if err != nil || b.Bytes != want.Bytes || math.Abs(b.PeakGb-want.PeakGb) > 0.01 ||
			math.Abs(b.AverageGb-want.AverageGb) > 0.01 {
			t.Errorf("%s: %+v, %v, want %+v", file, b, err, want)
		}
	}
	for file, want := range map[string]Latency{
		"write-lat":     {2, 3886.77, 7966.66, 4004.34, 7966.66},
		"write-lat-nan": {2, 66.80, 122867.40, 4005.78, 53530.06}, // the standard deviation is -nan
	} {
		l, err := ParseLatency(read(t, "debian12-"+file+".txt"))
		if err != nil || *l != want {
			t.Errorf("%s: %+v, %v, want %+v", file, l, err, want)
		}
	}
}

func TestLatency(t *testing.T) {
	l, err := ParseLatency(read(t, "lat.txt"))
	if err != nil || l.Typical != 2.73 || l.P99 != 3.02 || l.Min != 2.66 || l.Max != 6.91 || l.Bytes != 2 {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestNoResult(t *testing.T) {
	for _, out := range []string{"", read(t, "down.txt"), read(t, "lat.txt"), "#bytes BW average[Gb/sec]\nx y z\n1 " +
		"2\n", "#bytes BW average[Gb/sec]\n65536 50 nan -nan 1\n"} {
		if _, err := ParseBandwidth(out); !errors.Is(err, ErrNoResult) {
			t.Errorf("bandwidth of %q: %v", out, err)
		}
	}
	if _, err := ParseLatency(read(t, "bw-100g.txt")); !errors.Is(err, ErrNoResult) {
		t.Errorf("latency of bandwidth: %v", err)
	}
	if _, err := ParseBandwidth(
		read(t, "down.txt"),
	); err == nil ||
		!strings.Contains(err.Error(), "Port number 1 state is Down") {
		t.Errorf("the message does not say why: %v", err)
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		avg, rate, good float64
		want            Verdict
		text            string
	}{
		{90, 100, Threshold, Good, "good"}, {89.9, 100, Threshold, Slow, "MTU"}, {49, 100, Threshold, Slow, "half"},
		{12, 100, Threshold, Slow, "lossy"}, {50, 0, Threshold, Skipped, "unknown"},
		{50, 100, 50, Good, "50 of 100 Gb/s: good"}, {49.9, 100, 50, Slow, "half"},
		{90, 100, 95, Slow, "95 are wanted"},
	} {
		if v, text := (&Limits{Percent: c.good}).Judge(c.avg, c.rate); v != c.want || !strings.Contains(text, c.text) {
			t.Errorf("%v of %v: %s %q", c.avg, c.rate, v, text)
		}
	}
}

// Every pair once, no end twice in a round, as few rounds as can be.
func TestRounds(t *testing.T) {
	for n := range 20 {
		seen := map[Pair]bool{}
		rounds := Rounds(n)
		for _, round := range rounds {
			busy := map[int]bool{}
			for _, p := range round {
				if p.A >= p.B || busy[p.A] || busy[p.B] || seen[p] {
					t.Errorf("%d ends: pair %v in %v", n, p, round)
				}
				busy[p.A], busy[p.B], seen[p] = true, true, true
			}
		}
		least := n - 1 + n%2
		if n < 2 {
			least = 0
		}
		if len(seen) != n*(n-1)/2 || len(rounds) != least {
			t.Errorf("%d ends: %d pairs in %d rounds", n, len(seen), len(rounds))
		}
	}
}

// What perftest of Debian 12 has printed in the lab beside a clock that jumps: figures of a clock of 0 Hz are none.
func TestClock(t *testing.T) {
	for _, name := range []string{"write-bw-clock", "write-bw-clock-exit", "write-lat-clock"} {
		out := read(t, "debian12-"+name+".txt")
		for _, words := range []string{"Correlation coefficient", "Can't produce a report", "no words"} {
			_, one := ParseBandwidth(out)
			_, two := ParseLatency(out)
			for _, err := range []error{one, two} {
				if words == "Correlation coefficient" && (!Unclocked(out) || !errors.Is(err, ErrClock) ||
					!strings.Contains(err.Error(), ": Correlation coefficient r^2: 0.")) {
					t.Errorf("%s: %v", name, err)
				}
				if err == nil {
					t.Errorf("%s has a figure, without the %q", name, words)
				}
			}
			out = regexp.MustCompile("(?m)^"+words+".*\n").ReplaceAllString(out, "") // another version's may be others
		}
	}
	if Unclocked(read(t, "bw-100g.txt")) || Unclocked(read(t, "down.txt")) {
		t.Error("a good run, or one without a link, is taken for one without a clock")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("#bytes #iterations BW peak[MB/sec] BW average[MB/sec]\n65536 5000 1 2 3\n")
	f.Fuzz(func(_ *testing.T, out string) {
		_, _ = ParseBandwidth(out)
		_, _ = ParseLatency(out)
	})
}
