#!/usr/bin/env bash
# test-lab.sh KERNEL...   runs integration/ on these kernels: 6.1, 6.12, next. They are fetched once. LAB_RUN narrows it
# to the guest tests that match a regular expression, LAB_TIMEOUT bounds the whole. FABRIC_LAB_FULL=1 runs every cell,
# fault and round on every kernel; FABRIC_LAB_NOCACHE=1 runs also what has passed before with the same binaries.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
setup=(igb traffic)
# rdma-core's own tests run at night, and for those who ask for them
run=${LAB_RUN:-}
if [ -n "${FABRIC_LAB_FULL:-}" ] || { [ -n "$run" ] && [[ TestPyverbs =~ ${run%%/*} ]]; }; then setup+=(pyverbs); fi
scripts/lab-setup.sh "$@" "${setup[@]}"
echo "test-lab: kernels $*${FABRIC_LAB_FULL:+, in full}"
summary=$(mktemp)
trap 'rm -f "$summary"' EXIT
export FABRIC_LAB_KERNELS="$*" FABRIC_LAB_RUN=${LAB_RUN:-} FABRIC_LAB_SUMMARY=$summary
timeout=${LAB_TIMEOUT:-${FABRIC_LAB_FULL:+240m}}
# -count=1: what is under test is the kernel, of which the test cache knows nothing. The lab has its own cache of
# results. Not integration/cluster and integration/controlplane: these are make e2e.
list=$($go list ./integration/...)
mapfile -t packages < <(grep -vE "/integration/(cluster|controlplane)" <<<"$list")
status=0
$go test -json -count=1 -timeout "${timeout:-75m}" "${packages[@]}" | $go run ./scripts/testreport -v || status=$?
cat "$summary"
exit "$status"
