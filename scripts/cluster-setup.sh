#!/usr/bin/env bash
# cluster-setup.sh [dra|whereabouts]...   builds and fetches what integration/cluster runs; needs root for apt's
# downloads, Debian 12.
#
# In $FABRIC_CLUSTER (~/.cache/fabric-cluster) it leaves
#   bin/      etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl: links to one binary, of
#             Kubernetes 1.37, or of the oldest that DRA works with: FABRIC_KUBERNETES=1.34
#   cnibin/   multus, whereabouts, and the reference plugins
#   thick/    the daemon of thick Multus, its shim, its manifest and the scripts of Multus' e2e
#   helm/     helm, to judge the chart
#   crds/     manifests of Multus and whereabouts
#   tools/    what the image fabric-tools has of Debian, unpacked: image/tools.sh
#   jobs/     the CRD of PyTorchJob, to judge what fabricctl generates
#   containerd/ containerd, ctr and its shim; Debian's is older than CDI
#   dra/      with the argument dra: Kubernetes' tests of DRA drivers
#   whereabouts/ with the argument whereabouts: the e2e of whereabouts
#   debroot/  runc and busybox, unpacked and not installed
# Each part is made under a temporary name and renamed when complete, and is made again only when its go.mod or its
# sources have changed, or the function below that makes it. A warm run uses no network. The first one compiles
# Kubernetes (420 s of CPU), containerd (67), Helm (38), Multus and whereabouts (25).
#
# What these modules have in common with the project has the version of its go.mod, so that it is compiled once; not in
# kube134, which has its own versions. Where one asks for a newer Go module and much depends on that, its go.mod has a
# replace line.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
src=$(readlink -f "$here/../integration/cluster")
rig=${FABRIC_CLUSTER:-$HOME/.cache/fabric-cluster}
log=$rig/setup.log
go=${GO:-go}
# The same flags everywhere: what agent, Kubernetes and plugins have in common is compiled once.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -buildvcs=false -trimpath" GOWORK=off

case ${FABRIC_KUBERNETES:-1.37} in
  1.37) kubernetes=$src/kube ;;
  1.34) kubernetes=$src/kube134 ;;
  *) echo "cluster-setup: FABRIC_KUBERNETES=$FABRIC_KUBERNETES: want 1.37 or 1.34" >&2; exit 2 ;;
esac

die() { echo "cluster-setup: $*" >&2; exit 1; }
mkdir -p "$rig/store"
exec 9>"$rig/lock"
flock 9
: >"$log"

# A subshell, and time cannot say how long it took where the subshell itself has the redirection.
logged() { (set -e; "$@") >>"$log" 2>&1; }

# part NAME FILE...: makes store/NAME-HASH by build_NAME unless it is there, and links current/NAME to it
part() {
  local name=$1 hash dir
  shift
  hash=$({ cat "$@"; declare -f "build_$name"; "$go" version; } | sha256sum | cut -c1-12)
  dir=$rig/store/$name-$hash
  if [ ! -d "$dir" ]; then
    rm -rf "$dir.tmp"
    mkdir "$dir.tmp"
    # A subshell that is not part of a condition: set -e would not hold in it.
    set +e
    local status TIMEFORMAT="cluster-setup: $name: %0R s, CPU %0U + %0S s"
    time logged "build_$name" "$dir.tmp"
    status=$?
    set -e
    [ $status -eq 0 ] || { tail -n 20 "$log" >&2; die "building $name failed, see $log"; }
    mv "$dir.tmp" "$dir"
  fi
  ln -sfn "store/$name-$hash" "$rig/$name"
}

# shellcheck disable=SC2317 # called by name
build_bin() {
  local v version=k8s.io/component-base/version component
  cd "$src/kube"
  v=$("$go" list -modfile="$kubernetes/go.mod" -m -f '{{.Version}}' k8s.io/kubernetes)
  "$go" build -modfile="$kubernetes/go.mod" -ldflags "-s -w -X $version.gitVersion=$v -X $version.gitMajor=1 -X $version.gitMinor=$(cut -d. -f2 <<<"$v") -X $version.gitTreeState=clean" -o "$1/kubeall" . # long: part hashes what it builds by
  for component in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do
    ln -s kubeall "$1/$component"
  done
}

# shellcheck disable=SC2317
build_cnibin() {
  local plugins=github.com/containernetworking/plugins/plugins
  cd "$src/cni"
  "$go" build -ldflags '-s -w' -o "$1/" gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus \
    "$plugins"/main/{bridge,macvlan,host-device,loopback} "$plugins/meta/tuning" "$plugins"/ipam/{host-local,static}
  "$go" build -ldflags '-s -w' -o "$1/whereabouts" github.com/k8snetworkplumbingwg/whereabouts/cmd
}

