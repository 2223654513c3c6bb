// Command vuln compares the modules in our binaries with a list of advisories. It needs no network:
//
//	vuln [flags] BINARY...   fails if a module in a binary, or its standard library, has a known hole
//	vuln -update             makes the list anew from the Go vulnerability database
//
// Where the database can be reached, govulncheck asks it in addition: it also knows which functions are called.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
)

func main() {
	db := flag.String("db", "https://vuln.go.dev", "`URL` of the database")
	list := flag.String("list", "scripts/vuln/advisories.txt", "`file` with the advisories")
	except := flag.String("exceptions", "scripts/vuln/exceptions.txt", "`file` with those that don't reach our code")
	renew := flag.Bool("update", false, "make the list anew from the database, for the modules in go.sum")
	offline := flag.Bool("offline", false, "the list alone: don't ask the database")
	flag.Parse()
	ctx := context.Background()
	var err error
	if *renew {
		err = update(ctx, *db, *list, "go.sum")
	} else {
		err = compare(*list, *except, flag.Args())
		if err == nil && !*offline {
			err = ask(ctx, *db)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vuln:", err)
		os.Exit(1)
	}
}

// compare fails if a binary is affected by something on the list, or an exception affects none of them.
func compare(list, except string, binaries []string) error {
	advisories, err := readAdvisories(list)
	if err != nil {
		return err
	}
	exceptions, err := readExceptions(except)
	if err != nil {
		return err
	}
	hits, unused, err := check(advisories, exceptions, binaries)
	if err != nil {
		return err
	}
	for _, h := range hits {
		fmt.Printf("%s: %s %s: %s, %s (%s)\n", h.Binary, h.Module, h.Version, h.ID, h.fixed(), h.Source)
	}
	for _, e := range unused {
		fmt.Printf("%s: %s %s affects no binary: remove the line\n", except, e.ID, e.Module)
	}
	if n := len(hits) + len(unused); n > 0 {
		return fmt.Errorf("%d findings: update the module, or add a line to %s: why it does not reach our code",
			n, except)
	}
	fmt.Printf("vuln: %d binaries, %d advisories: none applies\n", len(binaries), len(advisories))
	return nil
}

// ask runs govulncheck where its database can be reached.
func ask(ctx context.Context, db string) error {
	var index struct{ Modified string }
	if err := get(ctx, db+"/index/db.json", &index); err != nil {
		fmt.Printf("vuln: govulncheck is left out: %v\n", err)
		return nil
	}
	c := exec.CommandContext(ctx, "go", "tool", "-modfile=scripts/tools/go.mod", "govulncheck", "-db", db, "./...")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}
