// Command release makes everything that a release has, and checks it: make release VERSION=v1.2.3. It needs no network
// but for the Go modules, no registry and no key: what does is a step of .github/workflows/release.yml. The same commit
// gives the same bytes. docs/releasing.md says what each file is for.
//
//	release -version v1.2.3 [-o DIR] [ARCHITECTURE...]   makes the files; at the root of the repository
//	release -version v1.2.3 [-o DIR] -verify             reads them again, and trusts nothing
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// aVersion is Semantic Versioning with a v, as Go and the tags have it.
var aVersion = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z][0-9A-Za-z.-]*)?$`)

func run(ctx context.Context, args []string, stdout io.Writer) error {
	r := &release{root: "."}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "version of the release, a tag: v1.2.3")
	flags.StringVar(&r.out, "o", "build/release", "directory of the files; must be empty or absent")
	flags.StringVar(&r.image, "image", "ghcr.io/fabric-cni/fabric-agent", "image without a tag, as clusters pull it")
	verify := flags.Bool("verify", false, "check the files that are there, instead of making them")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !aVersion.MatchString(r.version) {
		return fmt.Errorf("version %q: want a tag of Semantic Versioning, as in VERSION=v1.2.3", r.version)
	}
	r.architectures = flags.Args()
	if len(r.architectures) == 0 {
		r.architectures = []string{"amd64", "arm64"}
	}
	if !*verify {
		if err := r.requireClean(ctx); err != nil {
			return err
		}
		if err := r.make(ctx); err != nil {
			return err
		}
	}
	problems, err := r.verify(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%s is not what a release has to be:\n%w", r.out, err)
	}
	fmt.Fprintf(stdout, "%s: %d files of %s, checked\n", r.out, len(r.files())+1, r.version)
	return nil
}
