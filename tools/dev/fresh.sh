#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: fresh.sh [--keep] [--cache]
# Proves the README: makes a bare Debian bookworm root, clones the committed state of this checkout into it, and
# runs there, in a chroot, the commands of the README's first shell block as they are written. --keep leaves the
# root in place (its path is printed) for a look. --cache lends the root what this machine has compiled already (.bazelrc): packages, commands
# and tests are tried as without it.
#
# Mounts and processes live in namespaces of their own, so they end with this script however it ends.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

readme_commands() {
  awk '/^```sh$/ { inside = 1; next } /^```/ { if (inside) exit } inside' README.md
}

# Any address that apt uses for bookworm itself, so that this works wherever apt does.
mirror() {
  # shellcheck disable=SC2016  # apt-get expands these.
  apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
    awk '$1 == "bookworm" && !seen++ { print $2 }'
}

copy_into() {
  local root=$1 path
  shift
  for path in "$@"; do
    [[ -e $path ]] || continue
    mkdir -p "$root$(dirname "$path")"
    cp -a --remove-destination "$path" "$root$(dirname "$path")/"
  done
}

# The host's package sources, keys and proxy settings, and its way to resolve names.
copy_apt_configuration() {
  local root=$1
  rm -rf "$root/etc/apt/sources.list" "$root/etc/apt/sources.list.d"
  copy_into "$root" /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf /etc/apt/apt.conf.d \
    /etc/apt/auth.conf /etc/apt/auth.conf.d /etc/apt/keyrings /etc/apt/trusted.gpg.d
  local named
  mapfile -t named < <({
    grep -rhoE 'signed-by[=:] *[^] ]+' -i /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null |
      sed -E 's/^[^=:]*[=:] *//' | tr ',' '\n'
    apt-config dump | sed -nE 's/^Acquire::.*(CAInfo|CAPath|SslCert|SslKey) "(.*)";/\2/p'
  } | grep '^/' | sort -u || true)
  copy_into "$root" "${named[@]}"
  cp --remove-destination --dereference /etc/resolv.conf /etc/hosts "$root/etc/"
}

# Everything from here on runs inside the namespaces.
inside() {
  local root=$1 uri=$2 cache=$3
  local include=()
  [[ $uri != https:* ]] || include=(--include=ca-certificates)
  step "a bare bookworm root from $uri in $root"
  local proxy=''
  eval "$(apt-config shell proxy Acquire::http::Proxy)"
  if ! env ${proxy:+"http_proxy=$proxy"} debootstrap --variant=minbase "${include[@]}" \
    bookworm "$root" "$uri" >"$root.log" 2>&1; then
    tail -n 20 "$root.log" >&2
    die "debootstrap failed (above)"
  fi
  copy_apt_configuration "$root"

  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  if [[ -n $cache ]]; then
    mkdir -p "$root/root/.cache/sluice/bazel"
    mount --bind "$cache" "$root/root/.cache/sluice/bazel"
  fi

  step "cloning the project into it, at $(git rev-parse --short HEAD)"
  git clone --quiet --no-hardlinks . "$root/root/sluice"

  local -a environment=(HOME=/root LANG=C.UTF-8 "PATH=/usr/sbin:/usr/bin:/sbin:/bin" "TERM=${TERM:-dumb}")
  local name
  for name in http_proxy https_proxy no_proxy; do
    [[ -z ${!name:-} ]] || environment+=("$name=${!name}")
  done
  in_root() { chroot "$root" env -i "${environment[@]}" bash -c "cd /root/sluice && $1"; }

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
unshare --mount --propagation private --pid --fork --kill-child \
  "$PWD/tools/dev/fresh.sh" --inside "$root" "$uri" "$cache"
