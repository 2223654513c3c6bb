package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
)

func checksum(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// writeSums writes what `sha256sum -c` reads.
func (r *release) writeSums() error {
	var text strings.Builder
	for _, name := range r.files() {
		sum, err := checksum(r.path(name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, name)
	}
	return os.WriteFile(r.path(sums), []byte(text.String()), 0o644)
}

// A statement of in-toto with the provenance of SLSA: https://slsa.dev/spec/v1.0/provenance. It is not signed here: the
// workflow makes a signed one of the same files.
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     predicate `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
}

type predicate struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		ResolvedDependencies []subject         `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID      string            `json:"id"`
			Version map[string]string `json:"version"`
		} `json:"builder"`
	} `json:"runDetails"`
}

func (r *release) writeProvenance() error {
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, name := range r.files() {
		if name == provenance {
			continue
		}
		sum, err := checksum(r.path(name))
		if err != nil {
			return err
		}
		s.Subject = append(s.Subject, subject{Name: name, Digest: map[string]string{"sha256": sum}})
	}
	d := &s.Predicate.BuildDefinition
	d.BuildType = repository + "/blob/main/docs/releasing.md"
	d.ExternalParameters = map[string]string{
		"version": r.version, "image": r.image, "architectures": strings.Join(r.architectures, " "),
	}
	d.ResolvedDependencies = []subject{{
		URI: "git+" + repository + "@refs/tags/" + r.version, Digest: map[string]string{"gitCommit": r.commit},
	}}
	s.Predicate.RunDetails.Builder.ID = repository + "/blob/main/scripts/release"
	s.Predicate.RunDetails.Builder.Version = map[string]string{"go": runtime.Version()}
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(provenance), append(b, '\n'), 0o644)
}
