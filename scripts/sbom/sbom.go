// Package sbom lists what is in our programs, as a document of SPDX 2.3: each program, and the Go modules that it says
// it was built from. The same programs give the same bytes.
package sbom

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdxlib"
)

// Document is what the list is about.
type Document struct {
	Name      string // of what has the programs: an image, a release
	Namespace string // a URI that no other document has
	Version   string // of our programs
	Created   time.Time
	Programs  []string // files on this machine
}

const unknown = "NOASSERTION"

// Write writes the document.
func (d Document) Write(w io.Writer) error {
	doc := &spdx.Document{
		SPDXVersion:       spdx.Version,
		DataLicense:       spdx.DataLicense,
		SPDXIdentifier:    "DOCUMENT",
		DocumentName:      d.Name,
		DocumentNamespace: d.Namespace,
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "fabric-cni/sbom"}},
			Created:  d.Created.UTC().Format(time.RFC3339),
		},
	}
	modules := map[common.ElementID]*spdx.Package{}
	for _, file := range d.Programs {
		if err := d.program(doc, modules, file); err != nil {
			return err
		}
	}
	doc.Packages = append(doc.Packages, slices.SortedFunc(maps.Values(modules), func(a, b *spdx.Package) int {
		return cmp.Compare(a.PackageSPDXIdentifier, b.PackageSPDXIdentifier)
	})...)
	if err := spdxlib.ValidateDocument(doc); err != nil {
		return fmt.Errorf("list what is in %s: %w", d.Name, err)
	}
	return spdxjson.Write(doc, w, spdxjson.Indent(" "))
}

// program adds a program and the modules in it.
func (d Document) program(doc *spdx.Document, modules map[common.ElementID]*spdx.Package, file string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the modules of %s: %w", file, err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	name, platform := filepath.Base(file), Platform(info)
	sum := sha256.Sum256(b)
	id := element("Program", name, platform)
	doc.Packages = append(doc.Packages, &spdx.Package{
		PackageSPDXIdentifier:   id,
		PackageName:             name,
		PackageVersion:          d.Version,
		PackageFileName:         name,
		PackageDownloadLocation: unknown,
		PackageSupplier:         &common.Supplier{Supplier: unknown},
		PackageChecksums:        []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(sum[:])}},
		PackageLicenseConcluded: unknown,
		PackageLicenseDeclared:  "Apache-2.0",
		PackageCopyrightText:    unknown,
		PackageSourceInfo:       platform + ", " + info.GoVersion,
		PrimaryPackagePurpose:   "APPLICATION",
	})
	doc.Relationships = append(doc.Relationships, relation("DOCUMENT", "DESCRIBES", id))
	for _, m := range Modules(info) {
		p := module(m)
		modules[p.PackageSPDXIdentifier] = p
		doc.Relationships = append(doc.Relationships, relation(id, "DEPENDS_ON", p.PackageSPDXIdentifier))
	}
	return nil
}

// Platform names what a program was built for: linux/amd64.
func Platform(info *debug.BuildInfo) string {
	setting := func(key string) string {
		for _, s := range info.Settings {
			if s.Key == key {
				return s.Value
			}
		}
		return "unknown"
	}
	return setting("GOOS") + "/" + setting("GOARCH")
}

// Modules are the modules that a program was built from, other than its own, with Go's standard library as the module
// std.
func Modules(info *debug.BuildInfo) []debug.Module {
	all := []debug.Module{{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, debug.Module{Path: m.Path, Version: m.Version, Sum: m.Sum})
	}
	return all
}

// PURL is the package URL of a module, by which vulnerabilities are looked up.
func PURL(m debug.Module) string { return "pkg:golang/" + m.Path + "@" + m.Version }

func module(m debug.Module) *spdx.Package {
	return &spdx.Package{
		PackageSPDXIdentifier:   element("Module", m.Path, m.Version),
		PackageName:             m.Path,
		PackageVersion:          m.Version,
		PackageDownloadLocation: unknown,
		PackageSupplier:         &common.Supplier{Supplier: unknown},
		PackageLicenseConcluded: unknown,
		PackageLicenseDeclared:  unknown,
		PackageCopyrightText:    unknown,
		PrimaryPackagePurpose:   "LIBRARY",
		PackageExternalReferences: []*spdx.PackageExternalReference{
			{Category: "PACKAGE-MANAGER", RefType: "purl", Locator: PURL(m)},
		},
	}
}

func relation(a common.ElementID, what string, b common.ElementID) *spdx.Relationship {
	return &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: a}, Relationship: what, RefB: common.DocElementID{ElementRefID: b},
	}
}

var odd = regexp.MustCompile(`[^a-zA-Z0-9.]+`)

// element is an identifier of the document, which has letters, digits, "." and "-" only.
func element(parts ...string) common.ElementID {
	return common.ElementID(odd.ReplaceAllString(strings.Join(parts, "-"), "-"))
}
