package encode

import (
	"net/netip"
	"testing"
	"time"
)

type part struct {
	List []string       `json:"list"`
	Map  map[string]int `json:"map"`
	None []string       `json:"none,omitempty"`
}

type whole struct {
	Name  string       `json:"name"`
	Parts []part       `json:"parts"`
	At    *part        `json:"at"`
	Any   any          `json:"any"`
	Addr  netip.Prefix `json:"addr"`
	Time  time.Time    `json:"time"`

	hidden *part
}

// An object begins with its version and kind, and has no null where a list or a map belongs.
func TestObject(t *testing.T) {
	in := whole{
		Name: "x", Parts: []part{{}}, At: &part{List: []string{"a"}}, Any: part{}, hidden: &part{},
		Addr: netip.MustParsePrefix("10.0.0.0/8"),
	}
	for format, want := range map[string]string{"json": `{
  "apiVersion": "fabricctl.fabric.dev/v1",
  "kind": "Whole",
  "name": "x",
  "parts": [
    {
      "list": [],
      "map": {}
    }
  ],
  "at": {
    "list": [
      "a"
    ],
    "map": {}
  },
  "any": {
    "list": [],
    "map": {}
  },
  "addr": "10.0.0.0/8",
  "time": "0001-01-01T00:00:00Z"
}
`, "yaml": `apiVersion: fabricctl.fabric.dev/v1
kind: Whole
addr: 10.0.0.0/8
any:
  list: []
  map: {}
at:
  list:
  - a
  map: {}
name: x
parts:
- list: []
  map: {}
time: "0001-01-01T00:00:00Z"
`} {
		got, err := Object(format, "Whole", in)
		if err != nil || string(got) != want {
			t.Errorf("%s: %v:\n%s\nwant:\n%s", format, err, got, want)
		}
	}
	if in.Parts[0].List != nil || in.hidden == nil {
		t.Errorf("it has changed its argument: %+v", in)
	}
	for format, want := range map[string]string{
		"json": "{\n  \"apiVersion\": \"fabricctl.fabric.dev/v1\",\n  \"kind\": \"None\"\n}\n",
		"yaml": "apiVersion: fabricctl.fabric.dev/v1\nkind: None\n",
	} {
		if got, err := Object(format, "None", struct{}{}); err != nil || string(got) != want {
			t.Errorf("%s of nothing: %v: %s", format, err, got)
		}
	}
	if got, err := Object("json", "List", []string{"a"}); err == nil {
		t.Errorf("a list is an object: %s", got)
	}
}
