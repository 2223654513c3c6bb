#!/usr/bin/env bash
# lint.sh [PACKAGE...]   runs golangci-lint over every package, or these: as shipped, and with the build tags of the
# lab.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then set -- ./...; fi
lint=("${GO:-go}" tool -modfile=scripts/tools/go.mod golangci-lint run)
status=0
"${lint[@]}" "$@" || status=1
"${lint[@]}" --build-tags failpoint,labguest "$@" || status=1
exit $status
