package doctor

import (
	"bytes"
	"strings"
	"testing"
)

// A log as jobs write it with NCCL_DEBUG=INFO, in which a few lines mean something.
func BenchmarkScan(b *testing.B) {
	for name, every := range map[string]int{"known=0": 0, "known=1/1000": 1000, "known=1/10": 10, "known=all": 1} {
		b.Run(name, func(b *testing.B) {
			log := trainingLog(1<<22, every)
			b.SetBytes(int64(len(log)))
			for b.Loop() {
				s := NewScan()
				if err := s.Read("", bytes.NewReader(log)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// trainingLog is a log of some bytes; one line of so many is a message that is known, none for 0.
func trainingLog(size, every int) []byte {
	usual := []string{
		"2026-11-22T10:11:12.1234Z train-0:42:97 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA",
		"2026-11-22T10:11:12.223456789Z train-0:42:97 [3] NCCL INFO Channel 02/0 : 3[3] -> 4[4] via P2P/CUMEM/read",
		"2026-11-22T10:11:13.123456789Z INFO step 1200 loss 2.3141 grad_norm 0.82 lr 3.0e-4 tokens/s 412345",
		"[rank3]:W1122 10:11:12.426415540 Warning: 0 gradients are empty (function operator())",
		"I1122 10:11:12.426415 1 reconciler.go:42] \"Reconciling\" object=\"ml/train-0\" generation=3 failed=false",
	}
	known := "2026-11-22T10:11:14Z train-0:42:97 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"
	var s strings.Builder
	for i := 1; s.Len() < size; i++ {
		line := usual[i%len(usual)]
		if every > 0 && i%every == 0 {
			line = known
		}
		s.WriteString(line + "\n")
	}
	return []byte(s.String())
}
