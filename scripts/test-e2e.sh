#!/usr/bin/env bash
# test-e2e.sh [REGEXP]   runs integration/controlplane and integration/cluster, or their tests that match: a real API
# server with the controller and what agents may do, then a real Kubernetes with nodes that have simulated HCAs. The
# first run compiles Kubernetes, see cluster-setup.sh. E2E_TIMEOUT (75m) bounds each, and the wait for another run on
# this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
scripts/cluster-setup.sh
# One after the other: each has API servers that want to be quick. The one that is done in minutes first.
# -count=1: what is under test is made of much that the test cache knows nothing of.
for package in controlplane cluster; do
  status=0
  $go test -json -count=1 -timeout "${E2E_TIMEOUT:-75m}" ${1:+-run "$1"} "./integration/$package" || status=$?
  if [ "$status" -ne 0 ]; then exit "$status"; fi
done | $go run ./scripts/testreport -v
