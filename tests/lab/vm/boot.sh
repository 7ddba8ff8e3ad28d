#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: boot.sh [-w FOLDER:PORT:N] CACHE SECONDS SCRIPT [FILE...]
# Runs SCRIPT (bash, as root) on a kernel of its own with soft RoCE, in an emulated machine that sees this machine's
# files read only at their own paths, those below /tmp and /run apart. The files are put beside the script, into /tmp.
# What the script prints is printed; its exit status is ours. 124: the time is up; 125: the machine died first.
# -w: one of two machines. N, 1 or 2, is its end of a wire between their eth0, which is made of the UDP ports PORT+1 and PORT+2 of this machine's
# loopback address. Both see FOLDER as /wire.
set -euo pipefail
wire=()
if [[ $1 == -w ]]; then
  IFS=: read -r folder port number <<<"$2"
  shift 2
  wire=(-netdev "dgram,id=wire,local.type=inet,local.host=127.0.0.1,local.port=$((port + number)),remote.type=inet,remote.host=127.0.0.1,remote.port=$((port + 3 - number))"
    -device "virtio-net-pci,netdev=wire,mac=52:54:00:00:00:0$number"
    -virtfs "local,path=$folder,mount_tag=wire,security_model=none,multidevs=remap")
fi
cache=$1 limit_s=$2 script=$3
shift 3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exchange=$(mktemp -d)
trap 'rm -rf "$exchange"' EXIT
cp "$here/start.sh" "$exchange/start.sh"
cp "$script" "$exchange/script"
mkdir "$exchange/files"
[[ $# -eq 0 ]] || cp "$@" "$exchange/files"

# Emulated, not virtualised: that works on every machine, and the lab is about behaviour.
result=0
timeout --foreground --kill-after=5 "$limit_s" qemu-system-x86_64 \
  -machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m 1536M -nodefaults -no-reboot -display none \
  -kernel "$cache/vmlinux" -initrd "$cache/initramfs.gz" \
  -append "console=ttyS0 quiet panic=-1 oops=panic mitigations=off" \
  -serial "file:$exchange/console" -device virtio-rng-pci ${wire[@]+"${wire[@]}"} \
  -virtfs local,path=/,mount_tag=machine,security_model=none,readonly=on,multidevs=remap \
  -virtfs local,path="$exchange",mount_tag=exchange,security_model=none,multidevs=remap \
  </dev/null || result=$?

[[ ! -s $exchange/output ]] || cat "$exchange/output"
[[ ! -s $exchange/status ]] || exit "$(cat "$exchange/status")"
{
  echo "the lab's machine gave no result (qemu: $result); its console ends with:"
  tail -n 20 "$exchange/console" | tr -d '\r'
} >&2
[[ $result -ne 124 && $result -ne 137 ]] || exit 124
exit 125
