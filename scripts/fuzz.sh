#!/usr/bin/env bash
# fuzz.sh BUDGET [N]   runs the fuzz targets of the module for BUDGET each (go test fuzzes one target at a time): a
# number of executions (20000x), or a duration (10m). With N, those of N packages, by FABRIC_SEED; all of them without a
# seed, and with FABRIC_LAB_FULL=1. The compiler takes longer than the fuzzing: it makes a package, with all that it
# imports, in a way of its own.
#
# A crasher is left in the package's testdata/fuzz: commit it with the fix, it is a test from then on. A failure without
# one is not of the target: a duration that ends while a worker runs (golang/go#75804, up to Go 1.26), a worker that the
# kernel has killed. Then the target is run once more.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"
budget=${1:?usage: fuzz.sh BUDGET [N]}
mapfile -t packages < <(grep -rlE --include='*_test.go' '^func Fuzz' cmd internal pkg plugins |
  sed 's|/[^/]*$||' | sort -u)
all=${#packages[@]}
if [ $# -gt 1 ]; then
  picked=$("$go" run ./scripts/share "$2" "${packages[@]}")
  mapfile -t packages <<<"$picked"
fi
echo "fuzz: ${#packages[@]} of $all packages, make test-full has all: ${packages[*]}"

# What it says every few seconds matters only when it fails. Inputs that are merely new are not made smaller for long:
# that takes up to a minute each, and the budget does not count it.
fuzz() { # PACKAGE TARGET
  out=$("$go" test -vet=off -run '^$' -fuzz "^$2\$" -fuzztime "$budget" -fuzzminimizetime 100x "./$1" 2>&1 </dev/null)
}

for package in "${packages[@]}"; do
  mapfile -t targets < <(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$package"/*_test.go | sed 's/^func //')
  for target in "${targets[@]}"; do
    echo "fuzz: $target in $package, $budget"
    if ! fuzz "$package" "$target"; then
      echo "$out"
      if grep -q 'Failing input written to' <<<"$out"; then exit 1; fi
      echo "fuzz: $target failed without an input: once more"
      fuzz "$package" "$target" || { echo "$out"; exit 1; }
    fi
    tail -n 1 <<<"$out"
  done
done
