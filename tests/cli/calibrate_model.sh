# --model: the head is checked against the vocabulary, sizes a budget, and gives
# the parameters of the estimate.
. "$CLI_TESTS/lib.bash"
# safetensors FILE ROWS : a model with a head of ROWS x 4 f32, an embedding
# of the same shape and one layer.
safetensors() {
    local rows=$2 n header i
    n=$((rows * 16))
    header="{\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[$rows,4],\"data_offsets\":[0,$n]}"
    header+=",\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[$rows,4],"
    header+="\"data_offsets\":[$n,$((2 * n))]}"
    header+=",\"model.layers.0.mlp.weight\":{\"dtype\":\"F32\",\"shape\":[10,10],"
    header+="\"data_offsets\":[$((2 * n)),$((2 * n + 400))]}}"
    while [ $((${#header} % 8)) != 0 ]; do header+=" "; done
    {
        printf \
            "\\x$(printf %02x $((${#header} & 255)))\\x$(printf %02x $((${#header} >> 8)))\\0\\0\\0\\0\\0\\0%s" \
            "$header"
        for ((i = 0; i < rows * 8 + 100; i++)); do
            printf "\\x$(printf %02x $((i * 37 % 256)))\\x12\\x80\\x3f"; done
    } >"$1"
}
safetensors model.safetensors 16
safetensors small.safetensors 11
ids a.bin 5 5 5 3 3 9 9 2 7 5
run() { vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 --corpus a.bin \
    --holdout 0 "$@"; }

# More rows than ids is padding; fewer is another model.
accepts run --model model.safetensors --size 4 -o x.specb
refuses 3 \
    "*: small.safetensors: lm_head.weight has 11 rows; expected at least 12, the vocabulary of ids" \
    run --model small.safetensors --size 4 -o y.specb
refuses 1 "*: nowhere.gguf: *" run --model nowhere.gguf --size 4 -o y.specb
head -c 100 model.safetensors >cut.safetensors
refuses 3 "*: cut.safetensors: truncated in the header; expected 248 bytes of it, found 92" run \
    --model cut.safetensors --size 4 -o y.specb
refuses 2 "*: model.safetensors: tensor \"nothing\": missing; it has lm_head.weight, \
model.embed_tokens.weight, model.layers.0.mlp.weight" run --model model.safetensors \
    --tensor nothing --size 4 -o y.specb
# The bundle now belongs to this head.
accepts run --model model.safetensors --size 5 -o x.specb -f

# Rows of 16 bytes: 6 fit 0.0000916 MiB, and 0 fit less than forced.
accepts run --model model.safetensors --budget-mib 0.000096 --export text=list.txt
[ "$(wc -l <list.txt)" = 6 ] || fail "the budget gives $(wc -l <list.txt) ids"
refuses 2 "*--budget-mib 1e-05 fits 0 rows of 16 bytes; expected 1 *" run \
    --model model.safetensors --budget-mib 0.00001 -o y.specb

# EAGLE for it: 2 x 16 x 4 rows, a layer of 100, a projection of 2 x 4 x 4 =
# 260; target 128 + 100 = 228.
accepts run --model model.safetensors --size 4 --accept-rate 0.5,0.5 --json
has speed.target_params=228 speed.draft_params=260 speed.d_draft=4 speed.gamma=2 \
    'speed.params_source=an EAGLE drafter*'
accepts run --model model.safetensors --size 4 --accept-rate 0.5,0.5 --draft-params 100 --json
has speed.target_params=228 speed.draft_params=100 speed.d_draft=4 'speed.params_source=as given' \
    'sweep[size=12].c=0.3684' 'sweep[size=12].mbsu=1.0076'
# c at 4 ids is (260 - 12 * 4) / 228, tau is 1 + 0.5 x 8/9 + (0.5 x 8/9)^2.
accepts run --model model.safetensors --size 4 --accept-rate 0.5,0.5 --json
has 'sweep[].size=4 12' 'sweep[].coverage_calibration=0.8889 1' \
    'sweep[].coverage_holdout=null null' 'sweep[].tau=1.642 1.75' 'sweep[].c=0.9298 1.0702' \
    'sweep[].mbsu=0.5742 0.5573'
