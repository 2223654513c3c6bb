#!/usr/bin/env bash
# test-lab.sh KERNEL...   runs integration/ on these kernels: 6.1, 6.12, next. They are fetched once. LAB_RUN narrows it to
# the guest tests that match a regular expression, LAB_TIMEOUT (75m) bounds the whole.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
scripts/lab-setup.sh "$@" igb
echo "test-lab: kernels $*"
export FABRIC_LAB_KERNELS="$*" FABRIC_LAB_RUN=${LAB_RUN:-}
# -count=1: what is under test is the kernel, of which the test cache knows nothing.
# Not integration/cluster: that is make e2e.
list=$($go list ./integration/...)
mapfile -t packages < <(grep -v /integration/cluster <<<"$list")
$go test -json -count=1 -timeout "${LAB_TIMEOUT:-75m}" "${packages[@]}" | $go run ./scripts/testreport -v
