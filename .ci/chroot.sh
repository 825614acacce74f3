#!/usr/bin/env bash
# chroot.sh : the README's two set-up commands, as written, in an empty Debian. With SMOKE=1 the
# first takes a few short answers, the second a few tests. Exit 77: cannot here.
set -u
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
mkdir "$root/specrt"
git archive HEAD | tar -x -C "$root/specrt"
in_chroot() { chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C \
    ${SMOKE:+SMOKE=1 TOKENS=16 PROMPTS=5} sh -c "cd /specrt && $1"; }
sed -n '/^```sh setup$/,/^```$/p' README.md | grep -v '^```' >"$root/commands"
[ "$(wc -l <"$root/commands")" = 2 ] || { echo "README must hold exactly two set-up commands";
    exit 1; }
while read -r command; do
    echo "+ $command"
    in_chroot "$command" </dev/null || { echo "failed in an empty Debian: $command"; exit 1; }
done <"$root/commands"
