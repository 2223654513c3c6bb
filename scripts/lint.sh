#!/usr/bin/env bash
# lint.sh   runs golangci-lint over every file: as shipped, and with the build tags of the lab.
set -euo pipefail
cd "$(dirname "$0")/.."

lint=("${GO:-go}" tool -modfile=scripts/tools/go.mod golangci-lint run)
status=0
"${lint[@]}" ./... || status=1
"${lint[@]}" --build-tags failpoint,labguest ./... || status=1
exit $status
