# Every format that needs no model, default names, and requests that cannot be met.
. "$CLI_TESTS/lib.bash"
golden=$CLI_TESTS/../golden/bundles/v1.0-raw.specb
cp "$golden" a.specb
for pair in sglang-pt:freq_8.pt vllm-json:draft_token_map_8.json text:draft_vocab_8.txt \
    npy:vocab_mapping_8 speculators:vocab_mapping_8 token-freq:token_freq_8.pt \
    eagle3-pt:vocab_mapping_8.pt safetensors:d2t_8.safetensors; do
    accepts specrt-bundle export a.specb --format "${pair%%:*}"
    prints "${pair##*:}"
    warns "specrt-bundle: ${pair##*:}: 8 ids of 20, format ${pair%%:*}"
    [ -e "${pair##*:}" ] || fail "no ${pair##*:}"
    refuses 2 "*${pair##*:}*: exists; *" specrt-bundle export a.specb --format "${pair%%:*}"
done
head -c 2 freq_8.pt | grep -q PK || fail "freq_8.pt is no zip archive"
same vocab_mapping_8/d2t.npy vocab_mapping_8/d2t-8.npy
same vocab_mapping_8/t2d.npy vocab_mapping_8/t2d-8.npy
[ "$(wc -l <draft_vocab_8.txt)" = 8 ] || fail "not 8 ids"
[ "$(head -n 2 draft_vocab_8.txt | tr '\n' ' ')" = "3 10 " ] || fail "forced ids do not come first"
[ "$(tr -d '[] ' <draft_token_map_8.json | tr , '\n')" = "$(sort -n draft_vocab_8.txt)" ] ||
    fail "vllm-json is not the same ids, ascending"
cmp -s <(head -c 100 vocab_mapping_8/t2d.npy | tr -d '\0') /dev/null && fail "empty t2d.npy"

accepts specrt-bundle export a.specb --format text --size 19 -o - --quiet
[ "$(xargs <../out)" = "3 10 17 4 11 18 5 12 19 6 13 0 7 14 1 8 15 2 9" ] || fail "$(cat ../out)"
accepts specrt-bundle export a.specb --format text --size 5 -o five.txt --json
has file=five.txt format=text n_ids=5 n_vocab=20
accepts specrt-bundle export a.specb --format npy --n-vocab 64 -o wide
[ "$(wc -c <wide/t2d.npy)" = 192 ] || fail "t2d of --n-vocab 64 has $(wc -c <wide/t2d.npy) bytes"

refuses 2 "*expected --format, one of sglang-pt, vllm-json, text, npy, speculators, token-freq, \
eagle3-pt, safetensors, gguf, mtplx, exllamav3" specrt-bundle export a.specb
refuses 2 "*unknown format 'onnx'; expected one of sglang-pt, *exllamav3" specrt-bundle export \
    a.specb --format onnx -o x
refuses 2 "*size 1: expected at least 2 (the forced ids) and at most 19 (the valid ids)" \
    specrt-bundle export a.specb --format text --size 1 -o x
refuses 2 "*size 20: *" specrt-bundle export a.specb --format text --size 20 -o x
refuses 2 "*--size: expected a whole number*" specrt-bundle export a.specb --format text --size 0 \
    -o x
refuses 2 "*format gguf: expected the drafter to rewrite (--drafter FILE.gguf)" specrt-bundle \
    export a.specb --format gguf -o x
refuses 2 "*--drafter goes with --format gguf, or with --for" specrt-bundle export a.specb \
    --format text --drafter d.gguf -o x
refuses 2 "*--head goes with --format safetensors" specrt-bundle export a.specb --format text \
    --head d.gguf -o x
refuses 1 "*: none.gguf: *" specrt-bundle export a.specb --format gguf --drafter none.gguf -o x
refuses 3 "*: five.txt: not a model; expected GGUF, safetensors or *" specrt-bundle export a.specb \
    --format gguf --drafter five.txt -o x
refuses 3 "*id 19 is out of range; expected [[]0, 19)" specrt-bundle export a.specb --format text \
    --size 19 --n-vocab 19 -o x
refuses 3 "*has no section 'ranks'; vocabtrim-calibrate builds it" specrt-bundle export \
    "$CLI_TESTS/extra.specb" --format text -o x
for format in sglang-pt vllm-json text eagle3-pt safetensors; do
    refuses 1 "*: /dev/full: *" specrt-bundle export a.specb --format $format -o /dev/full
done
refuses 2 "*x.npy: npy writes d2t.npy and t2d.npy into a folder; expected a name without .npy" \
    specrt-bundle export a.specb --format npy -o x.npy
refuses 2 "*five.txt: is a file; npy writes d2t.npy and t2d.npy into a folder" specrt-bundle \
    export a.specb --format npy -o five.txt -f
refuses 2 "*: x/x/*...: expected a shorter path" specrt-bundle export a.specb --format npy \
    -o "$(printf 'x/%.0s' {1..2050})"
