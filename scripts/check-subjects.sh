#!/usr/bin/env bash
# check-subjects.sh   subjects of commits have at most 72 characters.
set -euo pipefail
cd "$(dirname "$0")/.."

# Older ones stay as they are. A shallow clone has its last commit only.
since=02331048ef95e40de5855a3ee66874dfb81651f1
range=(-1)
if git -c safe.directory='*' cat-file -e "$since" 2>/dev/null; then
  range=("$since..")
fi
git -c safe.directory='*' log --no-merges --format=%s "${range[@]}" | {
  long=0
  while IFS= read -r subject; do
    if ((${#subject} > 72)); then
      echo "check-subjects: ${#subject} characters, 72 at most: $subject"
      long=1
    fi
  done
  exit "$long"
}
