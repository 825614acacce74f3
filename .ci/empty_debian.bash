# empty_debian.bash : an empty Debian in $root until the script that sources this ends. Exit 77: cannot here.
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
root=$(mktemp -d "${TMPDIR:-/tmp}/specrt-chroot-XXXXXX")
trap 'umount "$root/proc" 2>/dev/null; rm -rf --one-file-system "$root"' EXIT
debootstrap --variant=minbase bookworm "$root" >"$root.log" 2>&1 || { tail -n 3 "$root.log";
    rm -f "$root.log"; skip "debootstrap failed"; }
rm -f "$root.log"
mount -t proc proc "$root/proc" || skip "cannot mount proc"
cp /etc/resolv.conf "$root/etc/" 2>/dev/null
cp /etc/apt/apt.conf.d/99* "$root/etc/apt/apt.conf.d/" 2>/dev/null # a mirror's settings

# in_debian COMMAND [VARIABLE=VALUE...] : a line of sh, in the folder / of that Debian.
in_debian() {
    local command=$1; shift
    chroot "$root" env -i HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C \
        DEBIAN_FRONTEND=noninteractive "$@" sh -c "$command"
}
