//go:build !failpoint

// Package failpoint lets a test stop the plugin at a named point, with an error or with SIGKILL. It does nothing unless
// built with the tag failpoint: a released binary can't be steered by its environment.
package failpoint

import "fmt"

// Hit is passed on the way through a named point.
func Hit(string) error { return nil }

// Step is called with each step that is about to be carried out.
func Step(fmt.Stringer) error { return nil }

// Environ is what a child process needs in its environment to pass its points as this one does.
func Environ() []string { return nil }
