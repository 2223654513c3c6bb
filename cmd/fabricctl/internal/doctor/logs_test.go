package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whole logs of programs of Debian 12 in the lab: perftest 4.5, UCX 1.13 and Open MPI 4.1. What is known in them, in
// their order.
func TestLogs(t *testing.T) {
	logs := map[string]string{
		"perftest-init":             "log-port-down",
		"perftest-memlock":          "log-mr",
		"perftest-no-such-device":   "log-no-such-device",
		"pingpong-memlock":          "log-mr",
		"ucx-device-of-another-pod": "log-ucx-device log-pml-ucx",
		"ucx-memlock":               "log-mr",
		"ucx-no-rdma-device":        "log-pml-ucx",
		"ucx-no-such-device":        "log-ucx-device",
		"ucx-no-such-devices":       "log-ucx-device",
		"ucx-no-such-transport":     "log-ucx-transport",
		"ucx-over-rc":               "",
		"ucx-over-tcp":              "log-ucx-tcp",
	}
	for name, want := range logs {
		b, err := os.ReadFile(filepath.Join("testdata/logs", name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range Explain(string(b)) {
			got = append(got, e.ID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
	files, err := filepath.Glob("testdata/logs/*.log")
	if err != nil || len(files) != len(logs) {
		t.Errorf("%d recorded logs, want %d: %v", len(files), len(logs), err)
	}
}
