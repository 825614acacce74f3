#!/usr/bin/env bash
# examples.sh BIN_DIR : runs the examples; closes with "N passed, N failed, N skipped".
set -u
bin=$1 passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() { # name, expected exit, expected text, command...
    local name=$1 code=$2 text=$3 out got; shift 3
    out=$("$@" 2>&1); got=$?
    if [ "$got" = "$code" ] && grep -qF -- "$text" <<<"$out"; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAIL $name: expected exit $code with '$text', found exit $got: $out"
}

golden=tests/golden/bundles
check minimal-zstd 0 "the best of 8 tokens (of 20)" "$bin/minimal" $golden/v1.0-zstd.specb
check minimal-raw 0 "the best of 8 tokens (of 20)" "$bin/minimal" $golden/v1.0-raw.specb
check minimal-usage 1 "usage:" "$bin/minimal"
check minimal-missing 1 "absent.specb: No such file" "$bin/minimal" absent.specb
check minimal-damaged 1 "overlaps" "$bin/minimal" tests/golden-errors/bundles/overlap.23.specb
# A head of the right size that is not the bundle's; a file of another size.
head -c $((20 * 64 * 2)) /dev/zero >"$work/rows.f16"
check minimal-other-head 1 "expected the weights of 'golden head'" \
    "$bin/minimal" $golden/v1.0-raw.specb --head "$work/rows.f16" 20 64
check minimal-short-head 1 "halves" "$bin/minimal" $golden/v1.0-raw.specb --head "$work/rows.f16" 21 64
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
check own-loop-policy 1 "policy 'nothing'" "$bin/own_loop" $target $draft nothing "$text"
check host-loop-missing 1 "none.gguf: cannot open: No such file" "$bin/host_loop" $target none.gguf full "$text"
echo "examples: $passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
