#!/usr/bin/env bash
# test-unit.sh [go test flag...]   runs the tests that need no lab: plain Go tests, and tests in real network namespaces
# of this machine (as root). Fuzz seeds run as ordinary tests. Without the race detector and failpoints: test-race.sh.
# Without what scripts/slow.txt lists: test-slow.sh.
#
# Compiled as the programs are, without cgo and without paths, so these tests, the programs and the lab share what the
# compiler makes. Vet is part of make lint.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"
if [ "$(id -u)" -ne 0 ]; then
  echo "test-unit: not root: the tests that need network namespaces are skipped"
fi

list=$($go list ./...)
# Not integration/: those tests run in the lab (make test-lab), or with Kubernetes (make e2e).
mapfile -t packages < <(grep -v '/integration/' <<<"$list")
slow=$(sed -E '/^(#|$)/d; s/^[^ ]+ ([^ ]+).*/\1/' scripts/slow.txt | paste -sd '|')

# In network namespaces a test mostly waits for the kernel, which says once a second that a link has its carrier: eight
# at once wait for the same second. The random walk takes longer in full than what go test gives a package.
timeout=${FABRIC_LAB_FULL:+60m}
echo "test-unit: ${#packages[@]} packages; left to test-slow: ${slow//|/ }"
$go test -json -vet=off -ldflags='-s -w' -parallel 8 -timeout "${timeout:-20m}" -skip "^($slow)\$" "$@" \
  "${packages[@]}" |
  $go run ./scripts/testreport
