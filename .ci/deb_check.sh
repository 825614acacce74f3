#!/usr/bin/env bash
# deb_check.sh : what `make deb` built installs in an empty Debian, where its tools run, have manual
# pages, and a program compiles over both headers. Run by hand before a release. Exit 77: cannot here.
set -eu
cd "$(dirname "$0")/.."
ls build/deb/specrt_*.deb >/dev/null || { echo "build/deb: expected packages; run make deb"; exit 1; }
. .ci/empty_debian.bash
cp build/deb/*.deb examples/minimal.c examples/toy.h tests/compile/{program,other}.c "$root/"
cp tests/golden/bundles/v1.0-zstd.specb "$root/b.specb"
rm "$root"/*dbgsym*
cp -r data/corpus/code data/tokenizer.json "$root/"
in_debian 'apt-get update -qq && apt-get install -y -qq --no-install-recommends man-db gcc \
    libc6-dev pkg-config /*.deb' >"$root/log" 2>&1 || { tail -n 20 "$root/log"; exit 1; }
in_debian '
set -e
for tool in $(dpkg -L specrt | sed -n "s|^/usr/bin/||p"); do
    $tool --version | grep -q "^$tool 1"
    man $tool | grep -q NAME
done
man specrt-prepare | grep -q "specrt prepare"
cc -std=c99 minimal.c $(pkg-config --cflags --libs specrt) -o minimal && ./minimal b.specb
cc -std=c99 program.c other.c $(pkg-config --cflags --libs libspecrt) -o shared
./shared b.specb 0 17
specrt calibrate -q --tokenizer tokenizer.json --corpus code --size 300 -o ranks.specb
specrt bundle verify ranks.specb
apt-get purge -y -qq specrt libspecrt1 libspecrt-dev >/dev/null 2>&1
[ ! -e /usr/bin/specrt ] && [ ! -e /usr/include/specrt.h ]'
