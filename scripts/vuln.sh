#!/usr/bin/env bash
# vuln.sh   runs govulncheck where its database can be reached. A known vulnerability in code that we call fails; a
# machine that can't reach the database says so and passes.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

out=$(timeout 300 "${GO:-go}" tool -modfile=scripts/tools/go.mod govulncheck ./... 2>&1)
status=$?
echo "$out"
case $out in
  *"fetching vulnerabilities:"*)
    echo "vuln: the database can't be reached: not checked"
    exit 0
    ;;
esac
exit $status
