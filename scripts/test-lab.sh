#!/usr/bin/env bash
# test-lab.sh KERNEL...   runs integration/ on these kernels: 6.1, 6.12, next. They are fetched once. LAB_RUN narrows it
# to the guest tests that match a regular expression, LAB_TIMEOUT bounds the whole. FABRIC_SEED runs a share of the
# tests, another one for each seed; FABRIC_LAB_FULL=1 every cell, fault and round on every kernel; FABRIC_LAB_NOCACHE=1
# also what has passed before with the same binaries.
# test-lab.sh --sample    runs some tests of each kind on 6.12, in minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
setup=(igb traffic)
# -count=1: what is under test is the kernel, of which the test cache knows nothing. The lab has its own cache of
# results. Not integration/cluster and integration/controlplane: these are make e2e.
list=$($go list ./integration/...)
mapfile -t packages < <(grep -vE "/integration/(cluster|controlplane)" <<<"$list")
flags=()
run=${LAB_RUN:-}
if [ "${1:-}" = --sample ]; then
  set -- 6.12
  setup=(traffic) packages=(./integration/lab) run=
  flags=(-run '^Test(Lab|SampleIsThere)$')
  export FABRIC_LAB_SAMPLE=1
fi
# rdma-core's own tests run at night, and for those who ask for them
if [ -n "${FABRIC_LAB_FULL:-}" ] || { [ -n "$run" ] && [[ TestPyverbs =~ ${run%%/*} ]]; }; then setup+=(pyverbs); fi
scripts/lab-setup.sh "$@" "${setup[@]}"
echo "test-lab: kernels $*${FABRIC_LAB_FULL:+, in full}"
summary=$(mktemp)
trap 'rm -f "$summary"' EXIT
export FABRIC_LAB_KERNELS="$*" FABRIC_LAB_RUN=$run FABRIC_LAB_SUMMARY=$summary
timeout=${LAB_TIMEOUT:-${FABRIC_LAB_FULL:+240m}}
status=0
$go test -json -count=1 -timeout "${timeout:-75m}" "${flags[@]}" "${packages[@]}" |
  $go run ./scripts/testreport -v || status=$?
cat "$summary"
exit "$status"
