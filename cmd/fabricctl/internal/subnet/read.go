package subnet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Bounds of one file.
const (
	maxFile = 512 << 20 // bytes; ibnetdiscover prints 20 MB for 5,000 nodes with eight rails
	maxLine = 64 << 10
	maxJSON = 16 << 20
	maxDesc = 256 // bytes; a NodeDescription has 64
)

// errFormat is for a file in no format that can be read.
var errFormat = errors.New("not the output of ibnetdiscover, ibnetdiscover -p, saquery (NodeRecord, PortInfoRecord, " +
	"LinkRecord), lldpctl -f json or networkctl lldp --json")

// Read reads one file into the graph. Of LLDP the file is one node's, which is called node.
func (g *Graph) Read(r io.Reader, node string) error {
	bounded := &io.LimitedReader{R: r, N: maxFile}
	b := bufio.NewReaderSize(bounded, maxLine)
	g.Files++
	parse, err := g.parser(b)
	if err != nil {
		return err
	}
	if parse == nil {
		text, err := io.ReadAll(io.LimitReader(b, maxJSON+1))
		if err != nil {
			return err
		}
		if len(text) > maxJSON {
			return fmt.Errorf("it has more than %d MiB", maxJSON>>20)
		}
		return g.lldp(text, node)
	}
	for n := 1; ; n++ {
		line, err := b.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("line %d: it has more than %d KiB", n, maxLine>>10)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if text := strings.TrimRight(string(line), "\r\n"); text != "" {
			if bad := parse(text); bad != nil {
				return fmt.Errorf("line %d: %w", n, bad)
			}
		}
		if err != nil {
			break
		}
	}
	if bounded.N == 0 {
		return fmt.Errorf("it has more than %d MiB", maxFile>>20)
	}
	return nil
}

// parser finds out what a file is by its beginning. It is nil for JSON.
func (g *Graph) parser(b *bufio.Reader) (func(string) error, error) {
	head, err := b.Peek(4096)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for line := range bytes.Lines(head) {
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' {
			continue
		}
		first, _, _ := strings.Cut(text, "=")
		switch {
		case text[0] == '{':
			return nil, nil
		case strings.HasSuffix(text, "Record dump:"):
			return g.saLine(), nil
		case strings.HasPrefix(text, "CA ") || strings.HasPrefix(text, "SW ") || strings.HasPrefix(text, "RT "):
			return g.listLine, nil
		case first == "vendid" || header.MatchString(text):
			return g.discoverLine(), nil
		}
		break
	}
	return nil, errFormat
}

// Finish ends reading. It has to be called once, before anything is asked.
func (g *Graph) Finish() error {
	g.finish()
	if len(g.Switches) == 0 && len(g.Ports) == 0 {
		return errors.New("there is neither a switch nor a port of an HCA in it")
	}
	return nil
}

// guid reads a GUID of up to 16 digits, as tools print it without leading zeros.
func guid(s string) (device.GUID, error) {
	v, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%.64q is no GUID", s)
	}
	return device.GUID(v), nil
}

func idOf(g device.GUID) string { return fmt.Sprintf("0x%016x", uint64(g)) }

func clipped(s string) string {
	if len(s) > maxDesc {
		s = s[:maxDesc]
	}
	return strings.ToValidUTF8(s, "?")
}
