#!/usr/bin/env bash
# test-unit.sh [go test flag...]   runs every test that needs no lab: plain Go tests, and tests in real network
# namespaces of this machine (as root). With the race detector where there is a C compiler. Fuzz seeds run as ordinary
# tests. build/unit-plain.json and build/unit-failpoint.json are what the runs beside the first one printed.
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

# Not integration/: those tests run in the lab (make test-lab). These tests have one goroutine and a great deal to read:
# ten times as slow with the race detector, which would find nothing.
plain='^(TestHostileText|TestHostileFlags|TestTextIsLinear|TestWholeRelease)$'
list=$($go list ./...)
mapfile -t packages < <(grep -v '/integration/' <<<"$list")
mapfile -t without < <(grep -rlE --include='*_test.go' "^func (${plain:2:-2})\(" cmd internal pkg plugins scripts |
  sed 's|^|./|; s|/[^/]*$||' | sort -u)
# Failpoints only exist in binaries built with their tag, so the tests run once as shipped and once, for the packages
# that know failpoints, with them.
mapfile -t tagged < <(grep -rlE --include='*.go' '^//go:build .*\bfailpoint\b' cmd internal pkg plugins 2>/dev/null |
  sed 's|^|./|; s|/[^/]*$||' | sort -u)

# The random walk takes longer in full than the ten minutes that go test gives a package.
timeout=${FABRIC_LAB_FULL:+60m}
race+=(-timeout "${timeout:-20m}")

# Beside the packages, as one of as many as there are processors: tests that measure time have no less of them.
cpus=$(nproc)
mkdir -p build
beside() {
  local status=0
  $go test -json -p 1 "$@" -run "$plain" "${without[@]}" >build/unit-plain.json || status=1
  [ ${#tagged[@]} -eq 0 ] ||
    $go test -json -p 1 -tags failpoint "${race[@]}" "$@" "${tagged[@]}" >build/unit-failpoint.json || status=1
  return "$status"
}
beside "$@" &
trap 'kill "$!" 2>/dev/null || true' EXIT

echo "test-unit: ${#packages[@]} packages ${race[*]}"
status=0
$go test -json -p $((cpus > 1 ? cpus - 1 : 1)) "${race[@]}" -skip "$plain" "$@" "${packages[@]}" |
  $go run ./scripts/testreport || status=1
wait "$!" || status=1
trap - EXIT
echo "test-unit: $plain: ${without[*]}"
$go run ./scripts/testreport <build/unit-plain.json || status=1
if [ ${#tagged[@]} -gt 0 ]; then
  echo "test-unit: tag failpoint: ${tagged[*]}"
  $go run ./scripts/testreport <build/unit-failpoint.json || status=1
fi
exit "$status"
