package fabric

import (
	"context"

	"github.com/fabric-cni/fabric-cni/internal/failpoint"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/result"
)

// beside is an IPAM ADD that runs while the device moves.
type beside struct {
	done chan struct{}
	res  *result.Result
	err  error
}

func startIPAM(d ipam.Delegate) *beside {
	b := &beside{done: make(chan struct{})}
	if d.Type == "" {
		close(b.done)
		return b
	}
	go func() {
		defer close(b.done)
		if b.err = failpoint.Hit("before/ipam-add"); b.err != nil {
			return
		}
		b.res, b.err = d.Add(context.Background())
	}()
	return b
}

func (b *beside) wait() (*result.Result, error) {
	<-b.done
	return b.res, b.err
}
