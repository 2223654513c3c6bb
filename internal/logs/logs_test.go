package logs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"log"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

// Whoever logs, each line is one object of JSON with what was said.
func TestOneFormat(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, slog.LevelInfo)
	l.Info("ours 1", "pod", "ml/train-0")
	slog.Warn("ours 2")
	log.Print("net/http 3")
	klog.Errorf("klog 4 of %d\nlines", 2)
	klog.ErrorS(errors.New("no route"), "klog 5")
	grpclog.Error("grpc 6")
	grpclog.Warning("grpc of no interest")
	klog.Flush()
	lines := 0
	for s := bufio.NewScanner(&out); s.Scan(); lines++ {
		var o struct{ Time, Level, Msg string }
		if err := json.Unmarshal(s.Bytes(), &o); err != nil || o.Time == "" || o.Level == "" || o.Msg == "" {
			t.Errorf("%q: %v", s.Text(), err)
		}
		if strings.Contains(s.Text(), "of no interest") {
			t.Errorf("%q", s.Text())
		}
	}
	if lines != 6 {
		t.Errorf("%d lines, want 6", lines)
	}
}
