# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts that try something in a bare Debian bookworm root. Needs common.sh, debootstrap, and root.
# Mounts and processes have namespaces of their own (bare_root_run), so they end with the script, however it ends.

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

# make_bare_root ROOT MIRROR: inside the namespaces.
make_bare_root() {
  local root=$1 uri=$2
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
}

# in_bare_root ROOT FOLDER COMMAND
in_bare_root() {
  local -a environment=(HOME=/root LANG=C.UTF-8 "PATH=/usr/sbin:/usr/bin:/sbin:/bin" "TERM=${TERM:-dumb}")
  local name
  for name in http_proxy https_proxy no_proxy; do
    [[ -z ${!name:-} ]] || environment+=("$name=${!name}")
  done
  chroot "$1" env -i "${environment[@]}" bash -c "cd $2 && $3"
}

# bare_root_run SCRIPT ARGUMENT...: in namespaces of its own.
bare_root_run() {
  unshare --mount --propagation private --pid --fork --kill-child "$@"
}
