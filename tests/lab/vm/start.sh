# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Process 1 with the machine's files in place: runs /lab/script there, and leaves its exit status in /lab/status.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
ln -sfn /proc/self/fd /dev/fd
ulimit -l unlimited
ip link set lo up
mkdir -p /wire
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none wire /wire 2>/dev/null || rmdir /wire  # one machine alone has none
cp /lab/files/* /tmp
bash /lab/script </dev/null >/lab/output 2>&1
echo $? >/lab/status
sync
/bin/busybox poweroff -f
