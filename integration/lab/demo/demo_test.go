package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The functions of scripts/demo.sh that show RDMA, beside an ip that is a function here: its ib_write_bw has said words
// before the run number until.
const writeOver = `set -euo pipefail
tmp=$1 until=$2 words=$3 bold= off=
ip() {
  case "$*" in
  *" -brief address "*) echo "net1 UP 192.0.2.2/24" ;;
  *pod-a*ib_write_bw*)
    echo >>"$tmp/calls"
    echo ' #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]'
    if [ "$(wc -l <"$tmp/calls")" -lt "$until" ]; then printf '%b' "$words" >&2; return 1; fi
    echo ' 65536      100              21.76              14.60              0.027845' ;;
  esac
}
`

// perftest that can't measure the clock of an emulated CPU does not end the demo; whatever else it can't does.
func TestWriteOver(t *testing.T) {
	script, err := os.ReadFile("../../../scripts/demo.sh")
	if err != nil {
		t.Fatal(err)
	}
	functions := writeOver
	for _, name := range []string{"run", "address", "write_over"} {
		f := regexp.MustCompile(`(?ms)^` + name + `\(\) \{.*?\}$`).FindString(string(script))
		if f == "" {
			t.Fatalf("scripts/demo.sh has no function %s", name)
		}
		functions += f + "\n"
	}
	const clock, again = `Correlation coefficient r^2: 0.633459 < 0.9\nCan't produce a report\n`, "(run %d of 5)"
	for name, c := range map[string]struct {
		until, runs, status int
		words, says         string
	}{
		"at once":       {until: 1, runs: 1, words: clock, says: "14.60"},
		"after a while": {until: 3, runs: 3, words: clock, says: "14.60"},
		"never":         {until: 99, runs: 5, words: clock, says: "net1: not measured."},
		"no link":       {until: 99, runs: 1, words: ` Port number 1 state is Down\n`, says: "is Down", status: 1},
	} {
		t.Run(name, func(t *testing.T) {
			tmp := t.TempDir()
			cmd := exec.Command("bash", "-c", functions+"write_over 1 mlx5_0 mlx5_8 100", "demo", tmp,
				fmt.Sprint(c.until), c.words)
			out, err := cmd.CombinedOutput()
			calls, _ := os.ReadFile(filepath.Join(tmp, "calls")) // none: no runs
			if cmd.ProcessState.ExitCode() != c.status || len(calls) != c.runs ||
				!strings.Contains(string(out), c.says) ||
				c.runs > 1 != strings.Contains(string(out), fmt.Sprintf(again, c.runs-1)) {
				t.Errorf("%v after %d runs, want %d:\n%s", err, len(calls), c.runs, out)
			}
		})
	}
}
