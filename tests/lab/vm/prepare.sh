#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: prepare.sh CACHE
# Puts into CACHE what boot.sh needs: the kernel of Debian's linux-image-amd64, its module tree, and a first root file
# system with the modules that are needed before the machine's own files are in sight. Does nothing when all is there.
set -euo pipefail
cache=$1
export PATH=$PATH:/usr/sbin:/sbin  # depmod, modprobe
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tools/dev/common.sh
source "$here/../../../tools/dev/common.sh"

package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" && !seen++ { print $2 }')
[[ -n $package ]] || die "apt knows no linux-image-amd64: run apt-get update"
release=${package#linux-image-}
stamp="$release $(cat "${BASH_SOURCE[0]}" "$here/init.sh" | sha256sum | cut -c1-16)"
[[ $(cat "$cache/ready" 2>/dev/null) != "$stamp" ]] || exit 0

step "unpacking $package for the lab"
rm -rf "$cache"
mkdir -p "$cache"
# Unpacked, not installed: an installed kernel would want to be booted by this machine.
(cd "$cache" && apt-get -qq -o APT::Sandbox::User=root download "$package")
dpkg-deb --extract "$cache"/*.deb "$cache/kernel"
rm "$cache"/*.deb
[[ -d $cache/kernel/lib/modules/$release ]] || die "$package has no modules for $release"
depmod --basedir "$cache/kernel" "$release"

# An emulated CPU takes longer to unpack the kernel than to run the whole lab, so that is done here.
image=$cache/kernel/boot/vmlinuz-$release
unpacked=no
while IFS=: read -r offset _; do
  tail -c "+$((offset + 1))" "$image" | xz -dcq --single-stream >"$cache/vmlinux" 2>/dev/null || true
  [[ $(head -c 4 "$cache/vmlinux" | tail -c 3) != ELF ]] || { unpacked=yes && break; }
done < <(LC_ALL=C grep -aboP '\xfd7zXZ\x00' "$image")
[[ $unpacked == yes ]] || die "no xz-compressed kernel inside of $image"

root=$cache/initramfs
mkdir -p "$root"/{bin,dev,proc,sys,modules,machine,scratch,root}
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$here/init.sh" "$root/init"
chmod +x "$root/init"
echo "$release" >"$root/release"
# In the order in which they have to be loaded; rdma_rxe asks the kernel's crypto for crc32 by name.
number=100
for module in virtio_pci virtio_console virtio_rng virtio_net 9p 9pnet_virtio overlay veth sch_netem ib_uverbs rdma_ucm rdma_rxe \
  crc32_generic crc32c_generic; do
  while read -r word path _; do
    [[ $word == insmod ]] || continue
    name=$(basename "$path" .ko)
    compgen -G "$root/modules/*-$name.ko" >/dev/null || cp "$path" "$root/modules/$((number++))-$name.ko"
  done < <(modprobe --dirname "$cache/kernel" --set-version "$release" --show-depends "$module")
done
(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$cache/initramfs.gz"
rm -rf "$root"
echo "$stamp" >"$cache/ready"
