#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
# Process 1 of the lab's virtual machine, from its first root file system: loads the RDMA modules, lays a scratch file
# system over the machine's own files (read only, by 9p), and goes on there with lab.sh's script.
b=/bin/busybox
end() {
  echo "lab: $*"
  $b poweroff -f
}
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
for module in /modules/*; do $b insmod "$module" || echo "lab: $module was not loaded"; done

ninep=trans=virtio,version=9p2000.L,msize=262144
$b mount -t 9p -o "$ninep,ro,cache=loose" machine /machine || end "the machine's files are not there"
$b mount -t tmpfs scratch /scratch
$b mkdir /scratch/upper /scratch/work
$b mount -t overlay -o lowerdir=/machine,upperdir=/scratch/upper,workdir=/scratch/work,xino=off lab /root || end "no overlay"
for tree in dev proc sys; do $b mount -o move /$tree /root/$tree; done
$b mkdir -p /root/dev/shm /root/lab
for tree in dev/shm tmp run; do $b mount -t tmpfs none /root/$tree; done
$b mount -t 9p -o "$ninep,cache=none" exchange /root/lab || end "no folder to exchange results in"
exec $b switch_root /root /bin/bash /lab/start.sh
