// Package quote writes text that came from a device, a pod, a file or a cluster so that it is nothing but text where it
// is printed: one function per context. A kernel name may have any byte but a slash, and what reads the output is a
// terminal, a shell, a YAML or a JSON parser, or a browser.
package quote

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxTerminal bounds one string on a terminal, in bytes: an error with the names of a hundred devices is shorter.
const maxTerminal = 16 << 10

// Terminal is one line of visible characters: line breaks, escape sequences, what is invisible or changes the direction
// of what follows, and bytes that are no UTF-8 are shown as \n, \x1b, \u202e. Longer strings are cut.
func Terminal(s string) string {
	cut := len(s) > maxTerminal
	if cut {
		s = s[:maxTerminal]
	}
	clean := !cut
	for i := 0; i < len(s) && clean; i++ {
		clean = s[i] >= ' ' && s[i] < 0x7f
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			if cut && len(s)-i < utf8.UTFMax { // the end of a character that was cut
				break
			}
			fmt.Fprintf(&b, `\x%02x`, s[i])
		} else {
			visible(&b, r)
		}
		i += n
	}
	if cut {
		b.WriteString("...")
	}
	return b.String()
}

func visible(b *strings.Builder, r rune) {
	switch {
	case Shown(r):
		b.WriteRune(r)
	case r == '\n':
		b.WriteString(`\n`)
	case r == '\r':
		b.WriteString(`\r`)
	case r == '\t':
		b.WriteString(`\t`)
	case r < 0x80:
		fmt.Fprintf(b, `\x%02x`, r)
	case r < 0x10000:
		fmt.Fprintf(b, `\u%04x`, r)
	default:
		fmt.Fprintf(b, `\U%08x`, r)
	}
}

// rightToLeft are blocks of scripts that are written from right to left: a terminal moves the digits and signs beside
// them, so that mlx5_0 and a state read as something else (Unicode Standard Annex 9).
var rightToLeft = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x0590, Hi: 0x08ff, Stride: 1}, {Lo: 0xfb1d, Hi: 0xfdff, Stride: 1},
		{Lo: 0xfe70, Hi: 0xfeff, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x10800, Hi: 0x10fff, Stride: 1}, {Lo: 0x1e800, Hi: 0x1efff, Stride: 1}},
}

// blank are letters and signs without ink: Hangul fillers and the empty Braille pattern. What else is invisible is no
// graphic character for package unicode.
var blank = &unicode.RangeTable{R16: []unicode.Range16{{Lo: 0x115f, Hi: 0x1160, Stride: 1},
	{Lo: 0x2800, Hi: 0x2800, Stride: 1}, {Lo: 0x3164, Hi: 0x3164, Stride: 1}, {Lo: 0xffa0, Hi: 0xffa0, Stride: 1}}}

// Shown tells whether a character is visible, and stays in its place.
func Shown(r rune) bool {
	if r < 0x80 {
		return r >= ' ' && r < 0x7f
	}
	return r != utf8.RuneError && unicode.IsPrint(r) && !unicode.In(r, unicode.M, rightToLeft, blank)
}

// wide are characters that take two columns of a terminal (Unicode Standard Annex 11, W and F), in blocks.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x1100, Hi: 0x115f, Stride: 1}, {Lo: 0x2e80, Hi: 0x303e, Stride: 1},
		{Lo: 0x3041, Hi: 0xa4cf, Stride: 1}, {Lo: 0xac00, Hi: 0xd7a3, Stride: 1}, {Lo: 0xf900, Hi: 0xfaff, Stride: 1},
		{Lo: 0xfe30, Hi: 0xfe6f, Stride: 1}, {Lo: 0xff00, Hi: 0xff60, Stride: 1}, {Lo: 0xffe0, Hi: 0xffe6, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x1f300, Hi: 0x1faff, Stride: 1}, {Lo: 0x20000, Hi: 0x3fffd, Stride: 1}},
}

// Clip is a text of so many bytes at most, and "..." if it was longer.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// Width is the number of columns that a string of Terminal takes.
func Width(s string) (n int) {
	for _, r := range s {
		n++
		if unicode.Is(wide, r) {
			n++
		}
	}
	return n
}

// Shell is one word for a POSIX shell, in single quotes if it needs any. A shell takes what stands in them as it is.
func Shell(s string) string {
	if s != "" && strings.IndexFunc(s, special) < 0 {
		return s
	}
	return Single(s)
}

// Single is one word for a POSIX shell, in single quotes.
func Single(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// special tells whether a character means something to a shell, or may in some shell.
func special(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_-./:@%+,", r)
}

// Comment is the text of a comment of a shell or of YAML, which ends with the line.
func Comment(s string) string { return Terminal(s) }

// Document is a text of several lines, such as a page or a log: what Terminal shows is shown, and line breaks and tabs
// stay what they are. A page that has been through html/template, or XML, stays one.
func Document(text []byte) []byte {
	if !bytes.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !Shown(r) }) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		default:
			visible(&b, r)
		}
		i += n
	}
	return []byte(b.String())
}

// Printer prints for people: what is formatted is quoted for a terminal, the format itself is the program's. It is no
// io.Writer, so that nothing gets past it.
type Printer struct{ W io.Writer }

// Raw is text that has been quoted, or that the program made itself: a Printer prints it as it is.
type Raw string

// Printf formats like fmt.Printf, with each operand quoted.
func (p Printer) Printf(format string, operands ...any) {
	fmt.Fprintf(p.W, format, quoted(operands)...)
}

// Println prints operands like fmt.Println, each quoted.
func (p Printer) Println(operands ...any) { fmt.Fprintln(p.W, quoted(operands)...) }

// Document prints a text of several lines.
func (p Printer) Document(text []byte) error {
	_, err := p.W.Write(Document(text))
	return err
}

func quoted(operands []any) []any {
	out := make([]any, len(operands))
	for i, o := range operands {
		switch v := o.(type) {
		case Raw:
			out[i] = string(v)
		case bool, int, int64, uint16, uint32, uint64, float64:
			out[i] = v
		default:
			out[i] = Terminal(fmt.Sprint(v))
		}
	}
	return out
}
