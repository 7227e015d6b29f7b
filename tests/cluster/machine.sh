#!/bin/sh
# machine.sh DIRECTORY NAME PAUSE: makes a machine of the namespaces that it is started in, and becomes its first process.
#
# The root is a copy of this machine's that is gone with the last process. Nothing that is written there, mounted there or set
# there (also /proc/sys outside of net) reaches anything outside of DIRECTORY/state.
set -eu
directory=$1 name=$2 pause=$3

tmpfs() { mkdir -p "$1" && mount -t tmpfs -o mode=755 tmpfs "$1"; }
# A directory of the disk: one of an overlay can be no layer of another.
disk() {
    mkdir -p "$directory/state$1" "$root$1"
    mount --bind "$directory/state$1" "$root$1"
}

tmpfs "$directory/layers"
mkdir "$directory/layers/upper" "$directory/layers/work"
root=$directory/root
mkdir -p "$root"
mount -t overlay -o "lowerdir=/,upperdir=$directory/layers/upper,workdir=$directory/layers/work" overlay "$root"

mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t sysfs sysfs "$root/sys"
mount -t bpf bpf "$root/sys/fs/bpf"
tmpfs "$root/sys/fs/cgroup"
# Each hierarchy that this machine has, from the machine's own place in it on.
while IFS=: read -r _ controllers _; do
    case $controllers in
        "") place=unified type=cgroup2 options=rw ;;
        name=*) place=${controllers#name=} type=cgroup options=none,$controllers ;;
        *) place=$controllers type=cgroup options=$controllers ;;
    esac
    mkdir "$root/sys/fs/cgroup/$place"
    mount -t "$type" -o "$options" cgroup "$root/sys/fs/cgroup/$place"
done </proc/self/cgroup

# What a kubelet sets, and what must not change for others.
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    cp "/proc/sys/$setting" "$directory/layers/setting"
    mv "$directory/layers/setting" "$directory/layers/$(basename "$setting")"
    mount --bind "$directory/layers/$(basename "$setting")" "$root/proc/sys/$setting"
done

for place in /run /tmp /var/log /var/lib/cni; do tmpfs "$root$place"; done
mkdir "$root/run/lock" "$root/run/netns"
chmod 1777 "$root/tmp"
# What is there after a reboot.
for place in /var/lib/containerd /var/lib/kubelet /usr/lib/sidestep /etc/cni /opt/cni; do disk "$place"; done
# The tests and the machine exchange files here.
mkdir -p "$root$directory/state"
mount --bind "$directory/state" "$root$directory/state"
cp "$pause" "$root/run/pause"

hostname "$name"
cd "$root"
mkdir -p run/before
pivot_root . run/before
umount -l /run/before
# As systemd has it; volumes of pods depend on that.
mount --make-rshared /
exec /run/pause
