package measure

import (
	"context"
	"fmt"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

// tries bounds how often a program of perftest is run for one figure.
//
// When everything is sent, perftest compares the CPU's cycle counter with the clock for a fifth of a second, and gives
// up where the two do not agree; no option spares it that (get_clock.c, get_cpu_mhz). One of 200 samples that is off by
// 3 ms is enough: the CPU was taken from perftest between its two looks. That says nothing about the fabric, and comes
// now and then on a busy virtual machine, so five in a row are no accident.
const tries = 5

// unmeasured is a figure that perftest did not give, although both sides have sent and received everything.
type unmeasured struct{ why error }

func (u *unmeasured) Error() string { return fmt.Sprintf("not measured, in %d runs: %v", tries, u.why) }

func (u *unmeasured) Unwrap() error { return u.why }

// again runs a program of perftest for a figure, again where the exchange was well and there is no figure. The output
// is that of the last run. The error is *unmeasured if none has a figure.
func again[T any](ctx context.Context, r *perftest.Result, exchange func() (string, error),
	parse func(string) (*T, error),
) (figure *T, out string, err error) {
	for n := 1; ; n++ {
		out, err = exchange()
		if err != nil && !perftest.Unclocked(out) {
			return nil, out, err
		}
		if figure, err = parse(out); err == nil {
			return figure, out, nil
		}
		if ctx.Err() != nil {
			return nil, out, ctx.Err()
		}
		if n == tries {
			return nil, out, &unmeasured{err}
		}
		r.Repeats++
	}
}

// repeated says in the result that something was measured again.
func repeated(r *perftest.Result) {
	switch {
	case r.Repeats == 1:
		r.Add(perftest.Good, "1 run of perftest was repeated: it gave no figure")
	case r.Repeats > 1:
		r.Add(perftest.Good, fmt.Sprintf("%d runs of perftest were repeated: they gave no figure", r.Repeats))
	}
}
