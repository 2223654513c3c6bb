package doctor

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Lines of programs that have nothing to do with RDMA, or with which all is well: less than one of 10,000 may be taken
// for a known message. The files have a line for each thing that programs say, with slots for what varies.
func TestUnrelated(t *testing.T) {
	const each = 300
	lines, alone := 0, 0
	for _, file := range unrelated(t) {
		r := rand.New(rand.NewPCG(13, 42))
		for _, template := range file {
			scan := NewScan()
			log := filled{r: r, template: template, left: each}
			if err := scan.Read("", &log); err != nil {
				t.Fatal(err)
			}
			for _, e := range scan.Explanations() {
				t.Errorf("%s, %d of %d: %s", e.ID, e.Count, each, e.Line)
			}
			lines += each
			// A single line is a question: what a shell says of a crash is no answer to anything else.
			for _, e := range Explain(log.fill()) {
				alone++
				t.Logf("alone %s: %s", e.ID, e.Line)
			}
		}
	}
	if lines < 100_000 {
		t.Errorf("%d lines, want 100000 at least", lines)
	}
	if alone > 2 {
		t.Errorf("%d lines are taken for a message when they are asked for", alone)
	}
}

// unrelated are the templates, by file.
func unrelated(t testing.TB) (out [][]string) {
	t.Helper()
	files, err := filepath.Glob("testdata/unrelated/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for line := range strings.Lines(string(b)) {
			if line = strings.TrimSuffix(line, "\n"); line != "" && !strings.HasPrefix(line, "# ") {
				list = append(list, line)
			}
		}
		out = append(out, list)
	}
	return out
}

// filled is a log of one template, with other numbers and names in each line.
type filled struct {
	r        *rand.Rand
	template string
	left     int
	rest     []byte
}

func (f *filled) Read(b []byte) (int, error) {
	if len(f.rest) == 0 {
		if f.left == 0 {
			return 0, io.EOF
		}
		f.left--
		f.rest = []byte(f.fill() + "\n")
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func (f *filled) fill() string {
	s := f.template
	for range 3 { // a slot within one of several texts
		var out strings.Builder
		for {
			start := strings.IndexByte(s, '{')
			if start < 0 {
				break
			}
			end := strings.IndexAny(s[start+1:], "{}")
			if end < 0 {
				break
			}
			end += start + 1
			if s[end] == '{' {
				out.WriteString(s[:end])
				s = s[end:]
				continue
			}
			out.WriteString(s[:start] + f.slot(s[start+1:end]))
			s = s[end+1:]
		}
		s = out.String() + s
	}
	return s
}

// of are names that vary.
var of = map[string][]string{
	"proc":   {"python3", "java", "nginx", "api-server", "worker", "train", "postgres", "etl", "spark", "mpirun"},
	"host":   {"gpu-1", "gpu-17", "cp-0", "db-2", "lab1", "ip-10-0-3-4", "storage-3", "login"},
	"pod":    {"train-0", "train-worker-11", "web-7d9f", "etl-28834", "redis-master-0", "coredns-76f75df574-x2k4p"},
	"ns":     {"default", "ml", "kube-system", "monitoring", "team-a", "fabric-system"},
	"netdev": {"eth0", "ens1f0np0", "ibs108", "bond0", "net1", "xgbe2", "ib0", "enp3s0"},
	"letter": {"a", "b", "c", "d"},
}

func (f *filled) slot(name string) string {
	if list := of[name]; list != nil {
		return list[f.r.IntN(len(list))]
	}
	two := func(limit int) string { return fmt.Sprintf("%02d", 1+f.r.IntN(limit-1)) }
	hms := func() string { return two(24) + ":" + two(60) + ":" + two(60) }
	hex := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte("0123456789abcdef"[f.r.IntN(16)])
		}
		return b.String()
	}
	digits := func(n int) string {
		s := strconv.Itoa(1 + f.r.IntN(9))
		for range n - 1 {
			s += strconv.Itoa(f.r.IntN(10))
		}
		return s
	}
	switch name {
	case "ip":
		return fmt.Sprintf("10.%d.%d.%d", f.r.IntN(256), f.r.IntN(256), f.r.IntN(256))
	case "mac":
		return hex(2) + ":" + hex(2) + ":" + hex(2) + ":" + hex(2) + ":" + hex(2) + ":" + hex(2)
	case "bdf":
		return hex(2) + ":00." + digits(1)
	case "uuid":
		return hex(8) + "-" + hex(4) + "-" + hex(4) + "-" + hex(4) + "-" + hex(12)
	case "veth", "rand5":
		return "veth"[:len(name)%5] + hex(5)
	case "port":
		return strconv.Itoa(1024 + f.r.IntN(64000))
	case "port4":
		return strconv.Itoa(1024 + f.r.IntN(9000-1024))
	case "epoch":
		return strconv.Itoa(1_760_000_000 + f.r.IntN(30_000_000))
	case "hms":
		return hms()
	case "iso":
		return "2026-" + two(13) + "-" + two(29) + "T" + hms() + "." + digits(3) + "Z"
	case "log4j":
		return "2026-" + two(13) + "-" + two(29) + " " + hms() + "," + digits(3)
	case "klog":
		return two(13) + two(29) + " " + hms() + "." + digits(6)
	case "syslog":
		return "Nov " + two(29) + " " + hms()
	case "apache":
		return two(29) + "/Nov/2026:" + hms() + " +0000"
	case "dmesg":
		return fmt.Sprintf("%12s", digits(5)+"."+digits(6))
	}
	if n, err := strconv.Atoi(strings.TrimLeft(name, "hexn")); err == nil {
		if strings.HasPrefix(name, "hex") {
			return hex(n)
		}
		return digits(n)
	}
	if choices := strings.Split(name, "|"); len(choices) > 1 {
		return choices[f.r.IntN(len(choices))]
	}
	return "{" + name + "}" // no slot: JSON
}
