// Package refpage is what the programs that write a page of docs/reference have in common.
package refpage

import (
	"fmt"
	"os"
	"path/filepath"
)

// Main writes a page, whose path is from the root of the repository, where the program runs.
func Main(program, path string, page func(root string) (string, error)) {
	if err := write(".", path, page); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
		os.Exit(1)
	}
}

func write(root, path string, page func(root string) (string, error)) error {
	text, err := page(root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, path), []byte(text), 0o644)
}
