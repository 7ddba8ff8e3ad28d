#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: copy.sh STAGED_FOLDER PREFIX
# Copies a staged installation into a prefix, and has its programs write their manual pages there. Of what is there, only
# Sluice's own folders of headers and of the Python module are replaced as a whole.
set -euo pipefail
staged=$1
prefix=$2

rm -rf "$prefix/include/sluice" "$prefix/lib/python3/dist-packages/sluice"
while IFS= read -r -d '' place; do
  mode=644
  case $place in
    bin/* | lib/*.so*) mode=755 ;;
  esac
  install -D -m "$mode" "$staged/$place" "$prefix/$place"
done < <(cd "$staged" && find -L . -type f -printf '%P\0')
man_page=$(dirname "${BASH_SOURCE[0]}")/man_page.sh
completions=$prefix/share/bash-completion/completions
mkdir -p "$prefix/share/man/man1"
for program in $("$man_page" --list); do
  "$man_page" "$prefix/bin/$program" >"$prefix/share/man/man1/$program.1"
  install -m 644 "$completions/_sluice" "$completions/$program" # bash looks for the program's name
done
rm "$completions/_sluice"
# Found by its plain name when linking, by its soname when running.
for library in libsluice libsluice_c libsluice_prometheus; do
  ln -sfn "$library.so.0" "$prefix/lib/$library.so"
done
