package cli

import "testing"

// A release measures with the image that was published with it; another build has none.
func TestDefaultImage(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0": toolsImage + ":v0.1.0", "v0.1.0-rc.2": toolsImage + ":v0.1.0-rc.2", "v0.1.0-14-g0123456": "",
		"v0.1.0-dirty": "", "v0.0.0-unknown": "", "0123456": "", "dev": "", "v0.1.0@sha256:x": "",
	} {
		if got := defaultImage(version); got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
}
