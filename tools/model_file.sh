# shellcheck shell=bash
# model_file.sh : what models.sh knows of files: what kind they are, and what it keeps of them.

# number KEY SKIP BYTES FILE : the unsigned integer so far behind a GGUF's key.
number() {
    local at
    at=$(head -c 64000000 "$4" | grep -aboF -m 1 "$1" | head -n 1) || true
    at=${at%%:*}
    [ -n "$at" ] || { echo none; return; }
    od -An -t "u$3" -j $((at + ${#1} + $2)) -N "$3" "$4" | tr -d ' '
}

# kind_of FILE : "architecture tokens columns" of a GGUF.
kind_of() {
    local architecture
    [ "$(head -c 4 "$1" | tr -d '\0')" = GGUF ] || { echo no GGUF; return; }
    # Type and length stand between, bytes that are no letters.
    architecture=$(head -c 100000 "$1" | tr -c 'a-z0-9._\n' ' ' |
        sed -n 's/.*general\.architecture *\([a-z0-9]*\).*/\1/p' | head -n 1) || true
    echo "${architecture:-none}" "$(number tokenizer.ggml.tokens 8 8 "$1")" \
        "$(number "$architecture.embedding_length" 4 4 "$1")"
}

# ---- what is kept of a file ----

# little BYTES N, text STRING : as a GGUF has them.
little() {
    local i
    # shellcheck disable=SC2059
    for ((i = 0; i < $1; i++)); do printf "\\x$(printf %02x $(($2 >> 8 * i & 255)))"; done
}
text() { little 8 ${#1} && printf %s "$1"; }

# head_header COLUMNS ROWS
head_header() {
    printf GGUF && little 4 3 && little 8 1 && little 8 2
    text general.architecture && little 4 8 && text qwen2
    text general.name && little 4 8 && text "rows 0 to $(($2 - 1)) of a head"
    text output.weight && little 4 2 && little 8 "$1" && little 8 "$2" && little 4 14 && little 8 0
}

# only_head FILE OFFSET COLUMNS ROWS : a GGUF of the Q6_K rows there: 210 bytes hold 256 columns.
only_head() {
    local n
    n=$(head_header "$3" "$4" | wc -c)
    head_header "$3" "$4" && head -c $(((32 - n % 32) % 32)) /dev/zero &&
        dd if="$1" bs=1M iflag=skip_bytes,count_bytes skip="$2" count=$(($3 * $4 / 256 * 210)) \
            status=none
}

# only_conversations FILE LINE : the conversations above it, of which each begins a line.
only_conversations() { head -n $(($2 - 1)) "$1" | sed '$ s/},$/}/' && echo ']'; }

# only_prompts FILE LINE : what each conversation from there on begins with. Those of many turns are
# split, and the pieces numbered from 0.
only_prompts() {
    tail -n +"$2" "$1" | awk '
        /^    "id": / { first = /_0",$/ }
        first && /^        "from": "human"/ {
            first = 0
            getline
            sub(/^ *"value": /, "")
            if (/"$/ && length > 20 && length <= 1200)
                printf "{\"prompt\": %s, \"domain\": \"sharegpt\"}\n", $0
        }'
}
