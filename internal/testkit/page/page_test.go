package page_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/testkit/page"
)

const example = "# Page\n" +
	"```\nnot walked\n```\n" +
	"## Steps\n<!-- walk: begin -->\n" +
	"**1. Look.** What there is:\n\n" +
	"<!-- walk: run -->\n```\n$ kubectl get nodes \\\n    -o wide\nNAME    AGE\ngpu-1   12d\n\n$ true\n```\n" +
	"<!-- walk: file fabrics.yaml -->\n```yaml\nkind: Fabric\n```\n" +
	"<!-- walk: helm -->\n```\nhelm install\n```\n" +
	"**2. Do.**\n" +
	"<!-- walk: kustomize -->\n```\n# a remark\nkubectl apply -k a\nkubectl get \\\n  all\n```\n" +
	"<!-- walk: run, on gpu-1 -->\n```\n$ rdma system\nnetns exclusive ...\n```\n" +
	"<!-- walk: not run, there is no registry, none at all -->\n```\nskopeo copy\n```\n" +
	"<!-- walk: run, fails -->\n```\n$ kubectl patch fabric ib\nThe Fabric \"ib\" is invalid\n```\n" +
	"<!-- walk: end -->\n" +
	"```\nnot walked\n```\n"

func TestParse(t *testing.T) {
	got, err := page.Parse(example, "kustomize", "kustomize", "helm")
	if err != nil {
		t.Fatal(err)
	}
	want := []page.Block{
		{
			Line: 11, Heading: "Steps", Step: "1. Look.",
			Text: "$ kubectl get nodes \\\n    -o wide\nNAME    AGE\ngpu-1   12d\n\n$ true\n",
			Commands: []page.Command{
				{
					Line: 11, Text: "kubectl get nodes \\\n    -o wide", Shown: true,
					Want: []string{"NAME    AGE", "gpu-1   12d", ""},
				},
				{Line: 16, Text: "true"},
			},
		},
		{Line: 20, Heading: "Steps", Step: "1. Look.", File: "fabrics.yaml", Text: "kind: Fabric\n"},
		{
			Line: 29, Heading: "Steps", Step: "2. Do.", Text: "# a remark\nkubectl apply -k a\nkubectl get \\\n  all\n",
			Commands: []page.Command{
				{Line: 30, Text: "kubectl apply -k a"},
				{Line: 31, Text: "kubectl get \\\n  all"},
			},
		},
		{
			Line: 36, Heading: "Steps", Step: "2. Do.", Node: "gpu-1", Text: "$ rdma system\nnetns exclusive ...\n",
			Commands: []page.Command{{
				Line: 36, Text: "rdma system", Shown: true, Want: []string{"netns exclusive ..."},
			}},
		},
		{
			Line: 41, Heading: "Steps", Step: "2. Do.", NotRun: "there is no registry, none at all",
			Text: "skopeo copy\n",
		},
		{
			Line: 45, Heading: "Steps", Step: "2. Do.", Fails: true,
			Text: "$ kubectl patch fabric ib\nThe Fabric \"ib\" is invalid\n",
			Commands: []page.Command{{
				Line: 45, Text: "kubectl patch fabric ib", Shown: true, Want: []string{`The Fabric "ib" is invalid`},
			}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A page that the test would not walk from end to end is refused.
func TestParseRefuses(t *testing.T) {
	const begin, end = "<!-- walk: begin -->\n", "<!-- walk: end -->\n"
	const block = "```\nls\n```\n"
	for text, want := range map[string]string{
		"# Page\n":                             "no block is walked",
		block:                                  "no block is walked",
		begin + block:                          "line 3: the block has no mark",
		begin + end:                            "no block is walked",
		begin + "```\n":                        "line 3: the block has no end",
		begin + "<!-- walk: run -->\n" + block: "walk: begin without walk: end",
		begin + begin:                          "line 2: walk: begin: it is not the other's turn",
		end:                                    "line 1: walk: end: it is not the other's turn",
		"<!-- walk: run -->\n" + block:         "it is before walk: begin",
		begin + "<!-- walk: run -->\n" + end:   "line 3: walk: end: it is not the other's turn",
		begin + "<!-- walk: run -->\n\ntext\n" + block + end:        "line 2: walk: run: no block follows",
		begin + "<!-- walk: run -->\n<!-- walk: helm -->\n" + block: "line 2: walk: run: no block follows",
		begin + "<!-- walk: runs -->\n" + block + end:               `"runs": want run or one of ["kustomize" "helm"]`,
		begin + "<!-- walk: run, fail -->\n" + block + end:          `"fail": want run or one of`,
		begin + "<!-- walk: file ../etc -->\n" + block + end:        `"file ../etc": want`,
		begin + "<!-- walk: file a, on gpu-1 -->\n" + block + end:   `"on gpu-1": want`,
		begin + "<!-- walk: run -->\n```\n# nothing\n```\n" + end:   "the block has no command",
		begin + "<!-- walk: not run -->\n" + block + end:            `"not run": want`,
	} {
		_, err := page.Parse(text, "kustomize", "kustomize", "helm")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{"NAME  AGE\nib  12d", "NAME   AGE\nib     4m31s\n", true},
		{"NAME  AGE\nib  12d", "NAME   AGE\nib     never\n", false},
		{"NAME  AGE\nib  12d", "NAME   AGE\n", false},
		{"ib  True", "ib True\nroce False\n", false},
		{"ib  8  True", "ib  7  True\n", false},
		{"ib  8/60", "ib  9/60\n", false},
		{"inet 10.0.0.1/16 dev", "inet 192.0.2.7/16 dev\n", true},
		{"inet 10.0.0.1/16 dev", "inet 192.0.2.7/24 dev\n", false},
		{"plugin v0.3.0", "plugin v0.12.1-rc.1\n", true},
		{"mlx5_0 0000:3b:00.0", "mlx5_0 0001:00:10.0\n", true},
		{"mlx5_0 0000:3b:00.0", "mlx5_0 -\n", false},
		{"pod/fabric-agent-2kjw8", "pod/fabric-agent-zzzzz\n", false}, // a word is compared, not its parts
		{"fabric-agent-2kjw8 1/1", "fabric-agent-zzzzz 1/1\n", true},
		{"fabric-agent-2kjw8 1/1", "fabric-other-zzzzz 1/1\n", false},
		{"...\nlast", "first\nsecond\nlast\n", true},
		{"...\nlast", "last\n", true},
		{"...\nlast", "last\nnot\n", false},
		{"first\n...", "first\n", true},
		{"...\nb\n...\nb", "a\nb\nc\nb\n", true},
		{"netns exclusive ...", "netns exclusive copy-on-fork on\n", true},
		{"netns exclusive ...", "netns exclusive\n", true},
		{"netns exclusive ...", "netns shared copy-on-fork on\n", false},
		{"a b ...", "a\n", false},
		{"a\n\nb\n", "a\nb\n\n", true},
	} {
		if err := page.Compare(strings.Split(c.want, "\n"), c.got); (err == nil) != c.same {
			t.Errorf("%q, %q: %v", c.want, c.got, err)
		}
	}
}

// walker answers commands from a table: the n-th time with the n-th answer, then with the last.
func walker(t *testing.T, answers map[string][]string) (w *page.Walker, done *[]string) {
	t.Helper()
	done = new([]string)
	return &page.Walker{
		Shell: func(node, script string) (string, error) {
			*done = append(*done, strings.TrimPrefix(node+": "+script, ": "))
			all, known := answers[script]
			if !known {
				return "no such command", errors.New("exit status 127")
			}
			if len(all) > 1 {
				answers[script] = all[1:]
			}
			text, failed := strings.CutPrefix(all[0], "FAIL ")
			if failed {
				return text, errors.New("exit status 1")
			}
			return text, nil
		},
		Write: func(name, _ string) error { *done = append(*done, "write "+name); return nil },
		Until: func(what string, f func() error) (err error) {
			for range 3 {
				if err = f(); err == nil {
					return nil
				}
			}
			return fmt.Errorf("%s: %w", what, err)
		},
		Log:   t.Logf,
		Names: []string{"gpu-1 12d", "lab1 3d", "gpu-1", "lab1"},
	}, done
}

func TestWalk(t *testing.T) {
	w, done := walker(t, map[string][]string{
		"kubectl get nodes \\\n    -o wide": {"NAME AGE\n", "NAME  AGE\nlab1  5s\n"}, // not at once
		"true":                              {""},
		"kubectl apply -k a":                {"whatever"},
		"kubectl get \\\n  all":             {""},
		"rdma system":                       {"netns exclusive copy-on-fork on\n"},
		"kubectl patch fabric ib":           {"FAIL The Fabric \"ib\" is invalid\n"},
	})
	blocks, err := page.Parse(example, "kustomize", "kustomize", "helm")
	if err != nil {
		t.Fatal(err)
	}
	for i := range blocks {
		if err := w.Walk(&blocks[i]); err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"kubectl get nodes \\\n    -o wide", "kubectl get nodes \\\n    -o wide", "true", "write fabrics.yaml",
		"kubectl apply -k a", "kubectl get \\\n  all", "lab1: rdma system", "kubectl patch fabric ib",
	}
	if diff := cmp.Diff(want, *done); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What differs from the page fails, with the line of the page.
func TestWalkFails(t *testing.T) {
	walk := func(mark, block string, answers map[string][]string) (err error) {
		w, _ := walker(t, answers)
		text := "<!-- walk: begin -->\n<!-- walk: " + mark + " -->\n```\n" + block + "```\n<!-- walk: end -->\n"
		blocks, err := page.Parse(text, "")
		if err != nil {
			t.Fatal(err)
		}
		return w.Walk(&blocks[0])
	}
	for _, c := range []struct{ mark, block, answer, want string }{
		{"run", "make\n", "FAIL no rule", "line 4: make: exit status 1: no rule"},
		{"run", "$ kubectl apply\ncreated\n", "changed\n", "printed was\nchanged"},
		{
			"run", "$ kubectl get nodes\ngpu-1\n", "lab2\n",
			"line 4: kubectl get nodes: it prints what the page shows: the page shows\nlab1",
		},
		{"run, fails", "$ kubectl patch\nrefused\n", "refused\n", "it succeeds: refused"},
		{"run, fails", "$ kubectl patch\nrefused\n", "FAIL forbidden\n", "printed was\nforbidden"},
	} {
		command, _, _ := strings.Cut(strings.TrimPrefix(c.block, "$ "), "\n")
		err := walk(c.mark, c.block, map[string][]string{command: {c.answer}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.block, err, c.want)
		}
	}
}

// The pages that integration/cluster walks can be walked.
func TestWalkedPages(t *testing.T) {
	for _, name := range []string{"docs/kubernetes.md", "docs/install.md"} {
		b, err := os.ReadFile("../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, way := range []string{"kustomize", "helm"} {
			if _, err := page.Parse(string(b), way, "kustomize", "helm"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// The recording that the site plays on a page has the commands of the page; its nodes are lab1 and lab2.
func TestRecordedPage(t *testing.T) {
	text, err := os.ReadFile("../../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := page.Parse(string(text), "helm", "kustomize", "helm")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range blocks {
		b := &blocks[i]
		switch {
		case b.NotRun != "":
		case b.File != "":
			want = append(want, "cat "+b.File)
		default:
			for _, c := range b.Commands {
				want = append(want, strings.ReplaceAll(c.Text, "gpu-", "lab"))
			}
		}
	}
	recording, err := os.ReadFile("../../../docs/casts/kubernetes.cast")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	_, events, _ := strings.Cut(string(recording), "\n") // after the header
	for line := range strings.Lines(events) {
		var e [3]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if command, ok := strings.CutPrefix(fmt.Sprint(e[2]), "$ "); ok {
			got = append(got, strings.TrimSpace(strings.ReplaceAll(command, "\r", "")))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/casts/kubernetes.cast (-page +recording), FABRIC_E2E_CAST writes it:\n%s", diff)
	}
}
