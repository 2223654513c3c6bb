package growth

import "testing"

// failure is a test that may fail.
type failure struct {
	testing.TB
	failed bool
}

func (f *failure) Helper()               {}
func (f *failure) Errorf(string, ...any) { f.failed = true }

var sink int

func TestLinear(t *testing.T) {
	linear, square := &failure{}, &failure{}
	Linear(linear, "linear", 1<<20, func(n int) {
		for i := range n {
			sink += i
		}
	})
	Linear(square, "square", 1<<11, func(n int) {
		for i := range n * n {
			sink += i
		}
	})
	if linear.failed || !square.failed {
		t.Errorf("linear failed: %v, square failed: %v", linear.failed, square.failed)
	}
}
