package cli

import (
	"encoding/xml"
	"fmt"
	"io"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

// printJUnit prints the report that CI systems read.
func printJUnit(w io.Writer, list []perftest.Result) error {
	type failure struct {
		Message string `xml:"message,attr"`
	}
	type testcase struct {
		Class   string    `xml:"classname,attr"`
		Name    string    `xml:"name,attr"`
		Failure *failure  `xml:"failure,omitempty"`
		Skipped *struct{} `xml:"skipped,omitempty"`
		Out     string    `xml:"system-out,omitempty"`
	}
	suite := struct {
		XMLName  xml.Name   `xml:"testsuite"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Cases    []testcase `xml:"testcase"`
	}{Name: "fabricctl verify", Tests: len(list)}
	for _, r := range list {
		c := testcase{Class: r.A + "-" + r.B, Name: r.Rail, Out: r.Text}
		switch r.Verdict {
		case perftest.Slow, perftest.Failed:
			c.Failure = &failure{r.Text}
			suite.Failures++
		case perftest.Skipped:
			c.Skipped = &struct{}{}
			suite.Skipped++
		}
		suite.Cases = append(suite.Cases, c)
	}
	b, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, b)
	return err
}
