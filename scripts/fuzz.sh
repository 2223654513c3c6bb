#!/usr/bin/env bash
# fuzz.sh BUDGET   runs every fuzz target of the module for BUDGET each (go test fuzzes one target at a time):
# a number of executions (20000x), or a duration (10m). The gate takes a number: up to Go 1.26 a duration that ends
# while a worker runs is now and then reported as a failure, "context deadline exceeded" (golang/go#75804).
# A crasher is left in the package's testdata/fuzz: commit it with the fix, it is a test from then on.
set -euo pipefail
cd "$(dirname "$0")/.."

budget=${1:?usage: fuzz.sh BUDGET}
targets=$(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' cmd internal pkg plugins |
  sed 's/:func /:/' | sort || true)
if [ -z "$targets" ]; then
  echo "fuzz: no fuzz targets"
  exit 0
fi
while IFS=: read -r file target; do
  echo "fuzz: $target in ${file%/*}, $budget"
  # What it says every few seconds matters only when it fails. Inputs that are merely new are not made smaller for
  # long: that takes up to a minute each, and the budget does not count it.
  if ! out=$("${GO:-go}" test -run '^$' -fuzz "^$target\$" -fuzztime "$budget" -fuzzminimizetime 100x \
    "./${file%/*}" 2>&1 </dev/null); then
    echo "$out"
    exit 1
  fi
  tail -n 1 <<<"$out"
done <<<"$targets"
