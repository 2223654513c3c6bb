// Package undo is a stack of actions that take back what was done.
package undo

import (
	"errors"
	"fmt"
)

// Stack holds the way back. The zero value is empty.
type Stack struct{ back []action }

type action struct {
	what string
	run  func() error
}

// Push adds an action; what names it in errors.
func (s *Stack) Push(what string, run func() error) { s.back = append(s.back, action{what, run}) }

// Run takes everything back, latest first. An action that fails does not stop the others: all errors are joined. The
// stack is empty afterwards.
func (s *Stack) Run() error {
	var errs []error
	for len(s.back) > 0 {
		a := s.back[len(s.back)-1]
		s.back = s.back[:len(s.back)-1]
		if err := a.run(); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", a.what, err))
		}
	}
	return errors.Join(errs...)
}

// Release forgets everything: what was done stays done.
func (s *Stack) Release() { s.back = nil }
