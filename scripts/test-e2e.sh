#!/usr/bin/env bash
# test-e2e.sh [REGEXP]   runs integration/cluster, or its tests that match: a real Kubernetes, with nodes that have
# simulated HCAs. The first run compiles Kubernetes, see cluster-setup.sh. E2E_TIMEOUT (75m) bounds it, and the wait for
# another run on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
# -count=1: what is under test is made of much that the test cache knows nothing of.
$go test -json -count=1 -timeout "${E2E_TIMEOUT:-75m}" ${1:+-run "$1"} ./integration/cluster |
  $go run ./scripts/testreport -v
