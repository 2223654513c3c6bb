#!/usr/bin/env bash
# check-files.sh   no Go file over 400 lines (generated ones aside; 600 in plugins/fabric), no package whose name says
# nothing, and no line of a shell script or workflow over 120 columns. The linters hold the lines of Go files.
set -euo pipefail
cd "$(dirname "$0")/.."

status=0
files=$(git -c safe.directory='*' ls-files --cached --others --exclude-standard -- '*.go')
while IFS= read -r file; do
  [ -f "$file" ] || continue # deleted, not yet committed
  if head -n 20 "$file" | grep -qE '^// Code generated .* DO NOT EDIT\.$'; then
    continue
  fi
  case $file in
    plugins/fabric/*) max=600 ;; # a verb is read from top to bottom
    *) max=400 ;;
  esac
  lines=$(wc -l <"$file")
  if [ "$lines" -gt $max ]; then
    echo "$file: $lines lines, $max at most: split it by what it does"
    status=1
  fi
  if grep -nHE '^package (utils?|common|types|helpers?|managers?|misc|shared)(_test)?$' "$file"; then
    echo "$file: name the package after what it does"
    status=1
  fi
done <<<"$files"

# A line that can't be broken says why in a comment: `# long: REASON`.
scripts=$(git -c safe.directory='*' ls-files --cached --others --exclude-standard -- '*.sh' .ci/run '.github/*.yml')
while IFS= read -r file; do
  [ -f "$file" ] || continue
  if grep -nHE '^.{121,}' "$file" | grep -vE '# long: [^ ]'; then
    echo "$file: lines of 120 columns at most"
    status=1
  fi
done <<<"$scripts"
exit $status
