#!/usr/bin/env bash
# lint.sh [PACKAGE...]   runs the linters (scripts/tools/lint) over every package, or these: as shipped, and with the
# build tags of the lab. They are one tool of go vet: the build cache knows what they found.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
export GOFLAGS="${GOFLAGS:-} -buildvcs=false"
if [ $# -eq 0 ]; then set -- ./...; fi
mkdir -p build
tool=$PWD/build/lint
CGO_ENABLED=0 "$go" -C scripts/tools build -trimpath -ldflags '-s -w' -o "$tool" ./lint

status=0
mapfile -t files < <(git -c safe.directory='*' ls-files --cached --others --exclude-standard -- '*.go')
for file in "${!files[@]}"; do [ -f "${files[$file]}" ] || unset "files[$file]"; done # deleted, not yet committed
unformatted=$("$("$go" env GOROOT)/bin/gofmt" -s -l "${files[@]}")
if [ -n "$unformatted" ]; then
  echo "$unformatted"
  echo "lint: not formatted: gofmt -s -w"
  status=1
fi
"$go" vet -vettool="$tool" "$@" || status=1
"$go" vet -vettool="$tool" -tags failpoint,labguest "$@" || status=1
# What they find, and typecheck of check-binary.sh, on files that are wrong on purpose.
if [ "$*" = ./... ]; then "$go" -C scripts/tools test ./... || status=1; fi
exit $status
