#!/bin/busybox sh
# The first process of a guest: mounts, loads modules, names the cards eth0, eth1, ..., runs /job/run, and turns off.
/bin/busybox mkdir -p /bin /sbin /proc /sys /dev
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts /run /tmp /out /root /var
ln -sf /proc/self/fd /dev/fd
mount -t tmpfs tmp /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf 2>/dev/null
mount -t debugfs dbg /sys/kernel/debug 2>/dev/null
mount -t tracefs trc /sys/kernel/tracing 2>/dev/null
mount -t cgroup2 cg /sys/fs/cgroup 2>/dev/null
while read -r module; do
    insmod "/modules/$module.ko" $(cat "/modules/$module.parameters" 2>/dev/null) || echo "module $module: not loaded"
done </modules/list
port() { # the device of a port, by its name
    for at in /sys/class/virtio-ports/*; do
        [ "$(cat "$at/name" 2>/dev/null)" = "$1" ] && echo "/dev/${at##*/}"
    done
}
tries=0
while [ -z "$(port status)" ] && [ $tries -lt 200 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
ip link set lo up
# In two steps, because another card may still have the name. The address ends with the number of the card.
for at in /sys/class/net/*; do
    number=$(sed -n 's/^52:54:00:00:00://p' "$at/address")
    [ -z "$number" ] || ip link set "${at##*/}" name "card$((0x$number))"
done
for at in /sys/class/net/card*; do
    [ ! -e "$at" ] || ip link set "${at##*/}" name "eth${at##*card}"
done
echo "guest is up after $(cut -d' ' -f1 /proc/uptime) s, Linux $(uname -r)"
exec 3>"$(port status)"
sh /job/run >"$(port out)" 2>"$(port err)" </dev/null
status=$?
tar -c -C /out . >"$(port files)" 2>/dev/null
echo "$status" >&3
sync
poweroff -f
