package nccl

import (
	"fmt"
	"strings"
	"testing"
)

var ports = []struct {
	hca  string
	port uint32
}{{"mlx5_0", 1}, {"mlx5_0", 2}, {"mlx5_1", 1}, {"mlx5_10", 1}, {"mlx5_bond_0", 1}}

func selected(l *List) string {
	var out []string
	for _, p := range ports {
		if l.Selects(p.hca, p.port) {
			out = append(out, fmt.Sprintf("%s:%d", strings.TrimPrefix(p.hca, "mlx5_"), p.port))
		}
	}
	return strings.Join(out, " ")
}

// The values of the variables, and what the libraries make of them.
func TestLists(t *testing.T) {
	const all = "0:1 0:2 1:1 10:1 bond_0:1"
	var many []string
	for i := range maxEntries {
		many = append(many, fmt.Sprintf("x%d", i))
	}
	for _, c := range []struct {
		parse       func(string) List
		value, want string
	}{
		{ParseNCCL, "mlx5", all},
		{ParseNCCL, "mlx5_1", "1:1 10:1"},
		{ParseNCCL, "=mlx5_1", "1:1"},
		{ParseNCCL, "=mlx5_0:2", "0:2"},
		{ParseNCCL, "=mlx5_0:3", ""},
		{ParseNCCL, "mlx5_0:x", ""}, // atoi: port 0
		{ParseNCCL, "mlx5_0:-1", "0:1 0:2"},
		{ParseNCCL, "mlx5_0: 2junk", "0:2"},
		{ParseNCCL, "mlx5_0:+1", "0:1"},
		{ParseNCCL, "=mlx5_0:1,mlx5_1:1", "0:1 1:1"},
		{ParseNCCL, "^mlx5_bond", "0:1 0:2 1:1 10:1"},
		{ParseNCCL, "^=mlx5_1", "0:1 0:2 10:1 bond_0:1"},
		{ParseNCCL, "^mlx5_0:1", "0:2 1:1 10:1 bond_0:1"},
		{ParseNCCL, "=^mlx5_1", ""},
		{ParseNCCL, "", all},
		{ParseNCCL, "=", all},
		{ParseNCCL, ",:1,", all},
		{ParseNCCL, "^", ""},
		{ParseNCCL, "=mlx5_0, mlx5_1", "0:1 0:2"}, // the space is a part of the name
		{ParseNCCL, "=" + strings.Join(many, ",") + ",mlx5_1", ""},
		{ParseUCX, "all", all},
		{ParseUCX, "mlx5_0:1", "0:1"},
		{ParseUCX, "mlx5_0", ""}, // the port belongs to the name
		{ParseUCX, "mlx5_0:*", "0:1 0:2"},
		{ParseUCX, "mlx5_[0-1]:1,mlx5_bond_0:1", "0:1 1:1 bond_0:1"},
		{ParseUCX, "mlx5_[!0]:1", "1:1"},
		{ParseUCX, "mlx5_1?:1", "10:1"},
		{ParseUCX, "^mlx5_bond_0:1", "0:1 0:2 1:1 10:1"},
		{ParseUCX, "=mlx5_0:1", ""},
		{ParseUCX, "[", ""},
		{ParseUCX, "eth0", ""},
		{ParseNVSHMEM, "mlx5_1", "1:1"},
		{ParseNVSHMEM, "mlx5_0:1,mlx5_10", "0:1 10:1"},
		{ParseNVSHMEM, "^mlx5_0", "1:1 10:1 bond_0:1"},
		{ParseNVSHMEM, "=mlx5_0", ""},
		{ParseNVSHMEM, "", all},
	} {
		l := c.parse(c.value)
		if got := selected(&l); got != c.want {
			t.Errorf("%q selects %q, want %q", c.value, got, c.want)
		}
	}
}

// Whatever a value has, nothing but its own entries is named, and there are not too many of them.
func FuzzLists(f *testing.F) {
	for _, s := range []string{"^=a:1,b", "mlx5_[", ",,:", "all", strings.Repeat("a,", 100), "=a:999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, parse := range []func(string) List{ParseNCCL, ParseUCX, ParseNVSHMEM} {
			l := parse(value)
			for i := range l.Entries {
				e := &l.Entries[i]
				if e.Text == "" || !strings.Contains(value, e.Text) {
					t.Errorf("%q has no entry %q", value, e.Text)
				}
				e.Matches("mlx5_0", 1)
			}
			l.Selects("mlx5_0", 1)
		}
		if n := len(ParseNCCL(value).Entries); n > maxEntries {
			t.Errorf("%q: %d entries", value, n)
		}
	})
}
