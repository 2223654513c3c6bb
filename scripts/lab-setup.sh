#!/bin/bash
# lab-setup.sh [--update] [6.1|6.12|next|igb|traffic|pyverbs ...]   prepares kernels for integration/lab on a Debian 12
# machine; needs root.
#
# Per kernel it leaves $FABRIC_LAB/guest/SERIES -> store/SERIES-HASH with vmlinux, initrd.cpio (fakeib included) and
# release. Kernels and headers are extracted, never installed. Without arguments: all three.
# A warm run touches neither the network nor the package manager. --update looks for newer kernel versions.
#
# igb is no kernel but the QEMU of bookworm-backports, whose igb card has virtual functions: $FABRIC_LAB/qemu/bin/qemu.
# traffic is the programs that do RDMA in guests, $FABRIC_LAB/userland; pyverbs is rdma-core's own tests,
# $FABRIC_LAB/pyverbs.
#
# Whatever can be killed half-way is made under a .tmp name and renamed when complete: a rerun starts that part again.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
fakeib=$here/../integration/lab/fakeib
lab=${FABRIC_LAB:-$HOME/.cache/fabric-lab}
chroot=$lab/chroot
log=$lab/setup.log
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

die() { echo "lab-setup: $*" >&2; exit 1; }

inputs_hash() {
  cat "$fakeib"/*.[ch] "$fakeib/Makefile" "$here/lab-initrd.sh" /bin/busybox "$1/release" | sha256sum | cut -c1-12
}

# is_ready SERIES: its guest files were made from the present sources
is_ready() {
  local src=$lab/src/$1
  [ -e "$src/release" ] && [ -x /bin/busybox ] || return 1
  [ "$(readlink "$lab/guest/$1" 2>/dev/null)" = "../store/$1-$(inputs_hash "$src")" ] && [ -s "$lab/guest/$1/vmlinux" ]
}

say_ready() { echo "ready: $1 ($(cat "$lab/guest/$1/release"))"; }

# ---- the machine ----
updated=
apt_update() {   # once in a run
  [ -n "$updated" ] || apt-get update -qq >>"$log" 2>&1 || die "apt-get update failed, see $log"
  updated=yes
}

# missing_for SERIES...: sets want to the packages that are missing; asks for commands, so that it is quick
missing_for() {
  local tool
  local -A package=(
    [qemu-system-x86_64]=qemu-system-x86 [depmod]=kmod [cpio]=cpio [ping]=iputils-ping [xz]=xz-utils [zstd]=zstd
    [ip]=iproute2 [rdma]=iproute2 [make]=make [ld]=binutils [flock]=util-linux [unshare]=util-linux [dmesg]=util-linux
  )
  case " $* " in *" 6."* | *" userland "*) package[gcc-12]="gcc-12 libc6-dev libelf1";; esac
  case " $* " in *" next "*) package[debootstrap]="debootstrap debian-archive-keyring";; esac
  want=()
  for tool in "${!package[@]}"; do
    # shellcheck disable=SC2206 # several packages in one value
    PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || want+=(${package[$tool]})
  done
  # the guest's init runs without a C library: a dynamically linked busybox will not do
  if ! /bin/busybox true 2>/dev/null || ldd /bin/busybox >/dev/null 2>&1; then want+=(busybox-static); fi
}

# tools_for SERIES...: install what is missing, unless another run has done it meanwhile
tools_for() {
  local want
  missing_for "$@"
  [ ${#want[@]} -gt 0 ] || return 0
  flock 9
  missing_for "$@"
  [ ${#want[@]} -eq 0 ] || install_tools "${want[@]}"
  flock -u 9 # `make demo` has two runs: one would wait until the other has fetched everything
}

install_tools() {
  [ "$(id -u)" = 0 ] || die "missing: $*; run as root"
  local install=(apt-get install -y -qq --no-install-recommends "$@")
  if ! "${install[@]}" >>"$log" 2>&1 && ! { apt_update && "${install[@]}" >>"$log" 2>&1; }; then
    die "cannot install $*, see $log"
  fi
}

# ---- kernels of this distribution ----
# depends PACKAGE PATTERN: the first dependency that matches
depends() { { apt-cache depends "$1" 2>/dev/null || true; } | sed -n "s/^  Depends: \($2\)\$/\1/p" | head -1; }

# fetch_debian SERIES DIR: versions drift, so the meta package of the refreshed package list is asked
fetch_debian() {
  local meta=linux-image-$1-amd64 img version kbuild deb
  [ "$1" = 6.1 ] && meta=linux-image-amd64
  apt_update
  img=$(depends "$meta" 'linux-image-[0-9].*-amd64')
  [ -n "$img" ] || die "this machine's package sources have no $meta"
  version=${img#linux-image-}; version=${version%-amd64}
  kbuild=$(depends "linux-headers-$version-amd64" 'linux-kbuild-.*')
  mkdir -p "$2/debs"
  (cd "$2/debs" && apt-get -o APT::Sandbox::User=root download -qq "$img" "linux-headers-$version-amd64" \
    "linux-headers-$version-common" "$kbuild") >>"$log" 2>&1 || die "cannot download $img and its headers, see $log"
  mkdir -p "$2/image" "$2/headers"
  dpkg-deb -x "$2/debs/${img}"_*.deb "$2/image"
  for deb in "$2"/debs/linux-headers-*.deb "$2"/debs/linux-kbuild-*.deb; do dpkg-deb -x "$deb" "$2/headers"; done
  rm -r "$2/debs"
  echo "$version-amd64" >"$2/release"
}

# ---- the newest kernel of trixie-backports ----
# IPoIB is recreated in the RDMA device's own namespace there. Its headers need trixie's libc and compiler, so the
# module is built in a chroot. Nothing of it touches the system's apt configuration; the mirror is the system's own.
mirror() {
  local found
  found=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null |
    sed -nE 's/^URIs: *(\S+).*/\1/p; s/^deb (\[[^]]*\] )?(\S+) .*/\2/p' | head -1) || true
  echo "${found:-http://deb.debian.org/debian}"
}

