package apply

import (
	"errors"
	"fmt"
)

// Undo is a stack of actions that take back what was done. The zero value is empty.
type Undo struct{ back []action }

type action struct {
	what string
	run  func() error
}

// Push adds an action; what names it in errors.
func (u *Undo) Push(what string, run func() error) { u.back = append(u.back, action{what, run}) }

// Run takes everything back, latest first. An action that fails does not stop the others: all errors are joined. The
// stack is empty afterwards.
func (u *Undo) Run() error {
	var errs []error
	for len(u.back) > 0 {
		a := u.back[len(u.back)-1]
		u.back = u.back[:len(u.back)-1]
		if err := a.run(); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", a.what, err))
		}
	}
	return errors.Join(errs...)
}

// Release forgets everything: what was done stays done.
func (u *Undo) Release() { u.back = nil }
