package walk

import "errors"

// shrinkings is how many shorter walks Shrink tries.
const shrinkings = 40

// Shrink leaves out operations of a walk that failed, as long as what is left fails too: first halves, then smaller
// parts. Each try begins in a new world. What depends on the moment of a kill may not happen again; then more is left
// than needed.
func (w Walk) Shrink(f *RoundError, world func() World) []Op {
	ops := f.Ops
	left := shrinkings
	for size := len(ops) / 2; size >= 1 && left > 0; size /= 2 {
		for at := 0; at < len(ops) && left > 0; {
			shorter := append(append([]Op{}, ops[:at]...), ops[min(at+size, len(ops)):]...)
			left--
			var again *RoundError
			if _, err := w.Replay(world(), shorter); len(shorter) > 0 && errors.As(err, &again) {
				ops = shorter
				continue
			}
			at += size
		}
	}
	return ops
}