# in_ns COMMAND: mounts made by it (debootstrap's, /proc) end with it, also when it is killed
in_ns() { unshare --mount --propagation private "$@" >>"$log" 2>&1; }

make_chroot() {
  [ -e "$chroot/version" ] && return
  local tmp=$chroot.tmp img version deb
  rm -rf "$tmp"
  in_ns debootstrap --variant=minbase --include=make trixie "$tmp" "$(mirror)" || die "debootstrap failed, see $log"
  echo "deb $(mirror) trixie-backports main" >"$tmp/etc/apt/sources.list.d/backports.list"
  in_ns chroot "$tmp" apt-get -qq update || die "apt-get update in the trixie chroot failed, see $log"
  img=$({ chroot "$tmp" apt-cache -t trixie-backports depends linux-image-amd64 || true; } |
    sed -n 's/^  Depends: \(linux-image-[0-9].*-amd64\)$/\1/p' | head -1)
  [ -n "$img" ] || die "no linux-image-amd64 in trixie-backports"
  version=${img#linux-image-}; version=${version%-amd64}
  in_ns chroot "$tmp" apt-get install -y -qq --no-install-recommends -t trixie-backports \
    "linux-headers-$version-amd64" binutils gcc-14 libc6-dev || die "cannot install the headers of $version, see $log"
  # images of 7.x come in several packages; older ones in one
  mkdir "$tmp/debs"
  for deb in "$img" "linux-base-$version-amd64" "linux-binary-$version-amd64" "linux-modules-$version-amd64"; do
    in_ns chroot "$tmp" sh -c \
      "cd /debs && apt-get -o APT::Sandbox::User=root download -qq -t trixie-backports $deb" || true
  done
  ls "$tmp"/debs/linux-image-*.deb >/dev/null 2>&1 || die "cannot download $img, see $log"
  chroot "$tmp" apt-get clean
  rm -rf "$tmp"/var/lib/apt/lists/*
  echo "$version" >"$tmp/version"
  mv "$tmp" "$chroot"
}

fetch_next() {
  make_chroot
  mkdir -p "$2/image"
  for deb in "$chroot"/debs/*.deb; do dpkg-deb -x "$deb" "$2/image"; done
  echo "$(cat "$chroot/version")-amd64" >"$2/release"
}

# ---- guest files ----
# uncompressed VMLINUZ OUT: QEMU starts an ELF image by its PVH note, which spares the guest the decompression of
# 10 MB in emulation. Offsets: Documentation/arch/x86/boot.rst (setup_sects, payload_offset, payload_length).
uncompressed() {
  local sects offset length magic
  sects=$(od -An -tu1 -j$((0x1f1)) -N1 "$1" | tr -d ' ')
  offset=$(od -An -tu4 -j$((0x248)) -N4 "$1" | tr -d ' ')
  length=$(od -An -tu4 -j$((0x24c)) -N4 "$1" | tr -d ' ')
  offset=$(((sects + 1) * 512 + offset))
  payload() { dd if="$1" bs=64k iflag=skip_bytes,count_bytes skip=$offset count="$2" status=none; }
  magic=$(payload "$1" 4 | od -An -tx1 | tr -d ' ')
  case $magic in   # a size word of four bytes ends the payload
    fd377a58) payload "$1" $((length - 4)) | xz -dc >"$2";;
    28b52ffd) payload "$1" $((length - 4)) | zstd -dcq >"$2";;
    *) cp "$1" "$2";;   # QEMU takes the compressed one as well
  esac
}

# build_module SERIES SRC DIR: fakeib.ko into DIR
build_module() {
  local release
  release=$(cat "$2/release")
  mkdir -p "$3/mod"
  cp "$fakeib"/*.[ch] "$fakeib/Makefile" "$3/mod/"
  if [ "$1" = next ]; then
    rm -rf "$chroot/fakeib"; cp -r "$3/mod" "$chroot/fakeib"
    # objtool reads /proc
    in_ns sh -c "mount -t proc proc $chroot/proc &&
      chroot $chroot make -s -C /fakeib KDIR=/lib/modules/$release/build" ||
      die "fakeib does not build for $release, see $log"
    cp "$chroot/fakeib/fakeib.ko" "$3/fakeib.ko"
  else
    # the header packages name each other by absolute path
    sed -i "s#[^ ]*/usr/src/#$2/headers/usr/src/#" "$2/headers/usr/src/linux-headers-$release/Makefile"
    make -s -j "$(nproc)" -C "$3/mod" KDIR="$2/headers/usr/src/linux-headers-$release" >>"$log" 2>&1 ||
      die "fakeib does not build for $release, see $log"
    mv "$3/mod/fakeib.ko" "$3/fakeib.ko"
  fi
  rm -r "$3/mod"
}

# ---- packages that are extracted, not installed ----
# own_apt DIR SUITE...: apt's options for package lists of these suites in DIR, as the array apt. Nothing of it touches
# the system's apt configuration, and it works on a machine without package lists.
own_apt() {
  local dir=$1 suite
  shift
  mkdir -p "$dir"/{lists/partial,cache/archives/partial}
  for suite in "$@"; do echo "deb $(mirror) $suite main"; done >"$dir/sources.list"
  apt=(-qq -o Acquire::Retries=3 -o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir/cache" -o APT::Sandbox::User=root)
  apt-get "${apt[@]}" update >>"$log" 2>&1 || die "apt-get update of $* failed, see $log"
}

# extract DIR ROOT PACKAGE...: downloads the packages into DIR and unpacks them into ROOT
extract() {
  local debs=$1 root=$2 deb
  shift 2
  mkdir -p "$debs" "$root"
  (cd "$debs" && apt-get "${apt[@]}" download "$@") >>"$log" 2>&1 || die "cannot download $*, see $log"
  for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$root"; done
}

# ---- a newer QEMU ----
# Beside the installed one, from the packages of bookworm-backports; the libraries are bookworm's, which the installed
# one has brought.
qemu=$lab/qemu
fetch_qemu() {
  local tmp=$qemu.tmp apt
  rm -rf "$tmp"; mkdir -p "$tmp/bin"
  own_apt "$tmp/apt" bookworm-backports
  extract "$tmp/debs" "$tmp/root" qemu-system-x86 qemu-system-common qemu-system-data seabios
  rm -rf "$tmp"/{apt,debs}
  cat >"$tmp/bin/qemu" <<QEMU
#!/bin/sh
exec "$qemu/root/usr/bin/qemu-system-x86_64" -L "$qemu/root/usr/share/qemu" \\
  -L "$qemu/root/usr/share/seabios" -L /usr/lib/ipxe/qemu "\$@"
QEMU
  chmod 755 "$tmp/bin/qemu"
  if ldd "$tmp/root/usr/bin/qemu-system-x86_64" | grep -q 'not found'; then
    apt_update
    apt-get install -y -qq --no-install-recommends libaio1 libbpf1 libcapstone4 libfdt1 libfuse3-3 libgnutls30 \
      libibverbs1 libjpeg62-turbo \
      libnuma1 libpixman-1-0 libpmem1 libpng16-16 librdmacm1 libsasl2-2 libseccomp2 libslirp0 liburing2 \
      libvdeplug2 >>"$log" 2>&1 ||
      die "cannot install the libraries of QEMU, see $log"
  fi
  rm -rf "$qemu"; mv "$tmp" "$qemu"
  "$qemu/bin/qemu" -device igb,help >/dev/null 2>>"$log" ||
    die "the QEMU of bookworm-backports does not run or has no igb, see $log"
}

# ---- what does RDMA in guests ----
# Debian's own programs and libraries. Guests lay them over this machine's /usr (guest.UserLand); here nothing is
# installed. What is fetched depends on Debian only, not on what this machine has: the packages and whatever they need
# that is not on every Debian machine.
userland_packages() {
  case $1 in
    userland)
      echo perftest ibverbs-utils rdmacm-utils ibverbs-providers libfabric-bin ucx-utils openmpi-bin netpipe-openmpi \
        radvd
      ;;
    pyverbs) echo python3-pyverbs;;
  esac
}

