#!/usr/bin/env bash
# site.sh   builds the site of docs/ into build/site, and fails for a link that leads nowhere (mkdocs --strict).
# SITE_VERSION is the tag that links to files of the repository name; without it they name main.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHONPATH=scripts/site mkdocs --quiet build --strict --clean --config-file scripts/site/mkdocs.yml
echo "build/site/index.html"
