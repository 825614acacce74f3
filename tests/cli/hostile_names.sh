# Names from files reach nobody's terminal as they are: escapes, other controls and what is no
# UTF-8 are shown as '?'; JSON is valid, pages are escaped.
. "$CLI_TESTS/lib.bash"
bad=$'x\e[31m\x9b\302\233\xff' # also a C1 control, bare and as UTF-8
shown='x[?][[]31m[?][?][?]' # as a pattern

# valid_json : the last command printed one object, which has no byte below 0x20 and is UTF-8.
valid_json() {
    shows_clean
    if command -v python3 >/dev/null; then
        python3 -c 'import json, sys; json.load(sys.stdin)' <../out || fail "$(cat ../out)"
    fi
}

# A tokenizer's name from a GGUF, of the same length as the one that is there.
LC_ALL=C sed "s/specrt sample target/specrt <b>$bad/" "$sample/target.gguf" >named.gguf
[ "$(wc -c <named.gguf)" = "$(wc -c <"$sample/target.gguf")" ] || fail "the name has another length"
ids raw.bin 5 6 7 8 9 5 6 7 5
mkdir "$bad" && cp raw.bin "$bad/one.bin" && cp raw.bin "$bad.bin"
calibrate() {
    accepts vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 300 --keep 3 --holdout 0 \
        --corpus "$bad" "$bad.bin" --size 8 -f "$@"
}
calibrate -o "$bad.specb" --report page.html
shows_clean ../out page.html
prints "* $shown *"
grep -qF 'x?[31m' page.html || fail "the page does not name the domain"
calibrate -o "$bad.specb" --json
valid_json
refuses 2 "*$shown.specb: *" vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 300 \
    --keep 3 --corpus raw.bin --size 8 -o "$bad.specb"
shows_clean
text=$CLI_TESTS/../../data/corpus
accepts vocabtrim-calibrate --tokenizer named.gguf --corpus "$text" --size 2048 -o named.specb \
    --report named.html
shows_clean ../out named.html
prints "specrt <b>$shown *: *"
grep -qF 'specrt &lt;b&gt;x?[31m' named.html || fail "the page does not name the tokenizer"
accepts cograph-build --tokenizer named.gguf --corpus "$text" -o named.specb
shows_clean
prints "specrt <b>$shown *: *"

# A tensor's name, in the header of a safetensors file as JSON escapes it.
name=$'head\e[2J\302\233\302\240'
head_file plain.safetensors 300
header=$(printf '{"head\\u001b[2J\\u009b\\u00a0":%s}' \
    '{"dtype":"BF16","shape":[300,8],"data_offsets":[0,4800]}')
while [ $((${#header} % 8)) != 0 ]; do header+=" "; done
{
    printf "\\x$(printf %02x ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header"
    tail -c 4800 plain.safetensors
} >model.safetensors
for build in "hnsw-build --m 4 --ef-construction 16" "sketch-build --signs 32"; do
    build+=" --model model.safetensors --min-recall 0 -o tensor.specb"
    accepts $build --tensor "$name"
    shows_clean
    prints "*head?[[]2J?*"
    accepts $build --tensor "$name" -f --json
    valid_json
done
accepts cluster-build --model model.safetensors --tensor "$name" --router centroid --clusters 4 \
    -o tensor.specb
shows_clean

for bundle in "$bad.specb" named.specb tensor.specb; do
    accepts specrt-bundle info "$bundle"
    shows_clean
    accepts specrt-bundle info "$bundle" --json
    valid_json
    accepts specrt-bundle verify "$bundle"
    shows_clean
done
accepts specrt-bundle info tensor.specb
prints "*head       head?[[]2J?*"
accepts specrt-bundle info named.specb
prints "*tokenizer  specrt <b>$shown *: *"
accepts specrt-bundle info "$bad.specb"
prints "$shown.specb: bundle, *"
accepts specrt-bundle export "$bad.specb" --format text -o "$bad.txt"
shows_clean
refuses 3 "specrt-bundle: $shown.txt: *" specrt-bundle info "$bad.txt"
shows_clean

# The domains of prompts, in tables, pages and recordings; prompts that are shown.
for domain in 'b\u001b[31m<i>\u009b' 'c\u0007\u0085'; do
    echo '{"prompt": "Write a Python\n\tfunction.\u001b[2J", "domain": "'"$domain"'"}'
done >prompts.jsonl
models=(--target named.gguf --draft "$sample/draft.safetensors" --prompts prompts.jsonl)
few=(--max-tokens 4 --num-steps 2 --topk 1)
accepts specrt-eval compare "${models[@]}" "${few[@]}" --policy window:16@min=8 \
    --report compare.html
shows_clean ../out compare.html
prints "* b?[[]31m<i>? *"
grep -qF 'b?[31m&lt;i&gt;?' compare.html || fail "the page does not name the domain"
accepts specrt-eval compare "${models[@]}" "${few[@]}" --policy window:16@min=8 --json
valid_json
accepts specrt-eval decode "${models[@]}" --max-tokens 4
prints "> Write a Python
*function.?[[]2J
*"
accepts specrt-eval record "${models[@]}" "${few[@]}" --policy microspec -o run.trace
shows_clean
accepts specrt-eval replay --trace run.trace --policy microspec
shows_clean
prints "* b?[[]31m<i>? *"
accepts specrt-eval replay --trace run.trace --policy microspec --json
valid_json
is_quick && exit 0
accepts specrt-eval plan "${models[@]}" --max-tokens 4 --policy microspec --num-steps 2 --topk 1 \
    --measure 1
shows_clean
