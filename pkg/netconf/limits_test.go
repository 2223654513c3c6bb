package netconf

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// list is a JSON list of n equal entries.
func list(n int, entry string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(entry+",", n), ",") + "]"
}

// Each list is read up to its limit. One entry more is refused, with the field, the number and the limit; DEL goes on.
func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		field string
		most  int
		conf  func(n int) string
	}{
		{"dns.nameservers", 16, func(n int) string { return `"dns":{"nameservers":` + list(n, `"10.0.0.1"`) + `}` }},
		{"dns.search", 64, func(n int) string { return `"dns":{"search":` + list(n, `"a.example"`) + `}` }},
		{"dns.options", 64, func(n int) string { return `"dns":{"options":` + list(n, `"ndots:5"`) + `}` }},
		{"runtimeConfig.ips", 64, func(n int) string { return `"runtimeConfig":{"ips":` + list(n, `"::1"`) + `}` }},
		{"ipam", 1024, func(n int) string { return `"ipam":{"type":"x","exclude":` + list(n, `"10.0.0.1/32"`) + `}` }},
		{"ipam", 1024, func(n int) string { return `"ipam":{"type":"x","a":[[` + list(n, `{"a":[ ]}`) + `]]}` }},
		{"prevResult", 1024, func(n int) string { return `"prevResult":{"routes":` + list(n, `{"dst":"::/0"}`) + `}` }},
		{"x/y", 1024, func(n int) string { return `"x/y":` + list(n, ` "],[,\"" `) }},
		{"x/z", 1024, func(n int) string { return `"x/z":{` + strings.Trim(list(n, `"a" : 1`), "[]") + `}` }},
	} {
		full := conf(`"device":"d",` + tt.conf(tt.most))
		if _, err := Parse([]byte(full), envADD); err != nil {
			t.Errorf("%s with %d entries: %v", tt.field, tt.most, err)
		}
		more := conf(`"device":"d",` + tt.conf(tt.most+1))
		wantError(t, more, envADD, CodeConfig, fmt.Sprintf("field %q: has %d entries: want at most %d",
			tt.field, tt.most+1, tt.most))
		many := conf(`"device":"d",` + tt.conf(5000)) // it is the same field that is named
		wantError(t, many, envADD, CodeConfig, fmt.Sprintf("field %q: has 5000 entries: want at most %d",
			tt.field, tt.most))
		del := envADD
		del.Command = "DEL"
		if _, err := Parse([]byte(more), del); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	env := envADD
	env.Args = "IP=" + strings.TrimSuffix(strings.Repeat("10.0.0.1,", 65), ",")
	wantError(t, conf(`"device":"d"`), env, CodeEnvironment, "CNI_ARGS IP: has 65 entries: want at most 64")
	var fields strings.Builder
	for i := range 1024 {
		fmt.Fprintf(&fields, `"_%d":1,`, i)
	}
	wantError(t, conf(fields.String()+`"device":"d"`), envADD, CodeConfig, "configuration: has 1028 entries")
	wantError(t, conf(`"device":"`+strings.Repeat("x", 5000)+`"`), envADD, CodeConfig, "at most 4096 bytes")
	wantError(t, conf(`"device":"d","dns":{"search":["`+long+`"]}`), envADD, CodeConfig, "at most 255 bytes")
}

// A GC that forgot attachments would take them from their pods: too many are an error.
func TestLimitOfGC(t *testing.T) {
	env := Env{Command: "GC"}
	gc := func(n int) error {
		_, err := Parse([]byte(conf(`"cni.dev/valid-attachments":`+list(n, `{"containerID":"a","ifname":"b"}`))), env)
		return err
	}
	if err := gc(20000); err != nil {
		t.Error(err)
	}
	var e *Error
	if err := gc(20001); !errors.As(err, &e) || e.Code != CodeConfig {
		t.Errorf("one too many: %v", err)
	}
	if err := gc(40000); !errors.As(err, &e) || e.Code != CodeDecode {
		t.Errorf("over 1 MiB: %v", err)
	}
}
