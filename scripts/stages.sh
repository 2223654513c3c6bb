#!/usr/bin/env bash
# stages.sh TARGET...   makes the targets one after the other and says how long each took. Stops at the first that fails.
set -euo pipefail
cd "$(dirname "$0")/.."

summary=()
for target in "$@"; do
  echo "==> $target"
  start=$SECONDS
  if ! "${MAKE:-make}" --no-print-directory "$target"; then
    echo "==> $target FAILED after $((SECONDS - start)) s"
    exit 1
  fi
  summary+=("$target $((SECONDS - start)) s")
done
printf '==> passed:'
printf ' %s,' "${summary[@]}"
echo " all $SECONDS s"
