#!/usr/bin/env bash
# examples.sh BIN_DIR : runs the examples; closes with "N passed, N failed, N skipped".
set -u
bin=$1 passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() { # name, expected exit, expected text, command...
    local name=$1 code=$2 text=$3 out got; shift 3
    out=$("$@" 2>&1); got=$?
    if [ "$got" = "$code" ] && grep -qF -- "$text" <<<"$out"; then passed=$((passed + 1)); return;
    fi
    failed=$((failed + 1))
    echo "FAIL $name: expected exit $code with '$text', found exit $got: $out"
}

golden=tests/golden/bundles
# The programs over toy models compare themselves with plain decoding.
check minimal 0 "with a list of 500 of 2000 tokens" "$bin/minimal"
check minimal-zstd 0 "with a list of 8 of 2000 tokens" "$bin/minimal" $golden/v1.0-zstd.specb
check minimal-raw 0 "with a list of 8 of 2000 tokens" "$bin/minimal" $golden/v1.0-raw.specb
check minimal-missing 1 "absent.specb: No such file" "$bin/minimal" absent.specb
check minimal-damaged 1 "overlaps" "$bin/minimal" tests/golden-errors/bundles/overlap.23.specb
check microspec 0 "moved session  accept length 3" "$bin/microspec"
check block-drafter 0 "accept length 2" "$bin/block_drafter"
check batch 0 "4 sequences use 2048 rows" "$bin/batch"
# The loops write what plain decoding writes: the same under every policy, through either API.
sample=data/sample
target=$sample/target.gguf draft=$sample/draft.safetensors small=$sample/draft-small.gguf
text="The patient has a fever and"
"$bin/own_loop" $target $draft full "$text" | head -n -1 >"$work/full"
"$bin/own_loop" $target $draft microspec "$text" | head -n -1 >"$work/window"
"$bin/host_loop" $target $small microspec "$text" | head -n -1 >"$work/host"
n=$(wc -c <"$work/full")
[ "$(wc -c <"$work/window")" -lt "$n" ] && n=$(wc -c <"$work/window")
n=$((n - 1)) # without the line feed that ends an answer
check own-loop 0 "" cmp -n $n "$work/full" "$work/window"
check host-loop 0 "" cmp -n $n "$work/full" "$work/host"
# A prompt of several batches; lists and successors of a bundle.
corpus="--tokenizer $target --corpus data/prompts --field prompt -q"
"$bin/vocabtrim-calibrate" $corpus --size 2000 --holdout 0 -o "$work/lists.specb" &&
    "$bin/cograph-build" $corpus --successor-count 1 -o "$work/lists.specb" ||
        failed=$((failed + 1))
long="$text $(printf 'On day %s the fever rose and the patient slept badly. ' 1 2 3 4 5 6 7 8 9)"
answer() { "$bin/own_loop" $target $draft "$1" "$long" "${@:2}" | head -n -1 | head -c 200; }
answer full >"$work/full"
check own-loop-long 0 "" test "$(wc -c <"$work/full")" = 200
for policy in microspec static:500+successor:200 static:100+window:100@min=0+retrieve:64; do
    answer $policy "$work/lists.specb" >"$work/other"
    check "own-loop $policy" 0 "" cmp "$work/full" "$work/other"
done
check own-loop-bundle 1 "found another (sha256" "$bin/own_loop" $target $draft full "$text" \
    $golden/v1.0-raw.specb
check own-loop-section 1 "cluster-build" "$bin/own_loop" $target $draft dynaspec "$text" \
    "$work/lists.specb"
check own-loop-drafter 1 "expected an EAGLE-2 head" "$bin/own_loop" $target $small full "$text"
check own-loop-empty 1 "TEXT: it is empty" "$bin/own_loop" $target $draft full ""
check own-loop-context 1 "fills the context" "$bin/own_loop" $target $draft full \
    "$(yes "$text" | head -n 2000)"
check own-loop-policy 1 "policy 'nothing'" "$bin/own_loop" $target $draft nothing "$text"
check host-loop-missing 1 "none.gguf: cannot open: No such file" "$bin/host_loop" $target \
    none.gguf full "$text"
echo "examples: $passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
