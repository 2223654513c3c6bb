package doctor

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fabric-cni/fabric-cni/internal/testkit/growth"
)

func scanned(t testing.TB, log io.Reader) []Explanation {
	t.Helper()
	s := NewScan()
	if err := s.Read("", log); err != nil {
		t.Fatal(err)
	}
	return s.Explanations()
}

// Where and when a message is, over the borders of the pieces that are looked at, after lines of any length.
func TestPlaces(t *testing.T) {
	long := strings.Repeat("x", chunk+chunk/2) + "\n"
	usual := strings.Repeat("2026-11-22T10:11:12Z INFO step 1 loss 2.3\n", 20000)
	log := usual + "2026-11-22T10:11:13.5Z Couldn't allocate MR\n" + long + "Couldn't allocate MR\r\n" + usual +
		long + "[1795335759.339802] Couldn't allocate MR\n" + usual + "2026-11-22T10:12:00Z a Couldn't allocate MR"
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(log), "by halves": iotest.HalfReader(strings.NewReader(log)),
		"end with data": iotest.DataErrReader(strings.NewReader(log)),
	} {
		got := scanned(t, r)
		if len(got) != 1 || got[0].LineNumber != 20001 || got[0].Count != 4 ||
			got[0].FirstTime != "2026-11-22T10:11:13.5Z" || got[0].LastTime != "2026-11-22T10:12:00Z" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The time stamps of those who write logs, as they stand there.
func TestTimes(t *testing.T) {
	for line, want := range map[string]string{
		"2026-11-22T10:11:12.123456789Z stderr F ":     "2026-11-22T10:11:12.123456789Z",
		"2026-11-22T10:11:12+08:00 ":                   "2026-11-22T10:11:12+08:00",
		"2026-11-22 10:11:12,123 ERROR ":               "2026-11-22 10:11:12,123",
		"[2026-11-22 10:11:12] train-0:1:2 [0] ":       "2026-11-22 10:11:12",
		"2026/11/22 10:11:12 ":                         "2026/11/22 10:11:12",
		"E1122 10:11:12.123456     1 a.go:1] ":         "1122 10:11:12.123456",
		"[rank0]:[E1122 10:11:12.123456789 P.cpp:6] ":  "1122 10:11:12.123456789",
		"Nov 22 10:11:12 gpu-1 kubelet[1]: ":           "Nov 22 10:11:12",
		"Sun Nov 22 10:11:12 2026[1,0]<stdout>:":       "Nov 22 10:11:12 2026",
		"[Sun Nov 22 10:11:12 2026] ":                  "Nov 22 10:11:12 2026",
		"[1795335759.339802] [b:270  :0] ":             "1795335759.339802",
		"[   12.345678] ":                              "12.345678",
		`{"log":"x\n","time":"2026-11-22T10:11:12Z"} `: "2026-11-22T10:11:12Z",
		"no time here ":                                "",
		"version 1.2.3, 10:11 ":                        "",
	} {
		got := scanned(t, strings.NewReader(line+"IB device mlx5_9 not found\n"))
		if len(got) != 1 || got[0].FirstTime != want || got[0].LastTime != want {
			t.Errorf("%q: %+v", line, got)
		}
	}
	docker := `{"log":"Couldn't allocate MR\n","stream":"stderr","time":"2026-11-22T10:11:12.5Z"}`
	if got := scanned(t, strings.NewReader(docker)); got[0].FirstTime != "2026-11-22T10:11:12.5Z" ||
		got[0].Line != "Couldn't allocate MR" {
		t.Errorf("%+v", got)
	}
}

// A log that breaks off says what there is.
func TestUnread(t *testing.T) {
	s, broken := NewScan(), errors.New("broken")
	err := s.Read("a.log", io.MultiReader(strings.NewReader("Couldn't allocate MR\n"), iotest.ErrReader(broken)))
	if got := s.Explanations(); !errors.Is(err, broken) || len(got) != 1 || got[0].Log != "a.log" {
		t.Errorf("%v, %v", got, err)
	}
}

// What is kept does not grow with the log, whatever is in it.
func TestBounded(t *testing.T) {
	const size = 2 << 20
	catalogue()
	for name, piece := range map[string]string{
		"no line break": "Couldn't allocate MR ", "lines": strings.Repeat("y", 90) + "\n",
		"breaks": "\n", "returns": "\r",
		"zero bytes": "\x00", "escapes": "\x1b[31m", "no UTF-8": "\xff\xfe",
	} {
		var before, at held
		if _, err := before.Read(nil); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		// What is held is measured when all is read, and the reader has not been told.
		got := scanned(t, io.MultiReader(io.LimitReader(&endless{piece: []byte(piece)}, size), &at))
		for _, e := range got {
			if len(e.Line) > maxShown || len(e.FirstTime) > maxTime || len(e.LastTime) > maxTime {
				t.Errorf("%s: a line of %d bytes", name, len(e.Line))
			}
		}
		if at == 0 || at > before+size/2 {
			t.Errorf("%s: %d bytes in use after a log of %d, %d before it", name, at, size, before)
		}
	}
}

// held is an empty file that notes how many bytes are in use when it is read.
type held uint64

func (h *held) Read([]byte) (int, error) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*h = held(m.HeapAlloc)
	return 0, io.EOF
}

// endless repeats a text.
type endless struct {
	piece []byte
	at    int
}

func (e *endless) Read(b []byte) (n int, err error) {
	for n < len(b) {
		c := copy(b[n:], e.piece[e.at:])
		n += c
		e.at = (e.at + c) % len(e.piece)
	}
	return n, nil
}

// One pass is faster than to try all expressions on all lines: here at least by ten times, in truth by some hundreds.
func TestOnePass(t *testing.T) {
	log := trainingLog(1<<19, 1000)
	one := growth.CPU(func() { scanned(t, bytes.NewReader(log)) })
	all := growth.CPU(func() {
		for line := range bytes.Lines(log[:len(log)/10]) {
			for i := range Messages {
				Messages[i].Pattern.Match(line)
			}
		}
	})
	if all < one {
		t.Errorf("one pass takes %v, all expressions %v for a tenth of it", one, all)
	}
}

func FuzzScan(f *testing.F) {
	for _, m := range Messages {
		f.Add([]byte(m.Examples[0]), uint8(3))
	}
	f.Add([]byte("{\"log\":\"Couldn't allocate MR\\n\"\r\x1b[3\x00&#39;"), uint8(0))
	f.Fuzz(func(t *testing.T, text []byte, times uint8) {
		log := bytes.Repeat(append(text, '\n'), int(times)+1)
		s := NewScan()
		if err := s.Read("", bytes.NewReader(log)); err != nil {
			t.Fatal(err)
		}
		if want := int64(bytes.Count(log, []byte{'\n'})); s.Lines != want {
			t.Errorf("%d lines, want %d", s.Lines, want)
		}
		for _, e := range s.Explanations() {
			if e.LineNumber < 1 || e.LineNumber > s.Lines ||
				e.Count < 1 || e.Count > s.Lines || len(e.Line) > maxShown {
				t.Errorf("%+v of %d lines", e, s.Lines)
			}
		}
	})
}
