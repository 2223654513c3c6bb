package journal

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// ended is a context for a lock that is tried and not waited for.
func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// Each attachment has a lock of its own, apart from that of its IPAM plugin, and they leave no files behind.
func TestLockAttachment(t *testing.T) {
	s := Store{t.TempDir()}
	a, b := Key{"c1", "net1"}, Key{"c1", "net2"}
	held, err := s.LockAttachment(t.Context(), a)
	must(t, err)
	if _, err := s.LockAttachment(ended(t), a); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "c1/net1") {
		t.Errorf("taken twice: %v", err)
	}
	for _, take := range []func(context.Context, Key) (*Lock, error){s.LockAttachment, s.LockIPAM} {
		other, err := take(ended(t), b)
		must(t, err)
		other.Unlock()
	}
	plugin, err := s.LockIPAM(ended(t), a)
	must(t, err)
	plugin.Unlock()
	waiter := make(chan *Lock)
	go func() {
		l, err := s.LockAttachment(context.Background(), a)
		if err != nil {
			t.Error(err)
		}
		waiter <- l
	}()
	held.Unlock()
	held.Unlock()
	if held.Held() || held.File() != nil {
		t.Error("still held")
	}
	l := <-waiter
	l.Unlock()
	if got := files(t, s); len(got) != 2 {
		t.Errorf("files: %v", got)
	}
}

// A child that has inherited the lock's file holds the lock when its parent has died, and not when the parent has given
// it back.
func TestLockInherited(t *testing.T) {
	s := Store{t.TempDir()}
	k := Key{"c1", "net1"}
	lock, err := s.LockIPAM(t.Context(), k)
	must(t, err)
	child := exec.Command("sh", "-c", "echo ready; read -r x")
	child.ExtraFiles = []*os.File{lock.File()}
	in, err := child.StdinPipe()
	must(t, err)
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	lock.f.Close() // as when the process dies
	if _, err := s.LockIPAM(ended(t), k); !errors.Is(err, ErrBusy) {
		t.Errorf("while the child lives: %v", err)
	}
	must(t, in.Close())
	_ = child.Wait()
	lock, err = s.LockIPAM(ended(t), k)
	must(t, err)

	child = exec.Command("sh", "-c", "read -r x")
	child.ExtraFiles = []*os.File{lock.File()}
	in, err = child.StdinPipe()
	must(t, err)
	must(t, child.Start())
	lock.Unlock()
	lock, err = s.LockIPAM(ended(t), k)
	if err != nil {
		t.Errorf("given back, and a child lives: %v", err)
	}
	lock.Unlock()
	must(t, in.Close())
	_ = child.Wait()
}
