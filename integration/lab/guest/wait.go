package guest

import (
	"testing"
	"time"
)

// Patience bounds every wait for something that the kernel does by itself. Emulated time is slow and uneven.
const Patience = 20 * time.Second

// poll is short against an emulated system call's cost and long enough to let others run on the one CPU.
const poll = 5 * time.Millisecond

// Until polls cond until it returns nil, and fails the test with its last error when Patience is over.
func Until(t testing.TB, what string, cond func() error) {
	t.Helper()
	if err := await(cond, Patience); err != nil {
		t.Fatalf("wait until %s: %v", what, err)
	}
}

// await polls cond until it returns nil or patience is over, and returns its last error.
func await(cond func() error, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-tick.C
	}
}
