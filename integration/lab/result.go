package lab

// result is what became of work.
type result struct {
	work    *work
	test    *GuestTest // nil if it did not start
	cached  *pass      // the earlier run that counts instead
	left    bool       // it was left out
	guest   int        // the guest that ran it
	seconds float64    // in the guest, with the start of the process
	matrix  []string   // lines of the matrix
	// problem is what went wrong outside of the test: a guest that died, a complaint of the kernel. "": nothing.
	problem string
	dmesg   string // what the kernel logged meanwhile
	other   string // output that belongs to no test
	dir     string // with the output
}

// ok reports whether the work may count as passed without being looked at again.
func (r *result) ok() bool { return r.problem == "" && r.test != nil && r.test.Result == "pass" }
