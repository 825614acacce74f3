# lib.bash : what command-line tests share. Source it; the first failed check ends the test.
set -u

TOKENIZER=$CLI_TESTS/../../data/tokenizer.json
root=$CLI_TESTS/../..
sample=$root/data/sample prompts=$root/data/prompts
target=$sample/target.gguf draft=$sample/draft.safetensors
pair=(--target "$target" --draft "$draft")

fail() { echo "failed: $*"; exit 1; }
skip() { echo "$*"; exit 77; }
require() { command -v "$1" >/dev/null || skip "$1 is not installed"; }

# most ALL BRIEF [QUICK] : a size or a list; the brief one reaches the same code. EVERYTHING=1 takes
# all (`make test-all`). is_quick : `make test`, which takes what shows the basic promise. left_to_all :
# the whole test is for EVERYTHING=1.
is_brief() { [ -z "${EVERYTHING:-}" ]; }
is_quick() { [ -n "${TEST_QUICK:-}" ]; }
most() { if is_quick; then echo "${3-$2}"; elif is_brief; then echo "$2"; else echo "$1"; fi; }
left_to_all() { is_brief && skip "takes its time: make test-all"; }

# data PATH : a file of the optional shared data, else the test is skipped.
data() {
    [ -e "$SPECRT_DATA/$1" ] || skip "the shared data is missing"
    echo "$SPECRT_DATA/$1"
}

# accepts COMMAND... : exit code 0.
accepts() {
    local code
    "$@" >../out 2>../err
    code=$?
    [ $code = 0 ] || { cat ../err; fail "exit $code from: $*"; }
}

# json FILE PATH... : fields of a file of JSON by name (tests/json_path.h says what a path is), a line each.
# holds FILE PATH=PATTERN... : they match; has PATH=PATTERN... : those of what the last command printed.
json() { "$CLI_BIN/../tests/json" "$@"; }
holds() { json "$@" || fail "$1: another field: $(head -c 2000 "$1")"; }
has() { holds ../out "$@"; }

# prints PATTERN : what the last `accepts` put on stdout matches; warns PATTERN : on stderr.
prints() { case $(<../out) in $1) ;; *) cat ../out; fail "stdout does not match $1" ;; esac; }
warns() { case $(<../err) in $1) ;; *) cat ../err; fail "stderr does not match $1" ;; esac; }

# refuses CODE PATTERN COMMAND... : that exit code, one line on stderr that matches PATTERN (a usage
# error adds the hint to -h, warnings may come before), nothing on stdout, and no file made or changed.
refuses() {
    local code=$1 pattern=$2 before after found out err line lines=()
    shift 2
    before=$(snapshot)
    "$@" >../out 2>../err # beside the test's folder, so that they are not among its files
    found=$?
    after=$(snapshot)
    out=$(<../out) err=$(<../err)
    [ $found = "$code" ] || fail "exit $found, expected $code, from: $*: $err"
    while IFS= read -r line; do
        case $line in *": -h shows the options" | *": warning: "*) ;; *) lines+=("$line") ;; esac
    done <../err
    [ ${#lines[@]} = 1 ] || fail "expected one line from: $*: $err"
    case ${lines[0]} in $pattern) ;; *) fail "expected '$pattern', found: $err" ;; esac
    [ -z "$out" ] || fail "output on stdout from: $*: $out"
    [ "$before" = "$after" ] || fail "files changed by: $*: $after"
}

# sh_word PATH : as tools print it for sh, between quotes where it has other characters than these.
sh_word() {
    case $1 in *[!a-zA-Z0-9_./:=@+,-]*) printf "'%s'" "$1" ;; *) printf %s "$1" ;; esac
}

# shows_clean [FILE...] : what the last command printed, or the files, is UTF-8 without controls but ends of lines.
shows_clean() {
    local file
    for file in "${@:-../out}" ../err; do
        iconv -f UTF-8 -t UTF-8 "$file" >/dev/null 2>&1 || fail "$file is no UTF-8: $(od -c "$file")"
        LC_ALL=C grep -q $'[\x01-\x09\x0b-\x1f\x7f]\|\xc2[\x80-\x9f]' "$file" &&
            fail "controls in $file: $(od -c "$file" | grep -m 3 '033\|302')"
    done
    return 0
}

