#!/usr/bin/env bash
# check-words.sh   no comment, no page and no message of a program has one of these phrases: each hides who does what.
set -euo pipefail
cd "$(dirname "$0")/.."

phrases='nobody|somebody|whoever|is none|comes? home|came home|says so|it is that|besides'
found=0
found_in() { # found_in PATTERN PATHSPEC...
  local status=0
  git -c safe.directory='*' grep --untracked -nIiwE "$1" -- "${@:2}" || status=$?
  case $status in
    0) found=1 ;;
    1) ;;
    *) exit "$status" ;;
  esac
}

# Messages of the program stand between backquotes or quotes in pages.
found_in "^[^\`\"]*($phrases)" '*.md' ':!CHANGELOG.md' ':!docs/doctor.md' ':!docs/schemas'
found_in "//.*($phrases)" '*.go' ':!*_test.go'
# What the programs print. "is none of those" is a message that released versions of fabricctl know.
printed='nobody|somebody|whoever|comes? home|come home|came home|says so|it is that|besides'
found_in "\"[^\"]*\b($printed)\b[^\"]*\"" 'cmd/*.go' 'internal/*.go' 'pkg/*.go' 'plugins/*.go' ':!*_test.go'
# "// " begins a comment, and is in no URL.
found_in "// .*($phrases)" '*_test.go'
if ((found)); then
  echo "check-words: say who does what, in other words than these: ${phrases//|/, }"
  exit 1
fi
