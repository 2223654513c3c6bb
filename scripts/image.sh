#!/usr/bin/env bash
# image.sh NAME VERSION [ARCHITECTURE...]   builds the programs for each architecture and writes build/fabric-agent.oci.tar.
set -euo pipefail
cd "$(dirname "$0")/.."

name=$1 version=$2
shift 2
go=${GO:-go}
platforms=()
for arch in "${@:-amd64 arm64}"; do
  for a in $arch; do
    dir=build/image/$a
    mkdir -p "$dir"
    CGO_ENABLED=0 GOOS=linux GOARCH=$a "$go" build -trimpath -ldflags "-s -w -buildid= -X main.version=$version" -o "$dir/" ./cmd/fabric-agent ./cmd/fabricctl
    CGO_ENABLED=0 GOOS=linux GOARCH=$a "$go" build -trimpath -ldflags "-s -w -buildid= -X main.version=$version -X runtime.godebugDefault=disablethp=1" -o "$dir/" ./cmd/fabric
    platforms+=("$a=$dir")
  done
done
"$go" run ./internal/image -name "$name" -version "$version" -o build/fabric-agent.oci.tar "${platforms[@]}"
