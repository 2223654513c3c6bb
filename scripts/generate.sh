#!/usr/bin/env bash
# generate.sh            writes what comes from Go: deep copies and CustomResourceDefinitions (also for the Helm chart)
#                        from the types of pkg/api, and the pages of docs/reference: api.md, signals.md,
#                        fabricctl.md and fabric-agent.md.
# generate.sh --check    writes nothing: fails if the committed files are not what it would write.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
gen=("$go" tool -modfile=scripts/tools/go.mod controller-gen paths=./pkg/api/...)

if [ "${1:-}" != --check ]; then
  "${gen[@]}" object crd output:object:dir=pkg/api/v1alpha1 output:crd:dir=deployments/helm/fabric-cni/crds
  "$go" test ./deployments -run TestChart -update >/dev/null # the schema of its values
  "$go" test ./cmd/fabric-agent ./cmd/fabricctl/internal/cli -run '^TestReference$' -update >/dev/null
  "$go" run ./scripts/apidoc
  exec "$go" run ./scripts/signals
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${gen[@]}" object crd output:object:dir="$dir" output:crd:dir="$dir"
status=0
for file in "$dir"/*; do
  name=$(basename "$file")
  case $name in
    *.go) committed=pkg/api/v1alpha1/$name ;;
    *) committed=deployments/helm/fabric-cni/crds/$name ;;
  esac
  if ! diff -u "$committed" "$file"; then
    echo "$committed is not what the types in pkg/api/v1alpha1 say: make generate"
    status=1
  fi
done
# The pages and the chart are compared by tests: go test ./scripts/apidoc ./scripts/signals ./deployments ./cmd/...
exit $status
