package logs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

// Whichever logger writes it, each line is one object of JSON with what was said.
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

// A second logger while libraries log: they follow, and nothing of theirs is written without a lock (this is for the
// race detector).
func TestNewWhileLibrariesLog(t *testing.T) {
	New(io.Discard, slog.LevelInfo)
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			default:
				klog.InfoS("from klog")
				grpclog.Info("from gRPC")
			}
		}
	}()
	for range 100 {
		New(io.Discard, slog.LevelInfo)
	}
	close(done)
	<-stopped
	var out bytes.Buffer
	New(&out, slog.LevelInfo)
	klog.LoggerWithName(klog.Background(), "reflector").WithValues("pod", "train-0").Info("once")
	if s := out.String(); !strings.Contains(s, `"pod":"train-0"`) || strings.Count(s, "\n") != 1 {
		t.Errorf("%q", s)
	}
}
