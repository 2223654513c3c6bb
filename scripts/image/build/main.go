// Command build builds the programs of the container images and writes the images as OCI archives, without Docker: make
// image. The same sources give the same digest; of fabric-tools, the same Debian packages too.
//
//	build [flags] ARCHITECTURE...   amd64 and arm64 without arguments; run it at the root of the repository
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/scripts/image"
	"github.com/fabric-cni/fabric-cni/scripts/image/oci"
	"github.com/fabric-cni/fabric-cni/scripts/sbom"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	name := flags.String("name", "fabric-agent:latest", "name of the image")
	out := flags.String("o", "build/fabric-agent.oci.tar", "archive to write; beside it an SBOM, .spdx.json")
	tools := flags.String("tools", "", "name of the image fabric-tools; empty: it is not made")
	version := flags.String("version", "dev", "version of the programs, and label of the image")
	if err := flags.Parse(args); err != nil {
		return err
	}
	architectures := flags.Args()
	if len(architectures) == 0 {
		architectures = []string{"amd64", "arm64"}
	}
	var images, toolsImages []oci.Image
	var binaries, ctl []string
	for _, arch := range architectures {
		dir := filepath.Join(filepath.Dir(*out), "image", arch)
		for _, p := range image.Programs {
			if err := compile(ctx, p, arch, *version, dir); err != nil {
				return err
			}
			binaries = append(binaries, filepath.Join(dir, p.Name))
		}
		images = append(images, image.Agent(arch, dir, *version))
		if *tools == "" {
			continue
		}
		root := filepath.Join(dir, "tools")
		if err := unpack(ctx, arch, root); err != nil {
			return err
		}
		t, err := image.Tools(arch, root, dir, *version)
		if err != nil {
			return err
		}
		toolsImages, ctl = append(toolsImages, t), append(ctl, filepath.Join(dir, "fabricctl"))
	}
	err := write(*out, *name, *version, images, binaries)
	if err == nil && *tools != "" {
		err = write(filepath.Join(filepath.Dir(*out), "fabric-tools.oci.tar"), *tools, *version, toolsImages, ctl)
	}
	return err
}

// unpack puts what fabric-tools has of Debian into a new directory.
func unpack(ctx context.Context, arch, root string) error {
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "scripts/image/tools.sh", arch, root)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("unpack the packages of fabric-tools for %s: %w", arch, err)
	}
	return nil
}

// compile builds a program for an architecture.
func compile(ctx context.Context, p image.Program, arch, version, dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", p.BuildArgs(version, dir)...)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s for %s: %w", p.Name, arch, err)
	}
	return nil
}

// write writes the archive and its SBOM, and prints the digest.
func write(out, name, version string, images []oci.Image, binaries []string) error {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	digest, err := oci.Write(f, name, images...)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	var list bytes.Buffer
	err = sbom.Document{
		Name: name, Namespace: "https://fabric-cni.invalid/" + digest, Version: version, Created: time.Unix(0, 0),
		Programs: binaries,
	}.Write(&list)
	if err != nil {
		return err
	}
	if err := os.WriteFile(strings.TrimSuffix(out, ".tar")+".spdx.json", list.Bytes(), 0o600); err != nil {
		return err
	}
	fmt.Printf("%s: %s %s\n", out, name, digest)
	return nil
}