# snapshot : every file here with its number, size and the time of its last change of any kind.
snapshot() { find . -type f -printf '%p %i %s %C@\n'; }

# tells COMMAND... : the command and what it prints on stdout, for approved text, too.
tells() {
    accepts "$@"
    { echo "== $*"; cat ../out; } | lasting
}
# helps TOOL : its help, for approved text; of the options of every tool, which calibrate_usage.sh
# approves, that they are there.
helps() {
    accepts "$1" -h
    echo "== $1 -h"
    sed '/^Common options/,$d' ../out
    same <(sed -n '/^Common options/,$p' ../out) \
        <(vocabtrim-calibrate -h | sed -n '/^Common options/,$p')
}
# lasting : text without folders, versions, times and compressed bytes, the library's affair, and with
# numbers of at most four decimals.
lasting() {
    local table='/^section .*stored bytes/,/^$/ {
        /^prov/s/[0-9].*//; t
        s/^([a-z]+ +)[0-9,]+ +([0-9,]+) +[0-9.]+( +[0-9]+) .*/\1\2\3/; t
        s/^([a-z]+ +)[0-9,]+  /\1/
    }'
    sed -E "$table; s|$CLI_TESTS/../../||g; s|$CLI_TESTS/../|tests/|g; s|$CLI_TESTS|tests/cli|g
        s|$CLI_BIN/||g; s|${CLI_TESTS%/tests/cli}/||g; s|$PWD/||g"'
        s/(replayed; )[0-9]+ s/\10 s/
        s/([0-9]\.[0-9]{4})[0-9]+/\1/g; s/(-(build|calibrate|bundle)) 1\.[-0-9a-z.]+/\1/g
        s/( sections), [0-9,]+ bytes( stored as [0-9,]+)?/\1/
        s/\},\{/},\n{/g; s/ in [0-9.]+ s(, [0-9]+ tokens\/s)?//
        s/^( *[0-9]+ +[01]\.[0-9]{3}) +[0-9]+ +[0-9]+/\1/'
}

same() { cmp "$1" "$2" || fail "$1 and $2 differ"; }

# ids FILE N... : token ids as u16.
ids() {
    local file=$1 id two bytes=; shift
    for id; do
        printf -v two '\\x%02x\\x%02x' $((id & 255)) $((id >> 8))
        bytes+=$two
    done
    printf "$bytes" >"$file"
}

