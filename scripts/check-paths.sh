#!/usr/bin/env bash
# check-paths.sh   no file names a home directory of its author.
set -euo pipefail
cd "$(dirname "$0")/.."

# One letter of each in brackets, so that this file does not match itself.
pattern='(^|[^[:alnum:]_.-])/([U]sers|[h]ome/[a-z])/'
status=0
git -c safe.directory='*' grep --untracked -nIE "$pattern" -- || status=$?
case $status in
  0)
    echo "check-paths: home directories, above"
    exit 1
    ;;
  1) ;; # none
  *) exit "$status" ;;
esac
