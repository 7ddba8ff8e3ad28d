#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: install.sh [further packages]
# Installs the Debian packages that are missing, and nothing when none is. One dpkg-query call decides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

packages=(
  g++ pkg-config cmake make
  bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto bazel-skylib
  libabsl-dev libprotobuf-dev libprotoc-dev protobuf-compiler
  libgtest-dev libgmock-dev libbenchmark-dev
  libibverbs-dev librdmacm-dev ibverbs-providers libisal-dev libsodium-dev
  prometheus-cpp-dev libcivetweb-dev
  libgrpc++-dev protobuf-compiler-grpc openssl
  python3 python3-grpcio python3-protobuf
)
packages+=("$@")

command -v dpkg-query >/dev/null || die "this is not a Debian system; install by hand: ${packages[*]}"
installed=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' "${packages[@]}" 2>/dev/null |
  sed -n 's/^ii //p' || true)
missing=()
for package in "${packages[@]}"; do
  grep -qxF "$package" <<<"$installed" || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

step "installing ${#missing[@]} Debian packages: ${missing[*]}"
as_root=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || die "root is needed; as root run: apt-get install ${missing[*]}"
  as_root=(sudo)
fi
as_root+=(env DEBIAN_FRONTEND=noninteractive)

log=$(mktemp)
trap 'rm -f "$log"' EXIT
run_apt() {
  # apt's own output is long and says little; it is shown when something goes wrong.
  if ! "${as_root[@]}" apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "$@" >"$log" 2>&1; then
    cat "$log" >&2
    die "apt-get $1 failed (above): is the package source in /etc/apt reachable?"
  fi
}
run_apt update
run_apt install --yes --no-install-recommends "${missing[@]}"
step "installed"
