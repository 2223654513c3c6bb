#!/usr/bin/env bash
# check-skips.sh   a test may skip only if its file is listed in scripts/skips.txt with a reason.
set -euo pipefail
cd "$(dirname "$0")/.."

pattern='\.(Skip|Skipf|SkipNow)\('
status=0
files=$(git -c safe.directory='*' ls-files --cached --others --exclude-standard -- '*.go')
while IFS= read -r file; do
  if ! grep -qsE "$pattern" "$file"; then
    continue
  fi
  if ! grep -qE "^${file//./\\.}[[:space:]]+(local|ci)[[:space:]]+[^[:space:]]" scripts/skips.txt; then
    grep -nHE "$pattern" "$file"
    echo "$file: skips, but scripts/skips.txt does not say why"
    status=1
  fi
done <<<"$files"
while read -r file _; do
  case $file in '' | '#'*) continue ;; esac
  if ! grep -qsE "$pattern" "$file"; then
    echo "scripts/skips.txt: $file skips nothing: remove the line"
    status=1
  fi
done <scripts/skips.txt
exit $status