# shellcheck disable=SC2317
build_thick() {
  local multus=gopkg.in/k8snetworkplumbingwg/multus-cni.v4
  cd "$src/cni"
  "$go" build -ldflags '-s -w' -o "$1/" "$multus"/cmd/{multus-daemon,multus-shim,install_multus}
  "$go" build -ldflags '-s -w' -o "$1/passthru" "$multus/cmd/passthru-cni"
  cp -r "$("$go" list -m -f '{{.Dir}}' "$multus")"/{deployments/multus-daemonset-thick.yml,e2e} "$1/"
  chmod -R u+w "$1"
}

# shellcheck disable=SC2317
build_helm() {
  cd "$src/helm"
  "$go" build -ldflags '-s -w' -o "$1/" helm.sh/helm/v3/cmd/helm
}

# shellcheck disable=SC2317
build_crds() {
  cd "$src/cni"
  "$go" mod download gopkg.in/k8snetworkplumbingwg/multus-cni.v4 github.com/k8snetworkplumbingwg/whereabouts
  cp "$("$go" list -m -f '{{.Dir}}' gopkg.in/k8snetworkplumbingwg/multus-cni.v4)/deployments/multus-daemonset.yml" "$1/"
  cp "$("$go" list -m -f '{{.Dir}}' github.com/k8snetworkplumbingwg/whereabouts)"/doc/crds/*.yaml "$1/"
  chmod -R u+w "$1"
}

# Kubernetes' tests of DRA drivers, for ours: their own driver is not deployed, classes and claims name fabric.dev and
# ask for an MTU, and a container has its device if net1 has this MTU.
# shellcheck disable=SC2317
build_dra() {
  local of config='{"apiVersion":"fabric.dev/v1alpha1","kind":"InterfaceConfig","mtu":1300}'
  local judge='tCtx.Expect(stdout).To(gomega.Equal("1300"), "the MTU of net1")'
  cd "$src/kube"
  of=$("$go" list -m -f '{{.Dir}}' k8s.io/kubernetes)/test/e2e/dra
  mkdir -p "$1/src/utils"
  for f in "$of"/*.go; do
    sed -e "s|k8s.io/kubernetes/test/e2e/dra/utils|$("$go" list -m)/dra/utils|" -e '/dratest/d' \
      -e 's#env *| *grep [a-z0-9_]*=[a-z]*#ls /sys/class/net/net1#' "$f" >"$1/src/${f##*/}"
  done
  sed -e 's/^\td.Name = .*/\td.Name = "fabric.dev"/' \
    -e '/^\td.Nodes = make/a\	if d.Name != "" {\n\t\treturn\n\t}' "$of/utils/deploy.go" >"$1/src/utils/deploy.go"
  sed -e "s|{\"a\":\"b\"}|$config|" -e 's|{"env"}|{"cat", "/sys/class/net/net1/mtu"}|' \
    -e "s|if b.ClassParameters != \"\" {|if b.ClassParameters = \`$config\`; true {|" \
    -e "/^\tif fullMatch {/,/^}/c\	$judge\n\t_ = sort.Strings\n}" \
    "$of/utils/builder.go" >"$1/src/utils/builder.go"
  (cd "$1/src" && find . -name '*.go' -printf '%P\n') |
    sed -e "s|.*|\"$src/kube/dra/&\":\"$1/src/&\"|" | paste -sd, | sed 's/.*/{"Replace":{&}}/' >"$1/overlay.json"
  "$go" test -c -vet=off -ldflags '-s -w' -overlay "$1/overlay.json" -o "$1/suite" ./dra
  rm -r "$1/src" "$1/overlay.json"
}

