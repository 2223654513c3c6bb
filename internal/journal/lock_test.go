package journal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// child names, in a process started by a test here, the store to work on.
const child = "FABRIC_TEST_JOURNAL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(child); dir != "" {
		os.Exit(inChild(Store{dir}, os.Args[1:]))
	}
	sandbox.Main(m, nil) // a mount namespace, for a tmpfs that is full
}

// inChild is what the processes of the tests below do.
func inChild(s Store, args []string) int {
	switch args[0] {
	case "hold": // until killed, or until stdin ends
		if _, err := s.Lock(context.Background(), deviceKey); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("held")
		_, _ = os.Stdin.Read(make([]byte, 1))
	case "count": // add one to a number in a file, many times, each under the lock
		for range 50 {
			lock, err := s.Lock(context.Background(), deviceKey)
			if err != nil {
				fmt.Println(err)
				return 1
			}
			file := filepath.Join(s.Dir, "number")
			b, _ := os.ReadFile(file)
			n, _ := strconv.Atoi(string(b))
			if err := os.WriteFile(file, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
				fmt.Println(err)
				return 1
			}
			lock.Unlock()
		}
	}
	return 0
}

func process(s Store, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), child+"="+s.Dir)
	return cmd
}

func TestLockExcludes(t *testing.T) {
	s := Store{t.TempDir()}
	const processes = 6
	var all []*exec.Cmd
	for range processes {
		p := process(s, "count")
		must(t, p.Start())
		all = append(all, p)
	}
	for _, p := range all {
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(s.Dir, "number")); err != nil || string(b) != strconv.Itoa(50*processes) {
		t.Errorf("counted to %s, %v, want %d", b, err, 50*processes)
	}
}

func TestLockBusy(t *testing.T) {
	s := Store{t.TempDir()}
	p := process(s, "hold")
	out, err := p.StdoutPipe()
	must(t, err)
	_, err = p.StdinPipe() // stays open
	must(t, err)
	must(t, p.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("%q, %v", line, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	lock, err := s.Lock(ctx, deviceKey) // if it ends, the bound is kept
	if !errors.Is(err, ErrBusy) || !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), deviceKey) {
		t.Errorf("lock %v, error %v", lock, err)
	}
	// Another device is not concerned.
	other, err := s.Lock(t.Context(), "pci/0000:3b:00.1")
	must(t, err)
	if other.Waited {
		t.Error("waited for another device")
	}
	other.Unlock()
	// The kernel gives up the lock of a process that dies.
	waiting := make(chan *Lock, 1)
	go func() {
		l, err := s.Lock(context.Background(), deviceKey)
		if err != nil {
			t.Error(err)
		}
		waiting <- l
	}()
	must(t, p.Process.Kill())
	_ = p.Wait()
	l := <-waiting
	if l == nil {
		t.Fatal("no lock")
	}
	l.Unlock()
	l.Unlock()
	var none *Lock
	none.Unlock()
}

// Two locks in one process exclude each other as well, and the second knows that it has waited.
func TestLockWaited(t *testing.T) {
	dir, err := os.MkdirTemp("/run", "locks") // of a tmpfs /proc/locks tells the device number that stat does
	must(t, err)
	defer os.RemoveAll(dir)
	s := Store{dir}
	first, err := s.Lock(t.Context(), deviceKey)
	must(t, err)
	if first.Waited {
		t.Error("the first has waited")
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Lock(cancelled, deviceKey); !errors.Is(err, ErrBusy) {
		t.Errorf("with an ended context: %v", err)
	}
	second := make(chan *Lock)
	go func() {
		l, err := s.Lock(context.Background(), deviceKey)
		if err != nil {
			t.Error(err)
		}
		second <- l
	}()
	sandbox.Until(t, "the second waits", func() bool {
		return sandbox.Waits(t, filepath.Join(dir, "locks", fileOf(deviceKey)))
	})
	select {
	case <-second:
		t.Error("both have it")
	default:
	}
	first.Unlock()
	if l := <-second; l == nil || !l.Waited {
		t.Errorf("second: %+v", l)
	}
}

func TestLockFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	if l, err := (Store{file}).Lock(t.Context(), deviceKey); err == nil || errors.Is(err, ErrBusy) {
		t.Errorf("%v, %v", l, err)
	}
}
