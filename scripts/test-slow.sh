#!/usr/bin/env bash
# test-slow.sh   runs the unit tests of scripts/slow.txt: of the packages whose directory has changed in the last ten
# commits, and one more of them, or none, by FABRIC_SEED. All without a seed, and with FABRIC_LAB_FULL=1.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"
git() { command git -c safe.directory='*' "$@"; }

# changed DIR: in a clone with less history everything has.
changed() { ! git diff --quiet HEAD~10 -- "$1" 2>/dev/null; }

mapfile -t packages < <(sed -E '/^(#|$)/d; s/ .*//' scripts/slow.txt)
picked=$($go run ./scripts/share 1 "${packages[@]}" none)
status=0
while read -r package tests why; do
  case $package in '' | '#'*) continue ;; esac
  for test in ${tests//|/ }; do
    grep -qs "^func $test(" "$package"/*_test.go || { echo "test-slow: $package has no $test" && status=1; }
  done
  if ! grep -qxF "$package" <<<"$picked" && ! changed "$package"; then
    echo "test-slow: left to make test-full: $tests ($why)"
    continue
  fi
  $go test -json -vet=off -ldflags='-s -w' -timeout 30m -run "^($tests)\$" "$package" </dev/null |
    $go run ./scripts/testreport || status=1
done <scripts/slow.txt
exit "$status"
