#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: exports_test.sh PRELOAD_LIBRARY PURE_SYMBOLS VERBS_FUNCTIONS
# No public function of the installed libraries that is given an object may be missing from the preload library: it
# would reach the real one, which looks for a provider's structures in softdc's objects.
set -euo pipefail
library=$1 pure=$2 functions=$3
status=0

exported=$(nm -D --defined-only "$library" | awk '{print $3}' | sed 's/@.*//' | sort -u)

# Public: with a version that is not the providers' private one; two of those are used by programs nevertheless.
public_symbols() {
  nm -D --defined-only --with-symbol-versions "$1" |
    awk '$2 == "T" && ($3 !~ /PRIVATE/ || $3 ~ /^(ibv_query_gid_type|ibv_read_ibdev_sysfs_file)@/) {print $3}' |
    sed 's/@.*//' | sort -u
}
allowed=$(sed 's/#.*//; s/ //g; /^$/d' "$pure" | sort -u)

for name in libibverbs.so.1 libmlx5.so.1; do
  # The list is read to its end: a pipe closed early fails whoever still writes into it.
  installed=$(ldconfig -p | awk -v name="$name" '$1 == name && !seen++ {print $NF}')
  [[ -n $installed ]] || { echo "$name is not installed"; exit 1; }
  public=$(public_symbols "$installed")
  [[ $(wc -l <<<"$public") -gt 60 ]] || { echo "$name: too few symbols found to prove anything"; exit 1; }
  missing=$(comm -23 <(echo "$public") <(sort -u <(echo "$exported") <(echo "$allowed")))
  [[ -z $missing ]] || { printf '%s has, and the preload library has not:\n%s\n' "$name" "$missing"; status=1; }
done

# The other way round: what stays real must not be exported, and nothing of librdmacm may be.
both=$(comm -12 <(echo "$exported") <(echo "$allowed"))
[[ -z $both ]] || { printf 'both pure and exported:\n%s\n' "$both"; status=1; }
if grep -E '^(rdma_|r(socket|bind|send|recv|poll)$)' <<<"$exported"; then
  echo "librdmacm is to run itself"
  status=1
fi

# Whatever softdc's table has can be reached.
while read -r symbol; do
  grep -qx "$symbol" <<<"$exported" || { echo "$symbol is in the table and not exported"; status=1; }
done < <(sed -nE 's/^SLUICE_IBV\((.*)\)/ibv_\1/p; s/^SLUICE_DV\((.*)\)/mlx5dv_\1/p' "$functions")

# Nothing comes with it but libc, and nothing of C++ is offered to others.
needed=$(readelf -d "$library" | sed -nE 's/.*NEEDED.*\[(.*)\]/\1/p' | grep -v '^libc\.so' || true)
[[ -z $needed ]] || { printf 'it brings along:\n%s\n' "$needed"; status=1; }
if grep -E '^_Z' <<<"$exported"; then
  echo "C++ symbols are exported"
  status=1
fi
exit $status
