#!/usr/bin/env bash
# check-binary.sh   the CNI binary, exec'd for every call, stays small and without Kubernetes; all programs are static;
# fabricctl compiles for the systems that people have on their desks.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="${GOFLAGS:-} -buildvcs=false"

go=${GO:-go}
max=$((8 * 1000 * 1000))
status=0
unwanted='^((sigs\.)?k8s\.io|net/http|crypto/tls|google\.golang\.org|github\.com/k8snetworkplumbingwg|.*/pkg/api)(/|$)'
if deps=$($go list -deps ./cmd/fabric | grep -E "$unwanted"); then
  echo "check-binary: cmd/fabric links, through some import:"
  echo "$deps"
  status=1
fi
size=$(wc -c <bin/fabric)
if [ "$size" -gt $max ]; then
  echo "check-binary: bin/fabric has $size bytes, $max at most"
  status=1
fi
for binary in bin/*; do
  if ! $go version -m "$binary" | grep -q 'CGO_ENABLED=0'; then
    echo "check-binary: $binary is not static"
    status=1
  fi
done
# Other architectures differ in nothing that is ours. The release compiles them all.
CGO_ENABLED=0 $go -C scripts/tools build -trimpath -ldflags '-s -w' -o "$PWD/build/typecheck" ./typecheck
if ! build/typecheck ./cmd/fabricctl darwin/amd64 windows/amd64; then
  echo "check-binary: fabricctl does not compile for all of them: what needs Linux belongs in a file *_linux.go"
  status=1
fi
if [ $status -eq 0 ]; then
  echo "check-binary: bin/fabric: $size bytes, static"
fi
exit $status
