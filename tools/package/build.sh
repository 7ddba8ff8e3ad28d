#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: build.sh PREFIX OUTPUT VERSION
# Makes the Debian packages of tools/package/control from an installation in PREFIX (tools/install/copy.sh), and writes them to OUTPUT.
# Each file of the installation is in one package.
# Environment: DEBFULLNAME and DEBEMAIL name the maintainer (default: the author of the last commit); SOURCE_DATE_EPOCH is the time of the files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

prefix=$(readlink -f "$1")
output=$2
version=$3
maintainer="${DEBFULLNAME:-Sluice maintainers} <${DEBEMAIL:-$(git log -1 --format=%ae)}>"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
architecture=$(dpkg --print-architecture)
mkdir -p "$output"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

# field PARAGRAPH NAME: its value, continued lines included.
field() {
  awk -v name="$2:" '
    $1 == name { on = 1; sub(/^[^:]*: ?/, ""); print; next }
    /^[^ ]/ { on = 0 }
    on { print }' <<<"$1"
}

# The paragraphs, one to a file.
grep -v '^#' tools/package/control |
  awk -v folder="$work" 'BEGIN { RS = "" } { print > (folder "/" ++n ".paragraph") }'

# dpkg-shlibdeps has to know the packages of our own libraries.
mkdir -p "$work/debian"
printf 'Source: sluice\n\nPackage: sluice\nArchitecture: any\n' >"$work/debian/control"
for library in libsluice:libsluice0 libsluice_prometheus:libsluice-prometheus0 libsluice_c:libsluice-c0; do
  printf '%s 0 %s (= %s)\n' "${library%:*}" "${library#*:}" "$version"
done >"$work/debian/shlibs.local"

# stage_file FILE PLACE: copies a file of the installation below the root of a package, as Debian wants files to be.
stage_file() {
  local file=$1 to=$2 mode=644
  mkdir -p "$(dirname "$to")"
  if [[ -L $file ]]; then
    cp -P "$file" "$to"
    return
  fi
  [[ $file != */bin/* ]] || mode=755
  install -m "$mode" "$file" "$to"
  case $to in
    */bin/* | *.so | *.so.*)
      strip --strip-unneeded --remove-section=.comment --remove-section=.note "$to"
      # Libraries find one another in the standard folder.
      chrpath --delete "$to" >/dev/null 2>&1 || true
      ;;
    */share/man/*)
      gzip -9n "$to"
      ;;
  esac
}

# documents ROOT PACKAGE
documents() {
  local folder=$1/usr/share/doc/$2
  mkdir -p "$folder"
  cat >"$folder/copyright" <<'END'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Sluice

Files: *
Copyright: 2026 the Sluice authors
License: Apache-2.0
 On Debian systems the full text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
END
  {
    printf 'sluice (%s) unstable; urgency=medium\n\n  * Packages of the upstream project.\n\n -- %s  %s\n' \
      "$version" "$maintainer" "$(date -R -u -d "@$SOURCE_DATE_EPOCH")"
  } | gzip -9n >"$folder/changelog.Debian.gz"
  chmod 644 "$folder"/*
}

declare -A owner=()
build_package() {
  local paragraph=$1 name root place pattern unit
  name=$(field "$paragraph" Package)
  root=$work/root/$name
  rm -rf "$root"
  local -a files=() private=()
  read -ra patterns <<<"$(field "$paragraph" Files)"
  for pattern in "${patterns[@]}"; do
    mapfile -t -O "${#files[@]}" files < <(cd "$prefix" && compgen -G "$pattern" | xargs -r -d '\n' -I{} find {} ! -type d)
  done
  read -ra private <<<"$(field "$paragraph" Private)"
  if [[ ${#files[@]} -eq 0 ]]; then
    step "package: $name has no files, left out"
    return
  fi
  for place in "${files[@]}" "${private[@]}"; do
    [[ -z ${owner[$place]:-} ]] || die "$place is in ${owner[$place]} and in $name: see tools/package/control"
    owner[$place]=$name
  done
  for place in "${files[@]}"; do stage_file "$prefix/$place" "$root/usr/$place"; done
  for place in "${private[@]}"; do stage_file "$prefix/$place" "$root/usr/lib/sluice/${place##*/}"; done
  unit=$(field "$paragraph" Unit)
  [[ -z $unit ]] || install -D -m 644 "tools/package/$unit" "$root/lib/systemd/system/$unit"
  documents "$root" "$name"
  mkdir -p "$root/DEBIAN" # dpkg-shlibdeps looks for it

  # What it needs, by what its programs and libraries link.
  local -a binaries
  mapfile -t binaries < <(find "$root" -type f \( -path '*/bin/*' -o -name '*.so' -o -name '*.so.*' \))
  local shlibs=
  if [[ ${#binaries[@]} -gt 0 ]]; then
    shlibs=$(cd "$work" && dpkg-shlibdeps -O --warnings=0 -S"$root" -l"$prefix/lib" "${binaries[@]}" | sed -n 's/^shlibs:Depends=//p')
  fi
  local arch
  arch=$(field "$paragraph" Architecture)
  [[ $arch == all ]] || arch=$architecture
  {
    printf 'Package: %s\nSource: sluice\nVersion: %s\nArchitecture: %s\nMaintainer: %s\nInstalled-Size: %s\nPriority: optional\n' \
      "$name" "$version" "$arch" "$maintainer" "$(du -k -s --apparent-size "$root" | cut -f1)"
    sed -E "/^(Package|Architecture|Files|Private|Unit):/d" <<<"$paragraph" |
      sed "s/\${version}/$version/g; s/, \${shlibs:Depends}/${shlibs:+, $shlibs}/; s/\${shlibs:Depends}/$shlibs/"
  } >"$root/DEBIAN/control"
  local -a libraries
  mapfile -t libraries < <(cd "$root" && compgen -G 'usr/lib/*.so.*')
  if [[ ${#libraries[@]} -gt 0 ]]; then
    for place in "${libraries[@]}"; do
      place=${place##*/}
      printf '%s %s %s (= %s)\n' "${place%.so.*}" "${place##*.so.}" "$name" "$version"
    done >"$root/DEBIAN/shlibs"
    echo 'activate-noawait ldconfig' >"$root/DEBIAN/triggers"
  fi
  if [[ -d $root/usr/lib/python3 ]]; then
    # As dh_python3 does: compiled when it is installed, and what was compiled is removed.
    cat >"$root/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
if [ "$1" = configure ] && command -v py3compile >/dev/null; then
  py3compile -p python3-sluice
fi
END
    cat >"$root/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
if command -v py3clean >/dev/null; then
  py3clean -p python3-sluice
fi
END
    chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm"
  fi
  (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
  find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group --build "$root" "$output/${name}_${version}_$arch.deb" >/dev/null
  step "package: ${name}_${version}_$arch.deb"
}

for paragraph in $(printf '%s\n' "$work"/*.paragraph | sort -V); do build_package "$(<"$paragraph")"; done
while IFS= read -r place; do
  [[ -n ${owner[$place]:-} ]] || die "$place is in no package: add it to tools/package/control"
done < <(cd "$prefix" && find . ! -type d -printf '%P\n')
