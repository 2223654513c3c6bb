package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const stream = `{"Action":"start","Package":"m/pkg/a"}
{"Action":"run","Package":"m/pkg/a","Test":"TestGood"}
{"Action":"output","Package":"m/pkg/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"m/pkg/a","Test":"TestGood","Output":"    a_test.go:3: chatter\n"}
{"Action":"pass","Package":"m/pkg/a","Test":"TestGood","Elapsed":0.5}
`

const (
	closeGood = `{"Action":"output","Package":"m/pkg/a","Output":"PASS\n"}
{"Action":"output","Package":"m/pkg/a","Output":"ok  \tm/pkg/a\t0.5s\n"}
{"Action":"pass","Package":"m/pkg/a","Elapsed":0.5}
`
	closeBad = `{"Action":"output","Package":"m/pkg/a","Output":"FAIL\tm/pkg/a\t0.5s\n"}
{"Action":"fail","Package":"m/pkg/a","Elapsed":0.5}
`
	skip = `{"Action":"output","Package":"m/pkg/a","Test":"TestSkip","Output":"    a_test.go:9: needs root\n"}
{"Action":"skip","Package":"m/pkg/a","Test":"TestSkip","Elapsed":0}
`
	fail = `{"Action":"output","Package":"m/pkg/a","Test":"TestBad","Output":"    a_test.go:7: got 1, want 2\n"}
{"Action":"fail","Package":"m/pkg/a","Test":"TestBad","Elapsed":0.1}
`
	chat = `{"Action":"output","Package":"m/pkg/a","Test":"TestBad","Output":"a line of a log\n"}
`
	hung = `{"Action":"output","Package":"m/pkg/a","Test":"TestHung","Output":"panic: test timed out\n"}
`
	build = `{"ImportPath":"m/pkg/a","Action":"build-output","Output":"a.go:1:1: syntax error\n"}
{"ImportPath":"m/pkg/a","Action":"build-fail"}
{"Action":"fail","Package":"m/pkg/a","Elapsed":0,"FailedBuild":"m/pkg/a"}
`
)

func TestRun(t *testing.T) {
	const ciLine = "pkg/a/a_test.go ci the feature is newer than the oldest kernel\n"
	const localLine = "pkg/a/a_test.go local needs root\n"
	for _, tc := range []struct {
		name, in, skips string
		ci              bool
		args            []string
		wantErr         string // empty: success
		want, wantNot   string
	}{
		{name: "pass", in: stream + closeGood, want: "ok  \tm/pkg/a", wantNot: "chatter"},
		{name: "pass, verbose", in: stream + closeGood, args: []string{"-v"}, want: "--- PASS: TestGood (0.50s)"},
		{
			name: "slow", in: strings.ReplaceAll(stream+closeGood, ":0.5}", ":11.5}"),
			want: "testreport: seconds:    11.5 s  a TestGood\ntestreport: seconds:    11.5 s  a\n",
		},
		{
			name: "left out", want: "cluster: left to test-full: TestSlow\nok", wantNot: "chatter",
			in: `{"Action":"output","Package":"m/pkg/a","Output":"cluster: left to test-full: TestSlow\n"}` + "\n" +
				stream + closeGood,
		},
		{name: "quick", in: stream + closeGood, want: "1 tests passed", wantNot: "seconds:"},
		{
			name: "fail", in: stream + fail + closeBad,
			wantErr: "1 of 1 packages failed", want: "got 1, want 2", wantNot: "chatter",
		},
		{
			name: "fail, said again at the end", in: stream + fail + closeBad, wantErr: "1 of 1 packages failed",
			want: "testreport: failed: a TestBad: a_test.go:7: got 1, want 2\ntestreport: 1 packages",
		},
		{
			name: "fail below a long log", in: stream + strings.ReplaceAll(fail, "TestBad", "TestBad/part") +
				strings.Repeat(chat, 50) + strings.ReplaceAll(fail, "    a_test.go:7: got", "a log: got") + closeBad,
			wantErr: "1 of 1 packages failed",
			want:    "a log: got 1, want 2\ntestreport: failed: a TestBad/part: a_test.go:7: got 1, want 2\nFAIL",
		},
		{name: "build error", in: build, wantErr: "1 of 1 packages failed", want: "syntax error"},
		{name: "timeout", in: stream + hung + closeBad, wantErr: "failed", want: "panic: test timed out"},
		{name: "cut off", in: stream + hung, wantErr: "no package was tested"},
		{
			name: "cut off later", in: stream + closeGood + strings.ReplaceAll(hung, "pkg/a", "pkg/b"),
			wantErr: "ended before",
		},
		{
			name: "nothing", in: "go: cannot find main module\n",
			wantErr: "no package was tested", want: "go: cannot find",
		},
		{name: "skip", in: stream + skip + closeGood, want: "needs root"},
		{name: "skip in CI", in: stream + skip + closeGood, ci: true, wantErr: "TestSkip: skipped in CI"},
		{
			name: "skip in CI, local only", in: stream + skip + closeGood,
			ci: true, skips: localLine, wantErr: "skipped in CI",
		},
		{name: "skip in CI, allowed", in: stream + skip + closeGood, ci: true, skips: ciLine, want: "1 skipped"},
		{name: "bad list", in: stream + closeGood, skips: "pkg/a/a_test.go ci\n", wantErr: "and a reason"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list := filepath.Join(t.TempDir(), "skips.txt")
			if err := os.WriteFile(list, []byte("# comment\n\n"+tc.skips), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err := run(append([]string{"-skips", list}, tc.args...), tc.ci, strings.NewReader(tc.in), &out)
			switch {
			case tc.wantErr == "" && err != nil:
				t.Errorf("run: %v", err)
			case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
				t.Errorf("run: error %v, want %q", err, tc.wantErr)
			}
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("output lacks %q:\n%s", tc.want, out.String())
			}
			if tc.wantNot != "" && strings.Contains(out.String(), tc.wantNot) {
				t.Errorf("output has %q:\n%s", tc.wantNot, out.String())
			}
		})
	}
}
