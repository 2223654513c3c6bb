package cli

import "testing"

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		`{"token": "abc\"def", "name": "x"}`:                                  `{"token": "REDACTED", "name": "x"}`,
		`etcd_password=hunter2 next`:                                          `etcd_password="REDACTED" next`,
		"Authorization: Bearer abcdefghijkl":                                  `Authorization: "REDACTED" REDACTED`,
		"curl -H 'x: bearer abcdefghijkl'":                                    "curl -H 'x: bearer REDACTED'",
		"jwt eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2ln done":              "jwt REDACTED TOKEN done",
		"https://user:pass@host/x":                                            "https://user:REDACTED@host/x",
		"client-key-data: LS0tLS1C":                                           `client-key-data: "REDACTED"`,
		"-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----": "REDACTED KEY",
		"mlx5_0: port 1 Active, PKey 0xffff, key=value": "mlx5_0: port 1 Active, PKey 0xffff, " +
			"key=value",
	} {
		if got := string(redact([]byte(in))); got != want {
			t.Errorf("%q\n got %q\nwant %q", in, got, want)
		}
	}
}
