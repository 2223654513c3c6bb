#!/usr/bin/env bash
# test-race.sh   runs the unit tests of the packages with goroutines once more, with the race detector, and all of
# plugins/fabric with failpoints. FABRIC_LAB_FULL=1: all of plugins/fabric with the race detector too, and the random
# walk in full, which takes an hour.
#
# A package is taken if it, or its tests, start a goroutine or serve HTTP: the detector finds nothing in others.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
export GOFLAGS="${GOFLAGS:-} -trimpath"
status=0

# These only read a great deal, in one goroutine, ten times as slowly with the race detector.
reads='^(TestHostileText|TestHostileFlags|TestGenerateIgnoresNoFlag|TestMachinesAreValid|TestEachItem|TestSchemas)$'
mapfile -t packages < <(grep -rlE --include='*.go' '^\s*go [A-Za-z_(]|\b(errgroup|WaitGroup)\b|"net/http"' \
  cmd internal pkg scripts | sed 's|^|./|; s|/[^/]*$||' | sort -u)
echo "test-race: ${#packages[@]} packages with goroutines: ${packages[*]}"
CGO_ENABLED=1 $go test -json -race -vet=off -parallel 8 -timeout 30m -skip "$reads" "${packages[@]}" |
  $go run ./scripts/testreport || status=1

# The plugin is a process of its own, built with the race detector as well: ADD and DEL call IPAM in a goroutine.
beside='^(TestAddDel|TestParallel|TestGC|TestBuiltinIPAM|TestLateAdd.*|TestDelWaits.*|Test.*AtOnce)$'
if [ -n "${FABRIC_LAB_FULL-}" ]; then beside='^Test[^W]'; fi # the walk is below
echo "test-race: ./plugins/fabric $beside"
CGO_ENABLED=1 $go test -json -race -vet=off -parallel 8 -timeout 60m -run "$beside" ./plugins/fabric |
  $go run ./scripts/testreport || status=1

# Failpoints only exist in binaries built with their tag. make test has the tests as shipped.
export CGO_ENABLED=0
mapfile -t tagged < <(grep -rlE --include='*.go' '^//go:build .*\bfailpoint\b' cmd internal pkg plugins |
  sed 's|^|./|; s|/[^/]*$||' | sort -u)
echo "test-race: tag failpoint: ${tagged[*]}"
timeout=${FABRIC_LAB_FULL:+90m}
$go test -json -vet=off -ldflags='-s -w' -tags failpoint -parallel 8 -timeout "${timeout:-30m}" "${tagged[@]}" |
  $go run ./scripts/testreport || status=1
exit "$status"
