package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// origin is where the database shows an advisory to people.
const origin = "https://pkg.go.dev/vuln/"

// osv is what this needs of an advisory in the OSV format (ossf.github.io/osv-schema), as the database of Go has it
// (go.dev/doc/security/vuln/database).
type osv struct {
	ID        string
	Withdrawn *time.Time
	Affected  []struct {
		Package struct{ Name string }
		Ranges  []struct {
			Events []struct{ Introduced, Fixed string }
		}
	}
}

func get(ctx context.Context, url string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, answer.Status)
	}
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		return fmt.Errorf("get %s: %w", url, err)
	}
	return nil
}

// fetch returns the database's advisories for these modules.
func fetch(ctx context.Context, db string, ours map[string]bool) (out []advisory, err error) {
	var index []struct {
		Path  string
		Vulns []struct{ ID string }
	}
	if err := get(ctx, db+"/index/modules.json", &index); err != nil {
		return nil, err
	}
	for _, m := range index {
		if !ours[m.Path] {
			continue
		}
		for _, v := range m.Vulns {
			var entry osv
			if err := get(ctx, db+"/ID/"+v.ID+".json", &entry); err != nil {
				return nil, err
			}
			a := advisory{ID: entry.ID, Module: m.Path, Ranges: entry.of(m.Path), Source: origin + entry.ID}
			if entry.Withdrawn == nil && a.Ranges != nil {
				out = append(out, a)
			}
		}
	}
	return out, nil
}

func (o osv) of(module string) (out []versions) {
	for _, a := range o.Affected {
		if a.Package.Name != module {
			continue
		}
		for _, r := range a.Ranges {
			open := false
			for _, e := range r.Events {
				switch {
				case e.Introduced != "":
					out, open = append(out, versions{From: e.Introduced}), true
				case open:
					out[len(out)-1].Fixed, open = e.Fixed, false
				}
			}
		}
	}
	return out
}

// merge puts the database's advisories in the place of those that came from it, or that it knows by the same ID.
func merge(old, fetched []advisory) []advisory {
	out := slices.Clone(fetched)
	for _, a := range old {
		known := slices.ContainsFunc(fetched, func(f advisory) bool { return f.ID == a.ID && f.Module == a.Module })
		if !known && !strings.HasPrefix(a.Source, origin) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b advisory) int {
		return strings.Compare(a.Module+" "+a.ID, b.Module+" "+b.ID)
	})
	return out
}

// sums are the modules of a go.sum, and the standard library.
func sums(file string) (map[string]bool, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{stdlib: true}
	for line := range strings.Lines(string(b)) {
		path, _, _ := strings.Cut(line, " ")
		out[path] = true
	}
	return out, nil
}

// update writes the list anew, and keeps the comment at its top.
func update(ctx context.Context, db, file, sum string) error {
	ours, err := sums(sum)
	if err != nil {
		return err
	}
	old, err := readAdvisories(file)
	if err != nil {
		return err
	}
	fetched, err := fetch(ctx, db, ours)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		out.WriteString(line)
	}
	for _, a := range merge(old, fetched) {
		out.WriteString(a.String() + "\n")
	}
	return os.WriteFile(file, []byte(out.String()), 0o644)
}
