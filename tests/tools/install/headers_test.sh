#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: headers_test.sh
# Compares the headers of an installation with tools/install/headers.txt, and compiles each public one alone, with warnings that
# programs turn on, as errors. The shared libraries export nothing that no installed header has.
# Each shard compiles its share of the headers; the first one does the rest.
set -euo pipefail

prefix=$TEST_TMPDIR/prefix
tools/install/copy.sh tools/install/prefix "$prefix"
list=$PWD/tools/install/headers.txt
include=$prefix/include/sluice
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
cd "$TEST_TMPDIR"
[[ -z ${TEST_SHARD_STATUS_FILE:-} ]] || touch "$TEST_SHARD_STATUS_FILE"
shard=${TEST_SHARD_INDEX:-0} shards=${TEST_TOTAL_SHARDS:-1}

fail() {
  echo "headers_test: $*" >&2
  exit 1
}

# -- what is there
odd=$(sed '/^#/d' "$list" | grep -vE '^(public|internal)  *[a-z0-9_/.]+\.h$') || true
[[ -z $odd ]] || fail "headers.txt has lines that are neither 'public FILE' nor 'internal FILE': $odd"
awk '!/^#/ { print $2 }' "$list" | LC_ALL=C sort >listed
(cd "$include" && find . -type f ! -path ./proto/error_detail.proto -printf '%P\n') | LC_ALL=C sort >installed
differences=$(diff --unchanged-line-format= --old-line-format='  listed, not installed: %L' \
  --new-line-format='  installed, not listed: %L' listed installed) ||
  fail "tools/install/headers.txt is not what is installed (list a header as public or internal, or remove its line):"$'\n'"$differences"

# -- each public one compiles alone, and again after itself
awk '$1 == "public" { print $2 }' "$list" >public
[[ $(wc -l <public) -ge 20 ]] || fail "headers.txt lists only $(wc -l <public) public headers"
mkdir alone
awk -v shard="$shard" -v shards="$shards" 'NR % shards == shard' public >share
count=0
while read -r header; do
  count=$((count + 1))
  printf '#include "%s"\n#include "%s"\nint main() { return 0; }\n' "$header" "$header" >"alone/${header//\//__}.cc"
done <share
read -ra flags < <(pkg-config --cflags sluice_prometheus)
processes=$(nproc)
[[ $shards -eq 1 ]] || processes=1  # shards run beside each other
# shellcheck disable=SC2016  # $0 and $@ are those of the inner shell.
printf '%s\0' alone/*.cc | xargs -0 -n 1 -P "$processes" bash -c \
  'file=${!#}; "${@:1:$#-1}" "$file" >"$file.log" 2>&1 || touch "$file.failed"' compile \
  g++ -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror "${flags[@]}"
failed=(alone/*.failed)
if [[ -e ${failed[0]} ]]; then
  for file in "${failed[@]}"; do cat "${file%.failed}.log"; done >&2
  fail "${#failed[@]} of $count public headers do not compile alone without warnings: ${failed[*]}"
fi
[[ $shard -eq 0 ]] || exit 0

# -- what the shared libraries export: Sluice's names, of namespaces that an installed header opens
namespaces=$(cd "$include" && grep -rhoE '^namespace (sluice::)?[a-z_0-9:]+' . | sed -E 's/^namespace (sluice::)?//; s/::.*//' | sort -u)
for library in libsluice.so.0 libsluice_prometheus.so.0; do
  nm -DC --defined-only "$prefix/lib/$library" | cut -c20- | sed -E 's/@.*//' |
    sed -E 's/^(typeinfo|typeinfo name|vtable|VTT|guard variable|non-virtual thunk|virtual thunk) (for|to) //' >exported
  strangers=$(grep -vE '^(sluice::|descriptor_table_proto_2f|SLUICE_0$)' exported) || true
  [[ -z $strangers ]] || fail "$library exports names that are not Sluice's: $strangers"
  while read -r namespace; do
    grep -qxF "$namespace" <<<"$namespaces" ||
      fail "$library exports names of sluice::$namespace, and no installed header has that: see sluice.lds"
  done < <(grep -oE '^sluice::[a-z][a-z_0-9]*::' exported | sed -E 's/^sluice::(.*)::$/\1/' | sort -u)
done
grep -q '^sluice::PrometheusMetrics::Collect' exported || fail "libsluice_prometheus.so.0 has no PrometheusMetrics"

# -- the archives hide nothing (docs/embedding.md); what they define outside of sluice:: are descriptors, and copies of inline code
for library in libsluice.a libsluice_prometheus.a; do
  strangers=$(nm -gC --defined-only "$prefix/lib/$library" 2>/dev/null | grep -E '^[0-9a-f]{16} [TDBR] ' | cut -c20- |
    grep -vE '^((typeinfo|typeinfo name|vtable|VTT|guard variable|non-virtual thunk|virtual thunk) (for|to) )?sluice::' |
    grep -vE '^(descriptor_table_proto_2f|TableStruct_proto_2f)') || true
  [[ -z $strangers ]] || fail "$library defines names that are not Sluice's: $strangers"
done
