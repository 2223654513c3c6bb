//go:build race

package fabric_test

// How the programs are built: with the race detector as well, since ADD and DEL call IPAM in a goroutine. A race ends
// the process with status 66.
const (
	detector = "-race=true"
	cgo      = "CGO_ENABLED=1" // the detector needs it
)
