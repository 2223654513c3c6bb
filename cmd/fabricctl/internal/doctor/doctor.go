// Package doctor finds what is wrong with a host or a pod, and explains messages. Its checks are pure functions over a
// picture that was collected before; each finding has a stable id, evidence, cause, cure and a page.
package doctor

import (
	"cmp"
	"slices"
)

// Status is how bad a finding is.
type Status string

// The statuses.
const (
	OK   Status = "OK"
	Warn Status = "WARN" // works, or may work, but not as it should
	Fail Status = "FAIL"
)

// Finding is the outcome of one check for one thing.
type Finding struct {
	ID       string `json:"id"`
	Title    string `json:"title,omitempty"` // what is in order if it finds nothing
	Status   Status `json:"status"`
	Evidence string `json:"evidence"`        // what was seen, with the device named
	Cause    string `json:"cause,omitempty"` // empty when all is well
	Cure     string `json:"cure,omitempty"`  // a command, or what to write where
	Docs     string `json:"docs"`            // page and anchor
}

// Check is what docs/doctor.md says about an id.
type Check struct {
	ID    string
	Title string
	Cause string
	Cure  string
}

// finding fills in what the id says by itself.
func finding(id string, s Status, evidence string) Finding {
	f := Finding{ID: id, Status: s, Evidence: evidence, Docs: page(id)}
	if i := slices.IndexFunc(Checks, func(c Check) bool { return c.ID == id }); i >= 0 {
		f.Title = Checks[i].Title
		if s != OK {
			f.Cause, f.Cure = Checks[i].Cause, Checks[i].Cure
		}
	}
	return f
}

// Worst is the worst status of all.
func Worst(list []Finding) Status {
	worst := OK
	for _, f := range list {
		if f.Status == Fail || f.Status == Warn && worst == OK {
			worst = f.Status
		}
	}
	return worst
}

// Sort puts the worst first, and otherwise keeps the order.
func Sort(list []Finding) {
	rank := map[Status]int{Fail: 0, Warn: 1, OK: 2}
	slices.SortStableFunc(list, func(a, b Finding) int { return cmp.Compare(rank[a.Status], rank[b.Status]) })
}
