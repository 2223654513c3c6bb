package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// kubectlGet runs kubectl, and decodes the JSON that it prints.
func kubectlGet(ctx context.Context, into any, args ...string) error {
	what := "kubectl " + strings.Join(args, " ")
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s: kubectl is not in PATH", what)
	}
	if err != nil {
		return fmt.Errorf("%s: %s", what, strings.TrimSpace(stderr.String()))
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// kubectl runs kubectl with this input. The error has what it printed.
func kubectl(ctx context.Context, stdin string, args ...string) error {
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
