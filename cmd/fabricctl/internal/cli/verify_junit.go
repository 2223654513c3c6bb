package cli

import (
	"encoding/xml"
	"fmt"
	"io"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

type junitMessage struct {
	Message string `xml:"message,attr"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Skipped *junitMessage `xml:"skipped,omitempty"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

func (s *junitSuite) add(class, name string, v perftest.Verdict, text string) {
	c := junitCase{Class: class, Name: name, Out: text}
	switch v {
	case perftest.Good:
	case perftest.Skipped:
		c.Skipped = &junitMessage{text}
		s.Skipped++
	default:
		c.Failure = &junitMessage{text}
		s.Failures++
	}
	s.Tests++
	s.Cases = append(s.Cases, c)
}

// printJUnit prints the report that CI systems read.
func printJUnit(w io.Writer, report *perftest.Report) error {
	suite := &junitSuite{Name: "fabricctl verify"}
	for i := range report.Results {
		r := &report.Results[i]
		suite.add(r.A+"-"+r.B, r.Rails(), r.Verdict, r.Text)
	}
	for i, f := range report.Findings {
		suite.add("fabric", fmt.Sprintf("finding %d", i+1), perftest.Failed, f)
	}
	if n := report.NCCL; n != nil {
		suite.add("nccl", "all_reduce", n.Verdict, n.Text)
	}
	b, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, b)
	return err
}
