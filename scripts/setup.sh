#!/usr/bin/env bash
# setup.sh GROUP...   makes a fresh Debian 12 machine fit for: base, lint, test, race, browser, site.
#
# Go itself has to be there. Looks first and calls apt only for what is missing, so a warm run takes no time and no
# network. Without root or apt it names what is missing and fails. What the lab needs, lab-setup.sh installs.
set -euo pipefail

missing=()

# want PACKAGE COMMAND|/FILE: the package is needed unless the command or the file is there.
want() {
  case $2 in
    /*) [ -e "$2" ] || missing+=("$1") ;;
    *) command -v "$2" >/dev/null 2>&1 || missing+=("$1") ;;
  esac
}

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
for group in "$@"; do
  case $group in
    base)
      want ca-certificates /etc/ssl/certs/ca-certificates.crt
      want git git
      want make make
      ;;
    lint) want shellcheck shellcheck ;;
    race) # the race detector needs a C compiler
      want gcc gcc
      want libc6-dev /usr/include/stdio.h
      ;;
    test)
      want iproute2 ip
      want jq jq # for scripts of Multus in integration/cluster
      # fabricctl topology is shown on a fabric that ibsim simulates
      want ibsim-utils ibsim
      want opensm opensm
      want infiniband-diags ibnetdiscover
      ;;
    browser) # fabricctl's pictures are looked at in a real one
      want chromium chromium
      ;;
    site)
      want mkdocs mkdocs
      want mkdocs-material /usr/share/mkdocs/themes/material/mkdocs_theme.yml
      ;;
    *)
      echo "setup.sh: unknown group $group (base, lint, test, race, browser, site)" >&2
      exit 2
      ;;
  esac
done

if ! command -v go >/dev/null 2>&1; then
  echo "setup.sh: go is not in PATH: install the Go version that go.mod names (https://go.dev/dl/)" >&2
  exit 1
fi
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "setup.sh: missing Debian packages: ${missing[*]}: install them, or run as root where apt-get is" >&2
  exit 1
fi
echo "setup.sh: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
