package quote

import (
	"os/exec"
	"strings"
	"testing"
)

func TestTerminal(t *testing.T) {
	for in, want := range map[string]string{
		"mlx5_0":               "mlx5_0",
		"a\nb\r\tc":            `a\nb\r\tc`,
		"\x1b[2Jx\x07\x7f":     `\x1b[2Jx\x07\x7f`,
		"a\u202eb\u2066\u200f": `a\u202eb\u2066\u200f`,
		"\u061c\u200b\ufeff":   `\u061c\u200b\ufeff`,
		"\x9b\xff":             `\x9b\xff`,
		"\u009b":               `\u009b`,
		"e\u0301\u2028\u3164":  `e\u0301\u2028\u3164`,
		"\u05d0\U000e0041":     `\u05d0\U000e0041`,
		"größe 光 …":            "größe 光 …",
	} {
		if got := Terminal(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
	if got := Terminal(strings.Repeat("光", maxTerminal)); len(got) > maxTerminal+3 || !strings.HasSuffix(got, "光...") {
		t.Errorf("a long one: %d bytes", len(got))
	}
	for most, want := range map[int]string{4: "a光", 3: "a...", 1: "a..."} {
		if got := Clip("a光", most); got != want {
			t.Errorf("of %d bytes: %q, want %q", most, got, want)
		}
	}
	if w := Width("a光"); w != 3 {
		t.Errorf("width %d", w)
	}
}

func TestShell(t *testing.T) {
	for _, s := range []string{
		"", "mlx5_0", "a b", "it's", "$(id)", "`id`", "a\nb", "-n", "~", "*", "a;b", "#", "\x1b[2J",
		"!x", "\\",
	} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+Shell(s)).Output()
		if s == "-n" { // an operand for printf
			out, err = exec.CommandContext(t.Context(), "sh", "-c", "printf %s x"+Shell(s)).Output()
			out = out[1:]
		}
		if err != nil || string(out) != s {
			t.Errorf("%q is %q for a shell (%v)", s, out, err)
		}
	}
}

func TestDocument(t *testing.T) {
	if got := string(Document([]byte("<b>\n\tx\x1b\u202e\xff</b>"))); got != "<b>\n\tx\\x1b\\u202e\\xff</b>" {
		t.Errorf("%q", got)
	}
}
