//go:build !failpoint

package fabric_test

const tags = ""
