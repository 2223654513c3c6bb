package redact

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/growth"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		`{"token": "abc\"def", "name": "x"}`: "{\n  \"name\": \"x\"," +
			"\n  \"token\": \"(removed)\"\n}\n",
		`etcd_password=hunter2 next`:                                          `etcd_password=(removed)`,
		`a "token": "abc\"def", "name": "x"`:                                  `a "token": "(removed)", "name": "x"`,
		"Authorization: Bearer abcdefghijkl":                                  "Authorization: (removed)",
		"curl -H 'x: bearer abcdefghijkl'":                                    "curl -H 'x: bearer (removed)'",
		"jwt eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2ln done":              "jwt (removed) done",
		"https://user:pass@host/x":                                            "https://(removed)@host/x",
		"client-key-data: LS0tLS1C":                                           "client-key-data: (removed)",
		"-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----": "(removed)",
		"mlx5_0: port 1 Active, PKey 0xffff, key=value": "mlx5_0: port 1 Active, PKey" +
			" 0xffff, key=value",
		"default via 10.0.0.1 dev eth0 proto dhcp src 10.0.0.7 metric 100": "default via 10.0.0.1 dev eth0" +
			" proto dhcp src 10.0.0.7 metric 100",
	} {
		if got := string(Text([]byte(in))); got != want {
			t.Errorf("%q\n got %q\nwant %q", in, got, want)
		}
	}
}

// secretForms have the secret S3CRET in each; mlx5_0, if there, is a fact that must stay.
var secretForms = []string{
	"mlx5_0\n[Service]\nEnvironment=\"HTTP_PROXY=http://user:S3CRET@host:3128\" \"NO_PROXY=x\"\n",
	"HTTPS_PROXY=S3CRET:S3CRET@proxy:3128",
	"ftp://S3CRET@host/mlx5_0", "postgres://u:p@S3CRET/x@db/mlx5_0", "jdbc:oracle:thin:scott/S3CRET@db",
	`mlx5_0 {\"password\":\"S3CRET\"}`, `mlx5_0 "{\"a\":\"{\\\"password\\\":\\\"S3CRET x\\\"}\"}"`,
	`{"dev": "mlx5_0", "conf": "{\"password\":\"S3CRET\"}"}`,
	`{"conf": "{\"a\":\"{\\\"password\\\":\\\"S3 S3CRET\\\"}\"}"}`,
	`{"password": {"a": ["S3CRET"]}, "d": "mlx5_0"}`, `{"p\u0061ssword": "S3CRET", "d": "mlx5_0"}`,
	`x \u0022password\u0022:\u0022S3CRET\u0022`, `{"args": ["mlx5_0", "--password", "S3CRET"]}`,
	`{"env": [{"name": "DB_PASSWORD", "value": "S3CRET"}, {"name": "A", "value": "mlx5_0"}]}`,
	`{"env": [{"value": "S3CRET", "name": "DB_PASSWORD"}]}`, `{"https://u:S3CRET@h": 1}`,
	"mlx5_0 --password S3CRET mlx5_0", "mlx5_0 --token=S3CRET", `--password "S3 S3CRET" mlx5_0`,
	"args:\n- --password\n- S3CRET\n- mlx5_0", `["--token", "S3CRET" `, "curl -u user:S3CRET http://mlx5_0/",
	"mlx5_0 pass=S3CRET", "DB_PASS=S3 S3CRET", "dbPass: 'it''s S3CRET'", `password="a"b S3CRET`,
	`pwd='S3 S3CRET', mlx5_0`,
	"password: S3 S3CRET\nname: mlx5_0", "password: \"S3\n  S3CRET\"\nname: mlx5_0",
	"a:\n  password: |\n    S3\n\n    S3CRET\n  name: mlx5_0", "password: >-\n  S3CRET\nname: mlx5_0",
	"- password: |2+ # x\n    S3CRET\n  name: mlx5_0", "password:\n  S3CRET\nname: mlx5_0",
	"tokens:\n- S3\n- S3CRET\nname: mlx5_0", "password: a\n  b S3CRET\nname: mlx5_0",
	"password = a\\\n S3CRET\nmlx5_0",
	"password = \"\"\"\nx = \"\nS3CRET\"\"\"\nname = mlx5_0", "password: !!binary |\n  S3CRET\nname: mlx5_0",
	"- name: DB_PASSWORD\n  value: S3CRET\n- name: mlx5_0",
	"- name: DB_PASSWORD\n  value: |\n    S3CRET\n- name: mlx5_0",
	"client-key-data: S3CRET\nname: mlx5_0", "    client-certificate-data: S3CRET",
	"user:\n  token: S3CRET\nname: mlx5_0",
	"Authorization: Bearer S3CRET", "authorization: Basic S3CRET==", "-H 'X: bearer S3CRET12'",
	"Cookie: a=b; session=S3CRET", "set-cookie: S3CRET\r\nmlx5_0: x", "X-Auth-Token: S3CRET", "x-api-key: S3CRET",
	"-----BEGIN PRIVATE KEY-----\nS3CRET\n-----END PRIVATE KEY-----\nmlx5_0",
	"-----BEGIN OPENSSH PRIVATE KEY-----\\nS3CRET\\n-----END OPENSSH PRIVATE KEY----- mlx5_0",
	"mlx5_0\n-----BEGIN EC PRIVATE KEY-----\nS3CRET", "x LS0tLS1CRUdJTiBS3CRET mlx5_0", "x eyJhdXRocyI6S3CRET mlx5_0",
	"x eyJhbGciOiJSUzI1NiJ9.S3CRET.S3CRET mlx5_0", "aws_access_key_id = AKIAS3CRETXXXXXXXX",
	"id AKIA0000S3CRET000000 mlx5_0", "aws_secret_access_key = S3CRET\nregion = mlx5_0",
	"AccountName=x;AccountKey=S3CRET==;",
	"ghp_S3CRETxxxxxxxxxxxxxxxxx mlx5_0", "mlx5_0 sk-S3CRETxxxxxxxxxxxxxxxxx", "root:$6$salt$S3CRET:1",
	"user-data: S3CRET\nname: mlx5_0", "userdata: |\n  #cloud-config\n  S3CRET\nname: mlx5_0",
	"mlx5_0\n#cloud-config\nusers: S3CRET\n", "user_data = I2Nsb3VkLWNvbmZpZS3CRET",
	`"auths": {"host": {"auth": "S3CRET"}}`, `{"auths": {"host": {"auth": "S3CRET"}}, "d": "mlx5_0"}`,
	"Server=x;User ID=y;Password=S3 S3CRET;Database=z", "host=x password='S3 S3CRET' dbname=mlx5_0", "dsn: S3CRET",
	"machine x login y password S3CRET\nmlx5_0", "<password>S3CRET</password> mlx5_0", `<user password="S3CRET"/>`,
	"https://h/x?X-Amz-Signature=S3CRET", "https://h/?access_token=S3CRET", "password%3DS3CRET", "password => S3CRET",
	"'password': b'S3CRET'", "&quot;password&quot;: &quot;S3CRET&quot;", "PASSWORD := S3CRET", `password: "S3CRET`,
}

func TestSecretForms(t *testing.T) {
	for _, in := range secretForms {
		got := string(Text([]byte(in)))
		if strings.Contains(got, "S3CRET") {
			t.Errorf("%q\n got %q", in, got)
		}
		if strings.Count(got, "mlx5_0") != strings.Count(in, "mlx5_0") {
			t.Errorf("%q\n got %q, which misses mlx5_0", in, got)
		}
		if again := string(Text([]byte(got))); again != got {
			t.Errorf("%q\nonce  %q\ntwice %q", in, got, again)
		}
	}
}

// The time is linear in the text, whatever it is made of.
func TestTextIsLinear(t *testing.T) {
	for _, unit := range []string{"password", "password: ", "password: \"", "password:\n", "\\\"password\\\":\\\"",
		" ", "\\",
		"a", "--token ", "name: token\nvalue: ", "-----BEGIN PRIVATE KEY", "x://", "a:", "eyJ", "[", `{"a":`,
		"<token"} {
		growth.Linear(t, unit, 1<<12, func(n int) { Text(bytes.Repeat([]byte(unit), n/len(unit))) })
	}
}

func FuzzText(f *testing.F) {
	for _, in := range secretForms {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1<<12 { // TestTextIsLinear has the long ones
			return
		}
		once := Text(in)
		if twice := Text(once); !bytes.Equal(once, twice) {
			t.Fatalf("once %q, twice %q", once, twice)
		}
		if len(once) > 16*len(in)+64 {
			t.Fatalf("%d bytes of %d: %q", len(once), len(in), once)
		}
		for _, name := range []string{"proc/cmdline", "etc/modprobe.d/x.conf", "etc/systemd/system/x",
			"etc/containerd/x",
			"var/lib/kubelet/x", "etc/cni/net.d/x"} {
			File(name, in)
		}
		Log(in)
	})
}
