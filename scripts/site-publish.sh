#!/usr/bin/env bash
# site-publish.sh URL       builds the site of this version (site.sh) among those that the branch gh-pages of a
#                           repository has, and pushes the branch, with one commit: the site needs no history. It
#                           fails if another run has pushed meanwhile.
# site-publish.sh --check   does it twice with a repository of its own: both versions and the selector must be there.
set -euo pipefail
cd "$(dirname "$0")/.."

publish() {
  local url=$1 dir old
  dir=$(mktemp -d)
  old=$(git ls-remote --heads "$url" gh-pages | cut -f1)
  if [ -n "$old" ]; then
    git clone --quiet --depth 1 --branch gh-pages "$url" "$dir"
    rm -rf "$dir/.git"
  fi
  SITE_DIR=$dir scripts/site.sh
  touch "$dir/.nojekyll" # the files as they are
  git -C "$dir" init --quiet --initial-branch=gh-pages
  git -C "$dir" add --all
  git -C "$dir" -c user.name=fabric-cni -c user.email=noreply@github.com \
    commit --quiet --message "site of $(scripts/version.sh)"
  git -C "$dir" push --quiet --force-with-lease="gh-pages:$old" "$url" gh-pages
  rm -rf "$dir"
}

if [ "${1:-}" != --check ]; then
  publish "${1:?usage: site-publish.sh URL|--check}"
  exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git init --quiet --bare "$work/repository"
VERSION=v0.1.0 publish "file://$work/repository" >/dev/null
VERSION=0123abc publish "file://$work/repository" >/dev/null
git clone --quiet --branch gh-pages "$work/repository" "$work/site"
for file in .nojekyll index.html v0.1.0/doctor.html main/doctor.html; do
  [ -e "$work/site/$file" ] || { echo "site-publish: the branch has no $file" >&2; exit 1; }
done
versions=$(grep -o '"version": "[^"]*"' "$work/site/versions.json" | tr '\n' ' ')
if [ "$versions" != '"version": "v0.1.0" "version": "main" ' ]; then
  echo "site-publish: versions.json has $versions" >&2
  exit 1
fi
