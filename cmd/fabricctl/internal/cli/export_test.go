package cli

import "time"

// BePatient lets completions wait for a cluster of the tests, on a machine that is busy.
func BePatient() { patience = time.Minute }

// BeQuick lets selftest give up soon on what a plugin has not brought back.
func BeQuick() { settle = 10 * time.Second }
