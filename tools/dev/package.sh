#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: package.sh [--output=FOLDER] [--version=VERSION] [--try] [--keep]
# Builds Debian packages (docs/packages.md), and checks them with lintian. --try also installs them in a bare bookworm root, builds
# examples/embedding and a program in C against them, uses the programs and the Python module, and removes them (needs root; minutes). --keep
# leaves the root in place.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh
# shellcheck source=tools/dev/bare_root.sh
source tools/dev/bare_root.sh

# Everything in it runs inside the namespaces.
try_inside() {
  local root=$1 uri=$2 packages=$3
  make_bare_root "$root" "$uri"
  mkdir -p "$root/root/packages" "$root/root/try"
  cp "$packages"/*.deb "$root/root/packages/"
  cp -RL examples/embedding examples/python tools/package/try.sh tests/tools/install/c_api_client.c "$root/root/try/"
  in_bare_root "$root" /root/try ./try.sh || die "the packages failed in the bare root"
}

if [[ ${1:-} == --inside ]]; then
  try_inside "$2" "$3" "$4"
  exit
fi

output=$PWD/packages
version=
tries=
keep=
for argument in "$@"; do
  case $argument in
    --output=?*) output=$(realpath -m "${argument#--output=}") ;;
    --version=?*) version=${argument#--version=} ;;
    --try) tries=yes ;;
    --keep) keep=yes ;;
    *) die "'$argument' is not understood; usage: ./dev package [--output=FOLDER] [--version=VERSION] [--try] [--keep]" ;;
  esac
done
[[ -z $tries || $(id -u) -eq 0 ]] || die "chroot and mount need root: --try"
# Versions between releases are before the next one.
base=$(sed -n 's/^Version: //p' tools/install/sluice.pc)
[[ -n $version ]] || version=$base~git$(git log -1 --format=%cd --date=format:%Y%m%d).$(git rev-parse --short=8 HEAD)-1

tools/dev/install.sh dpkg-dev lintian chrpath ${tries:+debootstrap}
step "building what is installed"
bazel build //tools/install:prefix
work=$(mktemp -d)
staged=$work/prefix
root=
cleanup() {
  rm -rf "$work"
  [[ -n $root ]] || return 0
  if [[ -n $keep ]]; then
    step "kept: $root"
  else
    rm -rf --one-file-system "$root" "$root.log"
  fi
}
trap cleanup EXIT
tools/install/copy.sh bazel-bin/tools/install/prefix "$staged"
built=$work/built
tools/package/build.sh "$staged" "$built" "$version"

step "lintian"
# Not an error for us: the packages are not uploaded to Debian.
lintian --tag-display-limit 0 --fail-on error --suppress-tags initial-upload-closes-no-bugs --allow-root "$built"/*.deb
tools/package/replace.sh "$built" "$output"
step "packages of version $version in $output"

if [[ -n $tries ]]; then
  uri=$(mirror)
  [[ -n $uri ]] || die "no package source for bookworm in /etc/apt"
  root=$(mktemp -d /var/tmp/sluice-package.XXXXXX)
  chmod 755 "$root"
  bare_root_run "$PWD/tools/dev/package.sh" --inside "$root" "$uri" "$built"
  step "installed, used and removed in a bare root"
fi
