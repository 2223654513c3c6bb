// Package perftest reads what ib_write_bw and ib_write_lat print, judges it against a port's rate, and lays out which
// pairs are measured when. Values in, values out.
package perftest

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bandwidth is a result of ib_write_bw (or read, or send): its row with the most bandwidth.
type Bandwidth struct {
	Bytes     int     `json:"bytes"`  // per message
	PeakGb    float64 `json:"peakGb"` // Gb/s, 10^9 bits
	AverageGb float64 `json:"averageGb"`
}

// Latency is a result of ib_write_lat: its first row, in microseconds.
type Latency struct {
	Bytes   int     `json:"bytes"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Typical float64 `json:"typical"`
	P99     float64 `json:"p99,omitempty"`
}

// ErrNoResult tells that the output has no result: perftest has ended before it measured.
var ErrNoResult = errors.New("no result in the output of perftest")

// ErrClock tells that perftest has sent everything, and could not work out how long that took.
var ErrClock = errors.New("perftest could not measure the clock of the CPU")

// clock is what perftest says then (get_clock.c). With -F it goes on with a clock of 0 Hz: a bandwidth of zero, an
// infinite latency.
var clock = regexp.MustCompile(`Correlation coefficient r\^2: \S+ < 0\.9|Can't produce a report`)

// Unclocked reports whether perftest says in an output that it could not measure the clock.
func Unclocked(out string) bool { return clock.MatchString(out) }

// unclocked is ErrClock with perftest's words; nil: it says nothing of it.
func unclocked(out string) error {
	if words := clock.FindString(out); words != "" {
		return fmt.Errorf("%w: %s", ErrClock, words)
	}
	return nil
}

// header finds the line with the columns, which begins with #bytes, and returns the rows of numbers below, without
// those whose first five, the ones that count, are no finite numbers.
func header(out string) (head string, rows [][]float64) {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#bytes") {
			head, rows = line, nil
			continue
		}
		if head == "" {
			continue
		}
		var row []float64
		for _, f := range strings.Fields(line) {
			v, err := number(f)
			if err != nil {
				row = nil
				break
			}
			row = append(row, v)
		}
		if len(row) >= 4 && !slices.ContainsFunc(row[:min(len(row), 5)], infinite) {
			rows = append(rows, row)
		}
	}
	return head, rows
}

func infinite(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }

// number reads a figure. A standard deviation of perftest may be -nan: the root of what rounding has made negative.
func number(s string) (float64, error) {
	if strings.TrimPrefix(s, "-") == "nan" {
		return math.NaN(), nil
	}
	return strconv.ParseFloat(s, 64)
}

// ParseBandwidth reads ib_write_bw. Without --report_gbits perftest counts in 2^20 bytes, which it prints as MB/sec or,
// since version 6, as MiB/sec (perftest_resources.h, BW formats).
func ParseBandwidth(out string) (*Bandwidth, error) {
	if err := unclocked(out); err != nil {
		return nil, err
	}
	head, rows := header(out)
	if len(rows) == 0 || !strings.Contains(head, "BW average") {
		return nil, fmt.Errorf("%w: %s", ErrNoResult, last(out))
	}
	scale := 1.0
	if !strings.Contains(head, "Gb/sec") {
		scale = 8 * (1 << 20) / 1e9
	}
	var best Bandwidth
	for _, r := range rows {
		if b := (Bandwidth{int(r[0]), r[2] * scale, r[3] * scale}); b.AverageGb >= best.AverageGb {
			best = b
		}
	}
	if best.AverageGb <= 0 {
		return nil, fmt.Errorf("%w: it has a rate of zero", ErrNoResult)
	}
	return &best, nil
}

// ParseLatency reads ib_write_lat.
func ParseLatency(out string) (*Latency, error) {
	if err := unclocked(out); err != nil {
		return nil, err
	}
	head, rows := header(out)
	if len(rows) == 0 || !strings.Contains(head, "t_typical") || len(rows[0]) < 5 {
		return nil, fmt.Errorf("%w: %s", ErrNoResult, last(out))
	}
	r := rows[0]
	l := &Latency{Bytes: int(r[0]), Min: r[2], Max: r[3], Typical: r[4]}
	if strings.Contains(head, "99% percentile") && len(r) > 7 && !infinite(r[7]) {
		l.P99 = r[7]
	}
	return l, nil
}

// last are the last lines that say something, for a message.
func last(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line != "" && strings.Trim(line, "-") != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return "it is empty"
	}
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}
