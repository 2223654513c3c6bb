#!/usr/bin/env bash
# site.sh   builds the site of docs/ into SITE_DIR/VERSION (build/site), and fails for a link that leads nowhere
# (mkdocs --strict). VERSION is the version of a release (scripts/version.sh), or main. Other versions there stay, and
# readers can choose among all of them.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${VERSION:-$(scripts/version.sh)}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$ ]] || version=main
SITE_VERSION=$version PYTHONPATH=scripts/site \
  mkdocs --quiet build --strict --clean --config-file scripts/site/mkdocs.yml --site-dir "${SITE_DIR:-$PWD/build/site}"
echo "${SITE_DIR:-build/site}/$version/index.html"
