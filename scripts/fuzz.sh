#!/usr/bin/env bash
# fuzz.sh DURATION   runs every fuzz target of the module for DURATION each (go test fuzzes one target at a time).
# A crasher is left in the package's testdata/fuzz: commit it with the fix, it is a test from then on.
set -euo pipefail
cd "$(dirname "$0")/.."

duration=${1:?usage: fuzz.sh DURATION}
targets=$(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' cmd internal pkg plugins |
  sed 's/:func /:/' | sort || true)
if [ -z "$targets" ]; then
  echo "fuzz: no fuzz targets"
  exit 0
fi
while IFS=: read -r file target; do
  echo "fuzz: $target in ${file%/*}, $duration"
  # What it says every few seconds matters only when it fails.
  if ! out=$("${GO:-go}" test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" "./${file%/*}" 2>&1 </dev/null); then
    echo "$out"
    exit 1
  fi
  tail -n 1 <<<"$out"
done <<<"$targets"
