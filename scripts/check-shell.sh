#!/usr/bin/env bash
# check-shell.sh   shellcheck over every shell script.
set -euo pipefail
cd "$(dirname "$0")/.."

files=$(git -c safe.directory='*' ls-files --cached --others --exclude-standard -- '*.sh' .ci/run)
existing=()
while IFS= read -r file; do
  if [ -f "$file" ]; then existing+=("$file"); fi
done <<<"$files"
# SC2015: `test && do || die` is meant as it reads.
shellcheck --exclude SC2015 "${existing[@]}"
