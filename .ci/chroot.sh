#!/usr/bin/env bash
# chroot.sh [smoke] : the README's two set-up commands, as written, in an empty Debian. With smoke
# the first takes a few short answers, the second a few tests. Exit 77: cannot here.
set -u
. "$(dirname "$0")/empty_debian.bash"
mkdir "$root/specrt"
git archive HEAD | tar -x -C "$root/specrt"
sed -n '/^```sh setup$/,/^```$/p' README.md | grep -v '^```' >"$root/commands"
[ "$(wc -l <"$root/commands")" = 2 ] || { echo "README must hold exactly two set-up commands";
    exit 1; }
while read -r command; do
    echo "+ $command"
    in_debian "cd /specrt && $command" ${1:+SMOKE=1 "ARGS=--limit 5 --tokens 16"} </dev/null ||
        { echo "failed in an empty Debian: $command"; exit 1; }
done <"$root/commands"
