#!/usr/bin/env bash
# stream.sh BUILD TOKENIZER FOLDER [GB] : the corpus in FOLDER once, then over and over up to GB
# (10) of text, through a pipe: the rate and the peak memory of both, in one run.
set -eu
build=$1 tokenizer=$2 folder=$3 gb=${4:-10}
files=$(find "$folder" -type f \( -name '*.txt' -o -name '*.md' \) | sort)
once=$(cat $files | wc -c)
[ "$once" -gt 0 ] || { echo "$folder: no .txt or .md files"; exit 3; }
feed() { for _ in $(seq "$1"); do cat $files; done; }
for times in 1 $((gb * 1000000000 / once + 1)); do
    feed "$times" | /usr/bin/time -f '%M %e' "$build/bin/vocabtrim-calibrate" -q -o /dev/null \
        --tokenizer "$tokenizer" --corpus - --size 8192 2>&1 >/dev/null | tail -n 1 |
        awk -v bytes=$((once * times)) '{
            printf "%8.3f GB  %7.1f MB/s  peak %.0f MB\n", bytes / 1e9, bytes / 1e6 / $2, $1 / 1024
        }'
done
