package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// times is what the build of the plugin with failpoints writes: the points that it passes, with their times.
const times = "/run/bench-times"

// steps measures what one ADD and one DEL spend their time on: from one point that the plugin passes to the next.
func (b *bench) steps(name, ifname, conf string) contestant {
	c := b.attachment("steps-"+name, "fabric-steps", "bench-steps-"+name, ifname, conf)
	timed := func(verb string, call func() error) func() error {
		return func() error {
			if err := os.Remove(times); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove the times: %w", err)
			}
			begin, err := monotonic()
			if err == nil {
				err = call()
			}
			end, err2 := monotonic()
			if err = errors.Join(err, err2); err != nil {
				return err
			}
			if !b.counts {
				return nil
			}
			return b.points("steps-"+name+"-"+verb, begin, end)
		}
	}
	c.add, c.del = timed("add", c.add), timed("del", c.del)
	return c
}

// points adds a series for each stretch between two points, numbered in their order.
func (b *bench) points(series string, begin, end int64) error {
	text, err := os.ReadFile(times)
	if err != nil {
		return fmt.Errorf("read the times: %w", err)
	}
	last, from, i := begin, "begin", 0
	add := func(to string, at int64) {
		b.set.Add(fmt.Sprintf("%s/%02d %s to %s", series, i, from, to), float64(at-last)/1e6)
		last, from, i = at, to, i+1
	}
	for line := range strings.Lines(string(text)) {
		point, ns, _ := strings.Cut(strings.TrimSpace(line), " ")
		at, err := strconv.ParseInt(ns, 10, 64)
		if err != nil {
			return fmt.Errorf("read the times: %q: %w", line, err)
		}
		add(point, at)
	}
	add("end", end)
	return nil
}

func monotonic() (int64, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano(), err
}
