// Command inguest measures, inside a lab guest. It is started by the benchmark, see the package above; it changes the
// kernel it runs on.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"time"

	"github.com/fabric-cni/fabric-cni/integration/lab/bench/sample"
)

func main() {
	runtime.LockOSThread() // bare.Job changes the thread's namespace
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "inguest:", err)
		os.Exit(1)
	}
}

func run() error {
	cycles := flag.Int("cycles", 30, "how often everything is measured")
	groups := flag.String("groups", "", "regular expression: the groups to measure")
	bin := flag.String("bin", "", "directory with the binaries")
	out := flag.String("out", "", "file for the samples")
	private := flag.Bool("private", false, "measure veths: this process has network and mount namespaces of its own")
	flag.Parse()
	if os.Getenv("FABRIC_LAB_GUEST") == "" && !*private {
		return errors.New("this runs in a guest of package lab only")
	}
	want, err := regexp.Compile("^(" + *groups + ")$")
	if err != nil {
		return fmt.Errorf("flag -groups: %w", err)
	}
	n := &node{bin: *bin}
	setUp := n.setUp
	if *private {
		setUp = n.setUpVeths
	}
	if err := setUp(); err != nil {
		return err
	}
	b := &bench{node: n, set: sample.New()}
	for _, g := range b.groups() {
		if !want.MatchString(g.name) {
			continue
		}
		begin := time.Now()
		for i := range *cycles + 1 {
			b.counts = i > 0
			if err := b.cycle(g, i); err != nil {
				return fmt.Errorf("%s, cycle %d: %w", g.name, i, err)
			}
		}
		fmt.Printf("%-9s %d cycles in %s\n", g.name, *cycles, time.Since(begin).Round(time.Second))
	}
	if !*private {
		if err := b.peakRSS(); err != nil {
			return err
		}
	}
	return b.set.Write(*out)
}

// group is a set of contestants for the same work.
type group struct {
	name        string
	contestants []contestant
	reset       func() error // before each measurement, untimed
}

// contestant does the work once and undoes it. What is nil is not measured.
type contestant struct {
	name          string
	add, del      func() error
	before, after func() error // untimed
}

type bench struct {
	*node
	set    *sample.Set
	counts bool // this cycle; the first one warms caches up
}

// pause lets the kernel finish what an operation has left to its workers, which on one CPU would be in the next one's
// way.
const pause = 30 * time.Millisecond

// cycle lets every contestant work once. Who begins changes: what one leaves behind is not always the same one's
// burden.
func (b *bench) cycle(g group, number int) error {
	for i := range g.contestants {
		c := g.contestants[(i+number)%len(g.contestants)]
		if g.reset != nil {
			if err := g.reset(); err != nil {
				return err
			}
		}
		if err := b.turn(g, c); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func (b *bench) turn(g group, c contestant) error {
	if c.before != nil {
		if err := c.before(); err != nil {
			return err
		}
	}
	if err := b.time(g.name+"/"+c.name+"/add", c.add); err != nil {
		return err
	}
	if err := b.time(g.name+"/"+c.name+"/del", c.del); err != nil {
		return err
	}
	if c.after != nil {
		return c.after()
	}
	return nil
}

func (b *bench) time(name string, f func() error) error {
	if f == nil {
		return nil
	}
	time.Sleep(pause)
	begin := time.Now()
	err := f()
	took := time.Since(begin)
	if err == nil && b.counts {
		b.set.Add(name, float64(took)/float64(time.Millisecond))
	}
	return err
}