# userland_without SET: what is left out, with all that it needs. mpirun wants ssh for other machines, hwloc looks at
# graphics cards, pyverbs has udev rules for real HCAs.
userland_without() {
  case $1 in
    userland) echo openssh-client libhwloc-plugins;;
    pyverbs) echo rdma-core media-types;;
  esac
}

# closure PACKAGE...: the packages and what they depend on, as names of files. Needs the array apt.
closure() {
  apt-get "${apt[@]}" install --no-install-recommends --print-uris "$@" 2>>"$log" | awk '{ print $2 }' | sort
}

# fetch_userland SET: $lab/SET with root/usr, root/etc and version, which is written last
fetch_userland() {
  local tmp=$lab/$1.tmp lib=$lab/$1.tmp/root/usr/lib/x86_64-linux-gnu apt packages base want package
  rm -rf "$tmp"; mkdir -p "$tmp"
  own_apt "$tmp/apt" bookworm
  for package in $(userland_without "$1"); do
    printf 'Package: %s\nStatus: install ok installed\nVersion: 99:0\nArchitecture: amd64\nMaintainer: -\n' "$package"
    printf 'Description: -\n\n'
  done >"$tmp/apt/status"
  apt+=(-o "Dir::State::status=$tmp/apt/status")
  read -ra packages <<<"$(userland_packages "$1")"
  mapfile -t base < <(apt-cache "${apt[@]}" dumpavail |
    awk '/^Package:/ { name = $2 } /^(Essential: yes|Priority: required)/ { print name }' | sort -u)
  mapfile -t want < <(comm -23 <(closure "${packages[@]}") <(closure "${base[@]}") | sed 's/_.*//')
  [ ${#want[@]} -gt ${#packages[@]} ] || die "cannot find the packages of $1, see $log"
  extract "$tmp/debs" "$tmp/root" "${want[@]}"
  # /lib is a link in guests
  if [ -d "$tmp/root/lib" ]; then cp -a "$tmp/root/lib/." "$tmp/root/usr/lib/"; rm -r "$tmp/root/lib"; fi
  "complete_$1" "$tmp" "$lib"
  rm -rf "$tmp"/root/usr/share/{doc,lintian,man,misc}
  loadable "$tmp/root" "$lib:$lib/ucx"
  (userland_inputs "$1"; cd "$tmp/debs" && sha256sum -- *.deb) >"$tmp/version"
  rm -rf "$tmp"/{apt,debs}
  rm -rf "${lab:?}/$1"; mv "$tmp" "$lab/$1"
}

# complete_SET DIR LIBRARIES: what the packages' installation would make, and what the lab adds
complete_userland() {
  ln -s ../libpsm1/libpsm_infinipath.so.1.16 "$2/libpsm_infinipath.so.1"
  extract "$1/dev/debs" "$1/dev" libibverbs-dev
  rm -r "$1"/dev/{debs,usr/lib,usr/share}
}

# pyverbs brings rdma-core's tests as documentation, packed, those for other drivers among them. Python compiles what it
# loads; in emulation that would take longer than the tests.
complete_pyverbs() {
  cp -r "$1/root/usr/share/doc/rdma-core/tests" "$1/tests"
  find "$1/tests" -name '*.gz' -exec gunzip {} +
  rm "$1"/tests/test_{mlx5,efa,cuda}*
  LD_LIBRARY_PATH=$2 PYTHONHOME=$1/root/usr "$1/root/usr/bin/python3.11" -m compileall -q -j 0 \
    --invalidation-mode unchecked-hash -s "$1/root" -p / "$1/root/usr/lib" "$1/tests" >>"$log" 2>&1 ||
    die "the Python of pyverbs does not compile its own library, see $log"
}

# loadable ROOT PATH: dies unless all programs and libraries below ROOT find their libraries
loadable() {
  local missing
  missing=$(find "$1" -type f \( -perm /111 -o -name '*.so*' \) -exec env "LD_LIBRARY_PATH=$2" ldd {} + 2>/dev/null |
    sed -n 's/^\t\(.*\) => not found/\1/p' | sort -u | xargs) || true # ldd fails on scripts
  [ -z "$missing" ] || die "programs in $1 lack libraries on this machine: $missing"
}

# userland_inputs SET: what decides, apart from Debian, what is fetched
userland_inputs() {
  echo "inputs $({ userland_packages "$1"; userland_without "$1"; declare -f fetch_userland "complete_$1"; } |
    sha256sum | cut -c1-12)"
}

userland_is_ready() { [ "$(head -1 "$lab/$1/version" 2>/dev/null)" = "$(userland_inputs "$1")" ]; }

# The lab's own program in the user land, which does what no good one does. Its line in version is the last.
verbs=$here/../integration/lab/verbs/verbs.c
verbs_inputs() { echo "lab-verbs $(sha256sum <"$verbs" | cut -c1-12)"; }
verbs_is_ready() { [ "$(tail -1 "$lab/userland/version")" = "$(verbs_inputs)" ]; }

build_verbs() {
  local dir=$lab/userland
  gcc-12 -O2 -Wall -Wextra -Werror -I "$dir/dev/usr/include" -o "$dir/lab-verbs.tmp" "$verbs" \
    "$dir/root/usr/lib/x86_64-linux-gnu/libibverbs.so.1" >>"$log" 2>&1 || die "$verbs does not build, see $log"
  mv "$dir/lab-verbs.tmp" "$dir/root/usr/bin/lab-verbs"
  { grep -v '^lab-verbs' "$dir/version"; verbs_inputs; } >"$dir/version.tmp"
  mv "$dir/version.tmp" "$dir/version"
}

# prepare_userland SET UPDATE; another run may do it meanwhile
prepare_userland() {
  exec 8>"$lab/userland.lock" # its own: `make demo` has another run prepare a kernel meanwhile
  if [ -n "$2" ] || ! userland_is_ready "$1"; then
    flock 8
    if [ -n "$2" ] || ! userland_is_ready "$1"; then fetch_userland "$1"; fi
  fi
  if [ "$1" = userland ] && ! verbs_is_ready; then
    flock 8
    verbs_is_ready || build_verbs
  fi
  echo "ready: $1 ($(grep -c '\.deb$' "$lab/$1/version") packages)"
}

prepare() {
  local series=$1 src=$lab/src/$1 tmp store old
  if [ ! -e "$src/release" ]; then
    tmp=$src.tmp
    rm -rf "$tmp"; mkdir -p "$tmp"
    if [ "$series" = next ]; then fetch_next "$series" "$tmp"; else fetch_debian "$series" "$tmp"; fi
    uncompressed "$(find "$tmp/image" -type f -name 'vmlinuz*' | head -1)" "$tmp/vmlinux"
    [ -s "$tmp/vmlinux" ] || die "no kernel image for $series"
    mv "$tmp" "$src"
  fi
  store=$series-$(inputs_hash "$src")
  tmp=$lab/store/$series.tmp
  rm -rf "$tmp"; mkdir -p "$tmp"
  build_module "$series" "$src" "$tmp"
  "$here/lab-initrd.sh" "$src/image" "$(cat "$src/release")" "$tmp/fakeib.ko" "$tmp/initrd.cpio"
  ln "$src/vmlinux" "$tmp/vmlinux"
  cp "$src/release" "$tmp/release"
  rm -rf "${lab:?}/store/$store"
  mv "$tmp" "$lab/store/$store"
  old=$(readlink "$lab/guest/$series" 2>/dev/null || true)
  ln -sfn "../store/$store" "$lab/guest/$series.tmp"
  mv -T "$lab/guest/$series.tmp" "$lab/guest/$series"
  # a guest that is starting just now may still read the previous one; those before it go
  find "$lab/store" -mindepth 1 -maxdepth 1 -name "$series-*" ! -name "$store" ! -name "${old##*/}" -exec rm -rf {} +
}

main() {
  local update='' wanted=() todo=() sets=() series set igb=''
  for series in "$@"; do
    case $series in
      --update) update=yes;;
      6.1|6.12|next) wanted+=("$series");;
      igb) igb=yes;;
      traffic) sets+=(userland);;
      pyverbs) sets+=(pyverbs);;
      *) die "unknown kernel series $series; known: 6.1 6.12 next igb traffic pyverbs";;
    esac
  done
  [ ${#wanted[@]} -gt 0 ] || [ -n "$igb${sets[*]}" ] || wanted=(6.1 6.12 next)
  mkdir -p "$lab"/{src,store,guest}
  exec 9>"$lab/lock"
  tools_for "${wanted[@]}" "${sets[@]}"
  for series in "${wanted[@]}"; do
    if [ -z "$update" ] && is_ready "$series"; then say_ready "$series"; else todo+=("$series"); fi
  done
  if [ -n "$igb" ] && { [ -n "$update" ] || [ ! -x "$qemu/bin/qemu" ]; }; then
    flock 9
    if [ ! -x "$qemu/bin/qemu" ] || [ -n "$update" ]; then fetch_qemu; fi
    echo "ready: $("$qemu/bin/qemu" --version | head -1)"
  fi
  for set in "${sets[@]}"; do prepare_userland "$set" "$update"; done
  [ ${#todo[@]} -gt 0 ] || return 0
  flock 9
  for series in "${todo[@]}"; do
    if [ -n "$update" ]; then
      rm -rf "$lab/src/$series"
      [ "$series" != next ] || rm -rf "$chroot"
    fi
    # another run may have prepared it while this one waited for the lock
    is_ready "$series" || prepare "$series"
    say_ready "$series"
  done
}

main "$@"
