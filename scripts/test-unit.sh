#!/usr/bin/env bash
# test-unit.sh [go test flag...]   runs every test that needs no lab: plain Go tests, and tests in real network
# namespaces of this machine (as root). With the race detector where there is a C compiler. Fuzz seeds run as ordinary
# tests.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
race=()
if command -v "$($go env CC)" >/dev/null 2>&1; then
  export CGO_ENABLED=1
  race=(-race)
else
  echo "test-unit: no C compiler, so no race detector"
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "test-unit: not root: the tests that need network namespaces are skipped"
fi

# Not integration/: those tests run in the lab (make test-lab). Not scripts/release with the race detector: it reads
# whole archives again and again, ten times as slowly then. Failpoints only exist in binaries built with their tag, so
# the tests run once as shipped and once, for the packages that know failpoints, with them.
list=$($go list ./...)
mapfile -t packages < <(grep -vE '/integration/|/scripts/release$' <<<"$list")
mapfile -t tagged < <(grep -rlE --include='*.go' '^//go:build .*\bfailpoint\b' cmd internal pkg plugins 2>/dev/null |
  sed 's|^|./|; s|/[^/]*$||' | sort -u)

# The random walk takes longer in full than the ten minutes that go test gives a package.
timeout=${FABRIC_LAB_FULL:+60m}
race+=(-timeout "${timeout:-20m}")

echo "test-unit: ${#packages[@]} packages ${race[*]}"
$go test -json "${race[@]}" "$@" "${packages[@]}" | $go run ./scripts/testreport
$go test -json "$@" ./scripts/release | $go run ./scripts/testreport
if [ ${#tagged[@]} -gt 0 ]; then
  echo "test-unit: tag failpoint: ${tagged[*]}"
  $go test -json -tags failpoint "${race[@]}" "$@" "${tagged[@]}" | $go run ./scripts/testreport
fi