# whereabouts' e2e, for ours: a network has the type fabric and a resource, and a pod the rig's image and one device for
# each of its networks. Without a log file: the plugin refuses it in a network that a tenant can write. No wait is
# shorter than a minute, and a test that looks for an address while there is none does not end the suite.
# shellcheck disable=SC2317
build_whereabouts() {
  local from=github.com/k8snetworkplumbingwg/whereabouts own of
  local type='"type": "fabric", "capabilities": {"deviceID": true},'
  local resource='Annotations: map[string]string{"k8s.v1.cni.cncf.io/resourceName": "fabric.dev/rails"},'
  cd "$src/cni"
  own=$("$go" list -m)/whereabouts
  of=$("$go" list -m -f '{{.Dir}}' "$from")/e2e
  cp -r "$of" "$1/src"
  chmod -R u+w "$1/src"
  mv "$1/src/e2e_node_slice" "$1/src/slices"
  rm "$1/src/poolconsistency/poolconsistency_test.go"
  find "$1/src" -name '*.go' -exec sed -i -e "s|$from/e2e|$own|" -e '/extensions\/table/d' -e 's/table\.\([DE]\)/\1/' \
    -e 's|onsi/ginkgo"|onsi/ginkgo/v2"|' -e "s|\"type\": \"macvlan\",|$type|" -e '/"master": "eth0",/d' \
    -e '/"mode": "bridge",/d' -e '/"log_[a-z]*": ".*",/d' -e "s|^\t\t\tNamespace: namespace,$|&\n$resource|" {} +
  sed -i -e 's/if \(allocationForPodRef(.*)\)\[0\].Cont/if a := \1; len(a) == 0 || a[0].Cont/' \
    -e 's/}, 3\*time.Second,/}, time.Minute,/' "$1/src/e2e_test.go"
  find "$1/src" -name '*.go' -exec sed -i 's/Timeout\( *\)= 10 \* time.Second/Timeout\1= time.Minute/' {} +
  sed -i -e 's|quay.io/.*:latest|localhost/box:e2e|' \
    -e 's/podSpec(containerName string/&, annotations map[string]string/' \
    -e 's/podSpec(.*),$/podSpec("c", annotations),/' -e 's/Image: *testImage,/& Resources: rails(annotations),/' \
    "$1/src/entities/generators.go"
  (cd "$1/src" && find . -name '*.go' -printf '%P\n') |
    sed -e "s|.*|\"$src/cni/whereabouts/&\":\"$1/src/&\"|" | paste -sd, | sed 's/.*/{"Replace":{&}}/' >"$1/overlay.json"
  "$go" test -c -vet=off -ldflags '-s -w' -overlay "$1/overlay.json" -o "$1/whereabouts" ./whereabouts
  "$go" test -c -vet=off -ldflags '-s -w' -overlay "$1/overlay.json" -o "$1/whereabouts-slices" ./whereabouts/slices
  "$go" build -ldflags '-s -w' -o "$1/ip-control-loop" "$from/cmd/controlloop"
  "$go" build -ldflags '-s -w' -o "$1/node-slice-controller" "$from/cmd/nodeslicecontroller"
  rm -r "$1/src" "$1/overlay.json"
}

# The operator itself is not built: its module is no dependency of anything here.
# shellcheck disable=SC2317
build_jobs() {
  cd "$1"
  cp "$("$go" mod download -json github.com/kubeflow/training-operator@v1.8.1 | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/manifests/base/crds/kubeflow.org_pytorchjobs.yaml" . # long: part hashes what it builds by
  chmod -R u+w .
}

# The tags leave out snapshotters that need other tools or cgo.
# shellcheck disable=SC2317
build_containerd() {
  cd "$src/containerd"
  "$go" build -tags no_btrfs,no_devmapper,no_zfs,no_tracing -ldflags '-s -w' -o "$1/containerd" .
  "$go" build -ldflags '-s -w' -o "$1/containerd-shim-runc-v2" ./shim
  ln -s containerd "$1/ctr"
}

# shellcheck disable=SC2317
build_debroot() {
  cd "$1"
  fetch() { apt-get -o APT::Sandbox::User=root download runc busybox-static; }
  fetch || { apt-get update && fetch; }
  for deb in *.deb; do dpkg-deb -x "$deb" .; done
  rm -- *.deb
}

# shellcheck disable=SC2317
build_tools() { "$here/image/tools.sh" amd64 "$1"; }

part debroot /dev/null
part tools "$here/image/tools.sh"
part jobs /dev/null
part crds "$src/cni/go.mod"
part cnibin "$src/cni/go.mod" "$src/cni/go.sum"
part thick "$src/cni/go.mod" "$src/cni/go.sum"
part helm "$src/helm/go.mod" "$src/helm/go.sum"
part containerd "$src"/containerd/{go.mod,go.sum,main.go,shim/main.go}
part bin "$kubernetes"/{go.mod,go.sum} "$src/kube/main.go"
for suite in "$@"; do
  case $suite in
    dra) part dra "$src"/kube/{go.mod,go.sum} "$src"/kube/dra/*.go ;;
    whereabouts) part whereabouts "$src"/cni/{go.mod,go.sum} "$src"/cni/whereabouts/{,entities/}*.go ;;
    *) die "$suite: want dra or whereabouts" ;;
  esac
done
