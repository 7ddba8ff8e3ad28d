#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: fresh.sh [--keep] [--cache]
# Proves the README: makes a bare Debian bookworm root, clones the committed state of this checkout into it, and
# runs there, in a chroot, the commands of the README's first shell block as they are written. --keep leaves the
# root in place (its path is printed) for a look. --cache lends the root what this machine has compiled already (.bazelrc): packages, commands
# and tests are tried as without it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh
# shellcheck source=tools/dev/bare_root.sh
source tools/dev/bare_root.sh

readme_commands() {
  awk '/^```sh$/ { inside = 1; next } /^```/ { if (inside) exit } inside' README.md
}

# Everything from here on runs inside the namespaces.
inside() {
  local root=$1 uri=$2 cache=$3
  make_bare_root "$root" "$uri"
  if [[ -n $cache ]]; then
    mkdir -p "$root/root/.cache/sluice/bazel"
    mount --bind "$cache" "$root/root/.cache/sluice/bazel"
  fi

  step "cloning the project into it, at $(git rev-parse --short HEAD)"
  git clone --quiet --no-hardlinks . "$root/root/sluice"

  in_root() { in_bare_root "$root" /root/sluice "$1"; }

  local command started
  while read -r command <&3; do
    [[ -n $command ]] || continue
    step "\$ $command"
    started=$SECONDS
    in_root "$command" || die "'$command' failed in the bare root"
    step "'$command' succeeded after $((SECONDS - started)) s"
  done 3< <(readme_commands)

  [[ $(in_root './dev install 2>&1') == '' ]] || die "a second run installed something"
  step "a second run has nothing to install"
}

if [[ ${1:-} == --inside ]]; then
  inside "$2" "$3" "$4"
  exit
fi

keep=
cache=
for option in "$@"; do
  case $option in
    --keep) keep=yes ;;
    --cache) cache=$(readlink -f "$HOME/.cache/sluice/bazel") ;;
    *) die "usage: ./dev fresh [--keep] [--cache]" ;;
  esac
done
[[ -z $cache || -d $cache ]] || die "there is no cache yet: $cache"
[[ $(id -u) -eq 0 ]] || die "chroot and mount need root"
[[ -n $(readme_commands) ]] || die "README.md has no \`\`\`sh block"
tools/dev/install.sh debootstrap git
[[ -z $(git status --porcelain) ]] || step "note: only what is committed is tried; this checkout has more"
uri=$(mirror)
[[ -n $uri ]] || die "no package source for bookworm in /etc/apt"

root=$(mktemp -d /var/tmp/sluice-fresh.XXXXXX)
chmod 755 "$root"
cleanup() {
  if [[ -n $keep ]]; then
    step "kept: $root"
  else
    rm -rf --one-file-system "$root" "$root.log"
  fi
}
trap cleanup EXIT
bare_root_run "$PWD/tools/dev/fresh.sh" --inside "$root" "$uri" "$cache"
