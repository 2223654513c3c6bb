#!/usr/bin/env bash
# check-docs.sh   every link, path, make target, command of fabricctl and Go name that a page names exists
# (conf/docs_test.go).
set -euo pipefail
cd "$(dirname "$0")/.."

${GO:-go} test -run '^Test(Pages|Documentation)' ./conf
