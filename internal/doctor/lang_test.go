package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// What a reader types or looks for: names with signs in them, options, paths, variables, commands of fabricctl.
var verbatim = regexp.MustCompile("`[^`]+`|" + `fabricctl (doctor|generate) [a-z-]+|` +
	`fabricctl (discover|list|plan|repair|verify|nccl-env|watch|topology)|[\w.:/*<>\[\]-]*\w[_/=][\w.:/*-]+|--[a-z-]+|` +
	`\b[A-Z]{2}[A-Z0-9_]{2,}\b`)

// The Chinese catalogue has a row for each id, none without, in Chinese; names and commands are in it as they are.
func TestCatalogue(t *testing.T) {
	en, zh := texts[English](), texts[Chinese]()
	if len(zh) != len(zhTexts) {
		t.Errorf("%d rows for %d ids", len(zhTexts), len(zh))
	}
	for id, row := range en {
		other, ok := zh[id]
		if !ok {
			t.Errorf("%s has no row in the Chinese catalogue (internal/doctor/zh_*.go)", id)
			continue
		}
		if !chinese(other.Title) || !chinese(other.Cause) || other.Cure == "" {
			t.Errorf("%s: a text is missing or not Chinese: %+v", id, other)
		}
		for part, texts := range map[string][2]string{
			"title": {row.Title, other.Title}, "cause": {row.Cause, other.Cause}, "cure": {row.Cure, other.Cure},
		} {
			lost(t, id+": "+part, texts[0], texts[1])
		}
	}
	for id := range zh {
		if _, ok := en[id]; !ok {
			t.Errorf("%s has a row in the Chinese catalogue, and is no id", id)
		}
	}
}

// lost finds names and commands that a translation does not have.
func lost(t *testing.T, where, en, zh string) {
	t.Helper()
	for _, word := range verbatim.FindAllString(en, -1) {
		word = strings.TrimRight(word, ".:")
		if !strings.Contains(zh, word) {
			t.Errorf("%s: %q is not in the translation: %s", where, word, zh)
		}
	}
	for _, pair := range []string{"()", "{}", "[]"} {
		if strings.Count(zh, pair[:1]) != strings.Count(zh, pair[1:]) {
			t.Errorf("%s: unpaired %s: %s", where, pair, zh)
		}
	}
}

func chinese(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.Han, r) })
}

// source is the code of the checks, without its texts in other languages; texts of several lines are one.
func source(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../topology/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for _, f := range append(files, more...) {
		if strings.HasPrefix(f, "zh_") || strings.HasSuffix(f, "_test.go") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		said.Write(b)
	}
	return regexp.MustCompile(`"\s*\+\s*"`).ReplaceAllString(said.String(), "")
}

// Each phrase is one that the code says, so that one that has changed is found.
func TestPhrases(t *testing.T) {
	source := source(t)
	for i, p := range zhPhrases {
		if !strings.Contains(source, strings.ReplaceAll(p.en, `"`, `\"`)) || !chinese(p.zh) {
			t.Errorf("nothing says %q", p.en)
		}
		lost(t, p.en, p.en, p.zh)
		for _, before := range zhPhrases[:i] {
			if strings.Contains(p.en, before.en) {
				t.Errorf("%q has to stand before %q, which is a part of it", p.en, before.en)
			}
		}
	}
}

// What a check says instead of its cause or cure, or adds to it, has its phrase, if it is written down in that place.
func TestPhrasesOfChecks(t *testing.T) {
	instead := regexp.MustCompile(`\.(?:Cause|Cure) \+?= ("(?:[^"\\]|\\.)*")`)
	prose := regexp.MustCompile(`\b(the|is|are|has|its|and|or|for|not|no|of|in|on)\b`)
	for _, m := range instead.FindAllStringSubmatch(source(t), -1) {
		s, err := strconv.Unquote(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if got := Chinese.translate("", s); prose.MatchString(s) && !chinese(got) {
			t.Errorf("no phrase in zh_phrases*.go for %q", s)
		}
	}
}

// Findings are translated, with what a check has put into them; evidence stays.
func TestFindingsInChinese(t *testing.T) {
	deletion := finding("cluster-deletion", Fail, "Fabric ib is to be deleted")
	deletion.Cure = named(deletion.Cure, "ib")
	down := finding("host-port-state", Warn, "mlx5_1 is Down")
	down.Cause = "no peer answers: cable, transceiver or switch port"
	event := Finding{ID: "pod-event", Status: Fail, Cause: "added. " + English.text("log-dra-cdi").Cause,
		Docs: page("log-dra-cdi")}
	list := []Finding{deletion, down, finding("host-mtu", OK, "fine"), event}
	got := Chinese.Findings(list)
	for i, want := range []struct{ cause, cure string }{
		{texts[Chinese]()["cluster-deletion"].Cause, "kubectl patch fabric ib --type=merge"},
		{"对端没有应答：检查线缆、光模块或交换机端口", "mlxlink -d ADDRESS"},
		{"", ""},
		{"added. " + texts[Chinese]()["log-dra-cdi"].Cause, ""},
	} {
		g := got[i]
		if g.Cause != want.cause || !strings.Contains(g.Cure, want.cure) || g.Cure != "" && !chinese(g.Cure) ||
			!chinese(g.Title) || g.Evidence != list[i].Evidence || !strings.Contains(g.Docs, "doctor.zh.md#") {
			t.Errorf("%+v", g)
		}
	}
	if same := English.Findings(list); same[0].Cause != list[0].Cause || same[0].Docs != list[0].Docs ||
		same[0].Title == "" || list[0].Title != "" {
		t.Errorf("in English: %+v of %+v", same[0], list[0])
	}
}
