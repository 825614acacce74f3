# What is drafted: a chain of 3 unless --tree or --topk asks for a tree. `record` drafts the tree
# unless --topk 1 asks for a chain. Options that contradict each other are refused. Tokens are plain
# decoding's.
. "$CLI_TESTS/lib.bash"
few=(--prompt "Tell me of heat." --max-tokens "$(most 16 8)" -q)
decode() { specrt-eval decode "${pair[@]}" "${few[@]}" "$@"; }
accepts specrt-eval decode "${pair[@]:0:2}" "${few[@]}"
cp ../out plain

# drafts_as FLAGS FLAGS : both decode alike, cycle by cycle.
cycles() {
    accepts decode --json $1
    json ../out n_cycles accept_length coverage | xargs
}
drafts_as() {
    local found expected
    found=$(cycles "$1") expected=$(cycles "$2")
    [ "$found" = "$expected" ] || fail "'$1': expected $expected as with '$2', found $found"
}
chain="--topk 1 --num-steps 3 --num-draft-tokens 4"
drafts_as "" "$chain"
drafts_as "--num-draft-tokens 3" "--topk 1 --num-steps 2"
is_quick || drafts_as "--num-steps 5" "--topk 1 --num-steps 5 --num-draft-tokens 6"
is_quick || drafts_as "--topk 1" "$chain"
sampled="--sampled-drafts --temperature 0.8"
drafts_as "$sampled" "$sampled $chain"
published="--num-steps 6 --topk 10 --num-draft-tokens 60"
drafts_as --tree "$published"
drafts_as "--tree --topk 4 --num-draft-tokens 9" "--topk 4 --num-steps 6 --num-draft-tokens 9"
is_quick || drafts_as "--tree --num-steps 2" "--topk 10 --num-steps 2 --num-draft-tokens 60"
is_quick || drafts_as "--topk 4" "--topk 4 --num-steps 6 --num-draft-tokens 60"
[ "$(cycles "")" != "$(cycles "$published")" ] || fail "a chain and a tree draft alike"
for flags in "" --tree "--topk 4"; do
    accepts decode $flags
    same plain ../out
done

for verb in decode compare "record -o x.trace"; do
    refuses 2 "*: --tree: expected no --topk 1, which drafts a chain; drop one of them" \
        specrt-eval $verb "${pair[@]}" "${few[@]}" --tree --topk 1
    refuses 2 "*: --tree: *--sampled-drafts*" \
        specrt-eval $verb "${pair[@]}" "${few[@]}" --tree --sampled-drafts --temperature 1
done
refuses 2 "*: --num-draft-tokens: expected at most 4, the nodes of a chain of --num-steps 3, \
found 32; a tree needs --tree or --topk above 1" decode --num-draft-tokens 32
refuses 2 "*: --num-draft-tokens: expected at most 3, *" decode --topk 1 --num-steps 2 \
    --num-draft-tokens 4
refuses 2 "*: tree: expected topk \* (num_steps - 1) of at most 256, found 320" decode --topk 64

# A trace answers for trees within its own; replay has a --tree of another kind.
record() { accepts specrt-eval record "${pair[@]}" "${few[@]}" -o "$@"; }
record default.trace
record tree.trace --tree
record published.trace $published
same tree.trace default.trace
same tree.trace published.trace
accepts specrt-eval replay --trace default.trace --policy full --tree 6/10/60
record chain.trace --topk 1
refuses 2 "*: tree 6/10/60: expected *" specrt-eval replay --trace chain.trace --policy full \
    --tree 6/10/60
accepts specrt-eval replay --trace chain.trace --policy full --tree 6/1/7

# Where nodes cost nothing, auto drafts as many tokens as it may, 6 or --num-steps. `full` drafts 3.
sealed flat.costs <<'LINES'
target 60 1e-2
draft 1 1e-9
first 1 1e-9
first 40000 1e-9
next 1 40000 1e-9
next 4 40000 1e-9
next 10 40000 1e-9
LINES
# lengths FLAGS... : accept lengths of full and of auto, which follow plain decoding's.
lengths() {
    accepts specrt-eval compare "${pair[@]}" --prompt "1, 2, 3, 1, 2, 3, 1, 2, 3," -q \
        --max-tokens "$(most 48 24)" --costs flat.costs --policy auto+full --json "$@"
    json ../out 'rows[domain=all].accept_length' | cut -d ' ' -f 2-
}
full=$(lengths | cut -d' ' -f1)
read -r three auto_three <<<"$(lengths --num-steps 3)"
read -r six auto_six <<<"$(lengths --num-steps 6)"
auto=$(lengths | cut -d' ' -f2)
[ "$full" = "$three" ] && [ "$three" != "$six" ] || fail "full: $full, of 3: $three, of 6: $six"
[ "$auto" = "$auto_six" ] && [ "$auto_three" != "$auto_six" ] ||
    fail "auto: $auto, of 3: $auto_three, of 6: $auto_six"
