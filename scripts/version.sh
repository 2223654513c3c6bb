#!/usr/bin/env bash
# Prints the version that goes into the binaries: the last tag, and how far the tree is from it. A tree without tags
# gives its commit, a tree without git (a source archive) gives v0.0.0-unknown.
set -euo pipefail
cd "$(dirname "$0")/.."

# safe.directory: CI runs as root on a clone that may belong to someone else.
git -c safe.directory='*' describe --tags --always --dirty --match 'v[0-9]*' 2>/dev/null || echo v0.0.0-unknown
