#!/usr/bin/env bash
# run.sh DIR SECONDS : each fuzzer in DIR for SECONDS, as many at once as there are cores, on a copy
# of its seeds. Closes with "N passed, N failed, N skipped".
set -u
dir=$1 seconds=$2 work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fuzz() {
    local name; name=$(basename "$1")
    mkdir "$work/$name"
    cp tests/fuzz/corpus/"$name"/* "$work/$name/" 2>/dev/null
    # 2 GB: a reader that allocates what a hostile header asks for is a finding.
    if "$1" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 -artifact_prefix="$work/" \
        "$work/$name" >"$work/$name.log" 2>&1; then
        echo \
            "ok $name: $(grep -oE 'stat::number_of_executed_units: *[0-9]+|Done [0-9]+ runs' "$work/$name.log" | tail -n 1)"
    else
        echo "FAIL $name"; tail -n 40 "$work/$name.log"
    fi
}
for f in "$dir"/fuzz_*; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    fuzz "$f" >"$work/$(basename "$f").result" &
done
wait
cat "$work"/*.result
failed=$(grep -c '^FAIL ' "$work"/*.result | awk -F: '{ n += $2 } END { print n }')
passed=$(grep -c '^ok ' "$work"/*.result | awk -F: '{ n += $2 } END { print n }')
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
