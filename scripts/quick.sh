#!/usr/bin/env bash
# quick.sh [BASE]   builds and lints everything, and runs the unit tests of the packages that have changed since BASE
# and of what is made of them. Without the race detector, the lab and Kubernetes: those are the gate.
#
# BASE is a commit. Without it: where this branch left main; on main itself, where it left origin/main; and if nothing
# has changed since then, the commit before the last one. Files that are not committed count in any case.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath" # as scripts/test-unit.sh
git() { command git -c safe.directory='*' "$@"; }

base() {
  local ref at
  for ref in origin/main main; do
    at=$(git merge-base HEAD "$ref" 2>/dev/null) || continue
    if [ "$at" != "$(git rev-parse HEAD)" ] || [ -n "$(git status --porcelain)" ]; then
      echo "$at"
      return
    fi
  done
  git rev-parse -q --verify 'HEAD~1' || git rev-parse HEAD
}

summary=()
# step NAME COMMAND...: runs it, and notes the seconds
step() {
  local name=$1 started=$SECONDS
  shift
  echo "==> $name"
  "$@" || { echo "==> $name FAILED after $((SECONDS - started)) s"; exit 1; }
  summary+=("$(printf '%6d s  %s' $((SECONDS - started)) "$name")")
}

build() { "$go" build ./... && "$go" build -tags failpoint,labguest ./...; }
checks() { scripts/check-files.sh && scripts/check-skips.sh && scripts/check-paths.sh && scripts/check-shell.sh; }
unit() { "$go" test -json "$@" | "$go" run ./scripts/testreport; }

since=${1:-$(base)}
echo "quick: what has changed since $(git log -1 --format='%h %s' "$since")"
{ read -r _ && read -r -a tested; } < <("$go" run ./scripts/affected "$since")
# Unit tests are those outside of integration/.
mapfile -t tested < <(printf '%s\n' "${tested[@]}" | grep -v '/integration/' || true)

step build build
step checks checks
step lint scripts/lint.sh
if [ -n "${tested[*]}" ]; then step "test ${#tested[@]} packages" unit "${tested[@]}"; fi
echo "==> passed: quick in $SECONDS s"
printf '%s\n' "${summary[@]}"
