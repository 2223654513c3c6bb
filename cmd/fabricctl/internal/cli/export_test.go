package cli

import "time"

// BePatient lets completions wait for a cluster of the tests, on a machine that is busy.
func BePatient() { patience = time.Minute }
