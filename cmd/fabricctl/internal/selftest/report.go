// Package selftest does on a node with real HCAs what the lab does on simulated ones: it has the installed plugin
// attach and return devices, also when pods and the plugin die on the way, and compares the host before and after. The
// report is for an issue: it has no names, addresses or GUIDs of the site.
package selftest

import (
	"math"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// Status is how a step ended.
type Status string

// How steps end.
const (
	Pass Status = "PASS"
	Fail Status = "FAIL"
	Skip Status = "SKIP"
)

// Report is what selftest prints.
type Report struct {
	Time     string    `json:"time"`    // of the start, RFC 3339
	Seconds  float64   `json:"seconds"` // that it took
	Version  string    `json:"version"` // of fabricctl
	Plugin   string    `json:"plugin"`  // version of the plugin that was called
	Kernel   string    `json:"kernel"`
	OS       string    `json:"os,omitempty"` // as /etc/os-release calls it
	RDMAMode string    `json:"rdmaMode,omitempty"`
	Adapters []Adapter `json:"adapters"`
	Warnings []string  `json:"warnings"` // what was known before that could disturb
	Steps    []Step    `json:"steps"`
	Restored bool      `json:"restored"` // at the end the host is what it was before the first step
	Left     []string  `json:"left"`     // what to do by hand if it is not
	Summary  Summary   `json:"summary"`
}

// Adapter is a device that was tested.
type Adapter struct {
	Device        string  `json:"device"` // as it was asked for
	Kind          string  `json:"kind,omitempty"`
	Model         string  `json:"model,omitempty"`
	ID            string  `json:"id,omitempty"`    // PCI vendor:device
	Board         string  `json:"board,omitempty"` // PSID
	Firmware      string  `json:"firmware,omitempty"`
	Driver        string  `json:"driver,omitempty"`
	DriverVersion string  `json:"driverVersion,omitempty"` // of a driver that is not the kernel's own
	LinkLayer     string  `json:"linkLayer,omitempty"`
	Interface     string  `json:"interface,omitempty"` // kind: ipoib, ethernet; empty without one
	State         string  `json:"state,omitempty"`     // of port 1, before
	RateGb        float64 `json:"rateGb,omitempty"`
}

// Step is what one step found.
type Step struct {
	Device  string   `json:"device,omitempty"` // empty: it is about the host
	Name    string   `json:"name"`
	Result  Status   `json:"result"`
	Seconds float64  `json:"seconds"`
	Text    string   `json:"text,omitempty"` // the plugin's message, or why it was skipped
	Diff    []string `json:"diff,omitempty"` // what of the host differs: - before, + after
	// Missed says of a skipped step that the report says less without it: it could not be done here, and should be.
	Missed bool `json:"missed,omitempty"`
}

// Summary counts steps.
type Summary struct {
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
	Missed  int `json:"missed"` // of the skipped ones
}

// Sum counts the steps.
func (r *Report) Sum() {
	r.Summary = Summary{}
	for i := range r.Steps {
		switch s := &r.Steps[i]; s.Result {
		case Pass:
			r.Summary.Passed++
		case Fail:
			r.Summary.Failed++
		case Skip:
			r.Summary.Skipped++
			if s.Missed {
				r.Summary.Missed++
			}
		}
	}
}

// Good says that everything that should be tested was, and passed.
func (r *Report) Good() bool { return r.Restored && r.Summary.Failed == 0 && r.Summary.Missed == 0 }

// Bounds of what a report quotes.
const (
	maxText  = 1 << 10 // bytes of a message
	maxWord  = 100     // bytes of a version or a name
	maxLines = 40      // of a diff
)

// Redacted is the report with every text through hide, quoted and bounded, for people who do not know the site.
func (r *Report) Redacted(hide func(string) string) Report {
	out := *r
	text := func(s string, most int) string { return quote.Clip(quote.Terminal(hide(s)), most) }
	word := func(s string) string { return quote.Clip(quote.Terminal(s), maxWord) } // a version looks like an address
	texts := func(list []string) []string {
		all := make([]string, 0, len(list))
		for _, s := range list {
			all = append(all, text(s, maxText))
		}
		return all
	}
	out.Version, out.Plugin, out.Kernel, out.OS = word(r.Version), word(r.Plugin), word(r.Kernel), word(r.OS)
	out.Warnings, out.Left = texts(r.Warnings), texts(r.Left)
	out.Adapters = make([]Adapter, 0, len(r.Adapters))
	for _, a := range r.Adapters {
		a.Device = text(a.Device, maxWord)
		for _, s := range []*string{&a.Kind, &a.Model, &a.ID, &a.Board, &a.Firmware, &a.Driver, &a.DriverVersion,
			&a.LinkLayer, &a.Interface, &a.State} {
			*s = word(*s)
		}
		out.Adapters = append(out.Adapters, a)
	}
	out.Steps = make([]Step, 0, len(r.Steps))
	for _, s := range r.Steps {
		s.Device, s.Text = text(s.Device, maxWord), text(s.Text, maxText)
		if s.Diff = texts(s.Diff); len(s.Diff) == 0 {
			s.Diff = nil
		}
		out.Steps = append(out.Steps, s)
	}
	return out
}

// seconds is a time in seconds, to the hundredth.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*100) / 100 }
