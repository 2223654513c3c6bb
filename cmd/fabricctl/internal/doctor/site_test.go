package doctor

import "testing"

// Findings of a release name the pages of the release, those of any other build the pages of main.
func TestSite(t *testing.T) {
	t.Cleanup(func() { edition = "main" })
	for version, want := range map[string]string{
		"v0.1.0":             "v0.1.0",
		"v1.2.3-rc.1":        "v1.2.3-rc.1",
		"dev":                "main",
		"v0.1.0-dirty":       "main",
		"v0.1.0-4-g60c14abc": "main",
		"cf0a955":            "main",
		"v0.0.0-unknown":     "main",
	} {
		edition = "main"
		SetVersion(version)
		want = "https://fabric-cni.github.io/fabric-cni/" + want + "/doctor.html#host-mtu"
		if got := page("host-mtu"); got != want {
			t.Errorf("%s: %s, must be %s", version, got, want)
		}
	}
}
