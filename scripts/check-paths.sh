#!/usr/bin/env bash
# check-paths.sh   no file names a directory that exists only on its author's machine.
set -euo pipefail
cd "$(dirname "$0")/.."

# One letter of each in brackets, so that this file does not match itself.
pattern='(^|[^[:alnum:]_.-])/([w]ork|[f]arm|[U]sers|[h]ome/[a-z])/'
status=0
git -c safe.directory='*' grep --untracked -nIE "$pattern" -- || status=$?
case $status in
  0)
    echo "check-paths: paths of one machine, above"
    exit 1
    ;;
  1) ;; # none
  *) exit "$status" ;;
esac
