#!/usr/bin/env bash
# tools.sh ARCHITECTURE DIRECTORY   unpacks what the image fabric-tools has of Debian: perftest and rdma-core's
# programs, ip, ping, a shell, and the libraries that they load. It installs nothing, and leaves the machine's own lists
# of packages alone, so that it works for any architecture.
set -euo pipefail

[ $# = 2 ] || { echo "usage: tools.sh ARCHITECTURE DIRECTORY" >&2; exit 2; }
root=$2
packages=(perftest ibverbs-providers ibverbs-utils rdmacm-utils iproute2 iputils-ping busybox-static)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$root" "$work"/{lists,cache}/partial
touch "$work/status" # nothing is installed, so that libraries come too
apt=(apt-get -qq -o "APT::Architecture=$1" -o "APT::Architectures=$1" -o "Dir::State::Lists=$work/lists"
  -o "Dir::State::Status=$work/status" -o "Dir::State=$work" -o "Dir::Cache=$work/cache" -o Debug::NoLocking=1
  -o APT::Sandbox::User=root -o APT::Install-Recommends=false)
"${apt[@]}" update
"${apt[@]}" install --download-only -y "${packages[@]}"
for deb in "$work"/cache/archives/*.deb; do dpkg-deb -x "$deb" "$root"; done
# What no program here reads. The licences stay.
cd "$root"
rm -rf usr/share/{man,info,locale,lintian,bash-completion,zoneinfo,perl,perl5} var etc/{init.d,cron.daily} \
  {usr/,}lib/{systemd,udev}
find usr/share/doc -type f ! -name copyright -delete
