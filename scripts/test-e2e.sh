#!/usr/bin/env bash
# test-e2e.sh [REGEXP]   runs integration/controlplane and integration/cluster, or their tests that match: a real API
# server with the controller and what agents may do, and a real Kubernetes with nodes that have simulated HCAs. The
# first run compiles Kubernetes, see cluster-setup.sh. E2E_TIMEOUT (75m) bounds each, and the wait for another run on
# this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
# The lab comes after this stage, and needs so many seconds for what each landing has to run.
[ -z "${FABRIC_DEADLINE:-}" ] || export FABRIC_DEADLINE=$((FABRIC_DEADLINE - 12 * 60))
scripts/cluster-setup.sh
# As in cluster-setup.sh: what these tests and Kubernetes have in common is compiled once.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -buildvcs=false -trimpath"
# Side by side: both mostly wait, and one alone would leave CPUs idle, unless the lab runs.
# -count=1: what is under test is made of much that the test cache knows nothing of. -vet=off: make lint has looked.
$go test -json -count=1 -p 2 -vet=off -ldflags '-s -w' -timeout "${E2E_TIMEOUT:-75m}" ${1:+-run "$1"} \
  ./integration/controlplane ./integration/cluster |
  $go run ./scripts/testreport -v
