//go:build !race

package fabric_test

// How the programs are built: as they are released.
const (
	detector = "-race=false"
	cgo      = "CGO_ENABLED=0"
)
