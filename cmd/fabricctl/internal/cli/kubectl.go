package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	fault "github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/kubectl"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/manifest"
)

// Bounds of what kubectl prints: nodes and tenants have written it.
const (
	maxObject  = 16 << 20            // bytes of one object; etcd stores 1.5 MiB at most, and kubectl indents it
	maxObjects = manifest.MaxObjects // of one kind
	maxWords   = 64 << 10            // bytes of what it says on standard error
)

var errTooLarge = fmt.Errorf("an object has more than %d MiB", maxObject>>20)

// kubectlGet runs kubectl, and decodes the JSON that it prints.
func kubectlGet(ctx context.Context, into any, args ...string) error {
	return kubectlRead(ctx, args, func(r io.Reader) error { return json.NewDecoder(r).Decode(into) })
}

// kubectlEach runs kubectl get ... -o json, and hands over each object of the list that it prints, one after the other:
// a list of a large cluster is never held as a whole. bad is why an object can't be read, as far as it was.
func kubectlEach[T any](ctx context.Context, each func(o *T, bad error), args ...string) error {
	return kubectlRead(ctx, args, func(r io.Reader) error { return eachItem(r, each) })
}

// eachItem reads a list of Kubernetes.
func eachItem[T any](r io.Reader, each func(o *T, bad error)) error {
	bounded := &io.LimitedReader{R: r, N: maxObject}
	d := json.NewDecoder(bounded)
	next := func(v any) error {
		err := d.Decode(v)
		if errors.Is(err, io.ErrUnexpectedEOF) && bounded.N == 0 {
			err = errTooLarge
		}
		bounded.N = maxObject
		return err
	}
	if err := delimiter(d, '{'); err != nil {
		return err
	}
	for n := 0; d.More(); {
		key, err := d.Token()
		if err != nil {
			return err
		}
		if key != "items" {
			var rest json.RawMessage
			if err := next(&rest); err != nil {
				return err
			}
			continue
		}
		if err := delimiter(d, '['); err != nil {
			return err
		}
		for ; d.More(); n++ {
			if n == maxObjects {
				return fmt.Errorf("there are more than %d objects", maxObjects)
			}
			o := new(T)
			err := next(o)
			if broken(err) {
				return err
			}
			each(o, err)
		}
		if err := delimiter(d, ']'); err != nil {
			return err
		}
	}
	return delimiter(d, '}')
}

// broken reports whether it is the JSON that can't be read, and not only what it means.
func broken(err error) bool { return manifest.BrokenJSON(err) || errors.Is(err, errTooLarge) }

func delimiter(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err == nil && got != want {
		err = fmt.Errorf("not a list of objects: %v where %v is wanted", got, want)
	}
	return err
}

// kubectlRead runs kubectl, and has what it prints read while it runs.
func kubectlRead(ctx context.Context, args []string, read func(io.Reader) error) error {
	what := "kubectl " + strings.Join(args, " ")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	stderr := words{most: maxWords}
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	err = cmd.Start()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s: kubectl is not in PATH", what)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	readErr := read(out)
	if readErr == nil || errors.Is(readErr, io.EOF) {
		_, _ = io.Copy(io.Discard, out) // so that kubectl ends by itself
	} else {
		cancel()
	}
	err = cmd.Wait()
	if text := fault.Fault(stderr.String()); err != nil && (readErr == nil || text != "") {
		return fmt.Errorf("%s: %s", what, cmp.Or(text, err.Error()))
	}
	if readErr != nil {
		return fmt.Errorf("%s: %w", what, readErr)
	}
	return nil
}

// kubectl runs kubectl with this input. The error has what it says.
func kubectl(ctx context.Context, stdin string, args ...string) error {
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdin = strings.NewReader(stdin)
	stderr := words{most: maxWords}
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, fault.Fault(stderr.String()))
	}
	return nil
}

// words keep the beginning of what a program says: the program may say more, and hears of no error.
type words struct {
	strings.Builder
	most int
}

// Write keeps what there is room for.
func (w *words) Write(b []byte) (int, error) {
	w.Builder.Write(b[:min(len(b), max(0, w.most-w.Len()))])
	return len(b), nil
}