# head_file FILE ROWS [WORD] : a safetensors head of ROWS x 8 bf16, its numbers from a fixed sequence or all WORD.
head_file() {
    local rows=$2 word=${3:-} n header i x=1 pair
    n=$((rows * 16))
    header="{\"lm_head.weight\":{\"dtype\":\"BF16\",\"shape\":[$rows,8],\"data_offsets\":[0,$n]}}"
    while [ $((${#header} % 8)) != 0 ]; do header+=" "; done
    {
        printf "\\x$(printf %02x ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header"
        for ((i = 0; i < rows * 8; i++)); do
            x=$(((x * 1103515245 + 12345) % 2147483648))
            printf -v pair '%02x %02x' $((x >> 8 & 255)) $((x >> 20 & 128 | 63))
            printf "\\x${pair% *}\\x${word:-${pair#* }}"
        done
    } >"$1"
}

# safetensors FILE NAME:DTYPE:SHAPE:HEX... : tensors of the bytes given, a shape as 2,3.
safetensors() {
    local file=$1 header="{" item name dtype shape hex at=0 data=; shift
    for item; do
        IFS=: read -r name dtype shape hex <<<"$item"
        header+="${data:+,}\"$name\":{\"dtype\":\"$dtype\",\"shape\":[$shape],"
        header+="\"data_offsets\":[$at,$((at + ${#hex} / 2))]}"
        at=$((at + ${#hex} / 2)) data+=$hex
    done
    header+="}"
    while [ $((${#header} % 8)) != 0 ]; do header+=" "; done
    {
        printf "\\x$(printf %02x $((${#header} & 255)))\\x$(printf %02x $((${#header} >> 8)))"
        printf '\0\0\0\0\0\0%s' "$header"
        printf "$(sed 's/../\\x&/g' <<<"$data")"
    } >"$file"
}

# word N... : as bytes of 32 bits; text : a string of a GGUF.
word() {
    for n; do printf "\\x$(printf %02x $((n & 255)))\\x$(printf %02x $((n >> 8)))\\0\\0"; done
}
text() { word ${#1} 0; printf %s "$1"; }

# gguf FILE ARCH NAME:TYPE:NE0:NE1:BYTES... : tensors of zeros; further keys are in the file `keys`,
# N_KEYS of them.
gguf() {
    local file=$1 item name type ne0 ne1 bytes at=0 arch=$2; shift 2
    {
        printf GGUF; word 3 $# 0 $((1 + ${N_KEYS:-0})) 0
        text general.architecture; word 8; text "$arch"
        [ -z "${N_KEYS:-}" ] || cat keys
        for item; do
            IFS=: read -r name type ne0 ne1 bytes <<<"$item"
            text "$name"; word 2 "$ne0" 0 "$ne1" 0 "$type" $at 0
            at=$((at + (bytes + 31) / 32 * 32))
        done
    } >"$file"
    truncate -s $((($(stat -c %s "$file") + 31) / 32 * 32 + at)) "$file"
}

# i64 N... : their bytes in hex, for safetensors.
i64() {
    local n i
    for n; do for ((i = 0; i < 64; i += 8)); do printf %02x $((n >> i & 255)); done; done
}

# mask N ID... : a t2d of N entries in hex.
mask() {
    local n=$1 i id byte; shift
    for ((i = 0; i < n; i++)); do
        byte=00
        for id; do [ "$id" != $i ] || byte=01; done
        printf $byte
    done
}

# found CODES FILE FLAGS... : `specrt-bundle check FILE` finds exactly these, each with a fix.
found() {
    local codes=$1 code text; shift
    specrt-bundle check "$@" --json >../out 2>../err
    code=$?
    text=$(cat ../out)
    [ $code = $([ -z "$codes" ] && echo 0 || echo 3) ] ||
        fail "exit $code for '$codes': $text $(cat ../err)"
    [ -z "$codes" ] && { has ok=true findings=; return; }
    has ok=false "findings[].code=$codes" "findings[].#=$(wc -w <<<"$codes")"
    ! json ../out 'findings[fix=]' 2>/dev/null || fail "no fix: $text"
}

# finding CODE wrong|fewer export|hand ENGINES WHAT FIX : one of what was found: whether it makes drafts wrong,
# whether export fixes it, and whom it concerns.
finding() {
    local f="findings[code=$1]" wrong=false export=false
    [ "$2" = fewer ] || wrong=true
    [ "$3" = hand ] || export=true
    has "$f.wrong_drafts=$wrong" "$f.export_fixes=$export" "$f.engines=$4" "$f.what=$5" "$f.fix=$6"
}

# needs_python_library : $python runs the package of python/ with libspecrt.so, or the test is skipped.
needs_python_library() {
    . "$CLI_TESTS/../python/find.bash"
    [ -z "$why" ] || skip "$why"
    [ -z "$CLI_SANITIZED" ] || skip "a sanitized library needs a sanitized Python"
    [ -e "$CLI_BIN/../libspecrt.so" ] || skip "no libspecrt.so (make lib)"
    export SPECRT_LIBRARY=$CLI_BIN/../libspecrt.so PYTHONPATH=$CLI_TESTS/../../python
    export PYTHONDONTWRITEBYTECODE=1
}

# costs_with LINE... : lines of costs, some of a head and a drafter, and these of a target.
costs_with() {
    printf '%s\n' "first 1024 1e-5" "first 32768 3e-4" "next 1 1024 1e-5" "next 1 32768 3e-4" \
        "next 4 1 7e-4" "next 4 32768 7e-4" "next 10 1 15e-4" "next 10 32768 15e-4" \
        "draft 1 5e-5" "draft 10 2e-4" "$@"
}

# sealed FILE : a file of costs, from its lines.
sealed() {
    { printf 'specrt costs 1\nmachine any\nkey any\n'; cat; } >"$1"
    echo "sum $(sha256sum <"$1" | cut -c 1-16)" >>"$1"
}
