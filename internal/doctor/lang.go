package doctor

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Lang is the language of titles, causes and cures. Evidence, names and commands stay what they are.
type Lang string

// The languages.
const (
	English Lang = "en"
	Chinese Lang = "zh" // simplified
)

// Langs are the languages, the first one without being asked.
var Langs = []Lang{English, Chinese}

// zhTexts are the rows of the Chinese catalogue: each id of Checks and Messages has one (TestCatalogue).
var zhTexts = slices.Concat(zhHost, zhCluster, zhPod, zhClaims, zhMessages, zhJob, zhUCX, zhClusterMessages,
	zhClaimMessages, zhFabric, zhJobChecks)

// texts are the rows of a language by their ids; of a message as of a check.
var texts = map[Lang]func() map[string]Check{
	English: sync.OnceValue(func() map[string]Check {
		list := slices.Clone(Checks)
		for i := range Messages {
			m := &Messages[i]
			list = append(list, Check{m.ID, m.Title, m.Cause, m.Cure})
		}
		return byID(list)
	}),
	Chinese: sync.OnceValue(func() map[string]Check { return byID(zhTexts) }),
}

func byID(list []Check) map[string]Check {
	out := make(map[string]Check, len(list))
	for _, c := range list {
		out[c.ID] = c
	}
	return out
}

// text is what is said of an id; in English where the catalogue has no row.
func (l Lang) text(id string) Check {
	if c, ok := texts[cmp.Or(l, English)]()[id]; ok {
		return c
	}
	return texts[English]()[id]
}

// Page is where an id is explained.
func (l Lang) Page(id string) string {
	if l == Chinese {
		return strings.Replace(page(id), "doctor.md", "doctor.zh.md", 1)
	}
	return page(id)
}

// Findings are the same findings in a language, with their titles. What a check has added to a cause, or says instead
// of it, is translated if the catalogue has the phrase.
func (l Lang) Findings(list []Finding) []Finding {
	out := slices.Clone(list)
	for i := range out {
		f := &out[i]
		f.Title = l.text(f.ID).Title
		if l != Chinese {
			continue
		}
		_, id, _ := strings.Cut(f.Docs, "#") // of an Event the message's
		f.Docs = l.Page(id)
		f.Cause, f.Cure = l.translate(id, f.Cause), l.translate(id, f.Cure)
	}
	return out
}

// translate translates a cause or a cure of an id, or what is known of it.
func (l Lang) translate(id, s string) string {
	en, is := English.text(id), l.text(id)
	for _, p := range slices.Concat([]phrase{{en.Cause, is.Cause}, {en.Cure, is.Cure}}, zhPhrases) {
		s = p.in(s)
	}
	return s
}

// phrase is a cause or a cure, or a part of one that a check adds; NAME stands for the name of an object, which the
// check may have put in its place.
type phrase struct{ en, zh string }

var nameWord = regexp.MustCompile(`\bNAME\b`)

// in translates the phrase where it stands in a text.
func (p phrase) in(s string) string {
	switch {
	case p.en == "" || p.en == p.zh:
		return s
	case !nameWord.MatchString(p.en) || strings.Contains(s, p.en):
		return strings.ReplaceAll(s, p.en, p.zh)
	}
	parts := nameWord.Split(p.en, -1)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	found := regexp.MustCompile(strings.Join(parts, `([^\s:;,]+)`)).FindStringSubmatchIndex(s)
	if found == nil {
		return s
	}
	name := s[found[2]:found[3]]
	return s[:found[0]] + nameWord.ReplaceAllLiteralString(p.zh, name) + s[found[1]:]
}
