# cluster-build --examples: routers trained on arrays of another program, as safetensors and as .npy
# files, for a head of its own vocabulary too.
. "$CLI_TESTS/lib.bash"

# bytes SIZE X... : little-endian numbers of SIZE bytes.
bytes() {
    local size=$1 x i text=
    shift
    for x; do
        for ((i = 0; i < size; i++)); do printf -v pair '\\x%02x' $((x >> 8 * i & 255)) &&
            text+=$pair; done
    done
    printf "$text"
}

# npy FILE DESCR SHAPE SIZE X... : an array as numpy.save writes it.
npy() {
    local file=$1 header="{'descr': '$2', 'fortran_order': False, 'shape': ($3), }"
    while [ $(((${#header} + 11) % 64)) != 0 ]; do header+=" "; done
    { printf '\x93NUMPY\x01\x00'; bytes 2 $((${#header} + 1)); printf '%s\n' "$header";
        bytes "${@:4}"; } >"$file"
}

# tensors FILE JSON DATA-FILE... : safetensors of that header and those bytes.
tensors() {
    local file=$1 header=$2
    while [ $((${#header} % 8)) != 0 ]; do header+=" "; done
    { bytes 8 ${#header}; printf %s "$header"; cat "${@:3}"; } >"$file"
}

# The best token is that of the only column that is 1: row 8 c + ..., of
# cluster c once the head is so made.
rows=64 n=192
hidden=() best=() documents=() head=()
for ((i = 0; i < rows; i++)); do
    for ((j = 0; j < 8; j++)); do
        head+=($((i % 8 == j ? 0x3f80 + i : 0x3d00 + (i * 7 + j) % 64))); done
done
for ((i = 0; i < n; i++)); do
    c=$((i * 5 % 8))
    for ((j = 0; j < 8; j++)); do hidden+=($((c == j ? 0x3c00 : 0x2c00 + i % 50))); done
    best+=($((c + 8 * (i % 8))) $((c + 8 * ((i + 3) % 8))))
    documents+=($((i / 6)))
done
bytes 2 "${head[@]}" >../head
tensors model.safetensors \
    '{"lm_head.weight":{"dtype":"BF16","shape":[64,8],"data_offsets":[0,1024]}}' ../head
mkdir arrays
npy arrays/hidden.npy '<f2' "$n, 8" 2 "${hidden[@]}"
npy arrays/top_ids.npy '<i8' "$n, 2" 8 "${best[@]}"
npy arrays/documents.npy '<i4' "$n," 4 "${documents[@]}"
bytes 2 "${hidden[@]}" >../hidden
bytes 4 "${best[@]}" >../best
bytes 4 "${documents[@]}" >../documents
tensors run.safetensors \
    "{\"hidden\":{\"dtype\":\"F16\",\"shape\":[$n,8],\"data_offsets\":[0,3072]},\
\"top_ids\":{\"dtype\":\"I32\",\"shape\":[$n,2],\"data_offsets\":[3072,4608]},\
\"documents\":{\"dtype\":\"I32\",\"shape\":[$n],\"data_offsets\":[4608,5376]}}" \
    ../hidden ../best ../documents

train() { cluster-build --model "$model" --router coral --clusters 8 --mean-rows 8 --epochs 40 \
    --rate 0.02 "$@"; }
model=model.safetensors
accepts train --examples arrays --json -o npy.specb
prints '{*"recall":1,*"recall_oracle":1,*"example_files":\["arrays"\]*"n_examples":192*}'
accepts train --examples run.safetensors --json -o st.specb
prints '{*"recall":1,*"example_files":\["run.safetensors"\]*}'
accepts specrt-bundle verify st.specb

# The same head with row i for token 3 (63 - i): EAGLE-3's d2t.
offsets=() best3=()
for ((i = 0; i < rows; i++)); do offsets+=($((189 - 4 * i))); done
for x in "${best[@]}"; do best3+=($((189 - 3 * x))); done
bytes 8 "${offsets[@]}" >../d2t
tensors eagle3.safetensors \
    '{"lm_head.weight":{"dtype":"BF16","shape":[64,8],"data_offsets":[0,1024]},
"d2t":{"dtype":"I64","shape":[64],"data_offsets":[1024,1536]}}' ../head ../d2t
npy arrays/top_ids.npy '<i8' "$n, 2" 8 "${best3[@]}"
model=eagle3.safetensors
accepts train --examples arrays --json -o eagle3.specb
prints '{*"n_rows":64,*"recall":1,*}'
accepts specrt-bundle verify eagle3.specb --model eagle3.safetensors
accepts specrt-bundle info eagle3.specb --json
prints '*"group":{*"n_members":64*'

# Bad input.
bytes 8 "${offsets[@]:0:63}" 9999999999 >../d2t
tensors bad.safetensors '{"lm_head.weight":{"dtype":"BF16","shape":[64,8],"data_offsets":[0,1024]},
"d2t":{"dtype":"I64","shape":[64],"data_offsets":[1024,1536]}}' ../head ../d2t
refuses 3 '*bad.safetensors: tensor "d2t": entry 63 leads outside *' \
    cluster-build --model bad.safetensors --clusters 2 -o x.specb
bytes 8 1 0 "${offsets[@]:2}" >../d2t
tensors bad.safetensors '{"lm_head.weight":{"dtype":"BF16","shape":[64,8],"data_offsets":[0,1024]},
"d2t":{"dtype":"I64","shape":[64],"data_offsets":[1024,1536]}}' ../head ../d2t
refuses 3 '*bad.safetensors: tensor "d2t": expected a token for each row, found token 1 twice' \
    cluster-build --model bad.safetensors --clusters 2 -o x.specb
model=model.safetensors
refuses 3 "*arrays: top_ids: row *: expected -1 to 63, found *" train --examples arrays -o x.specb
npy arrays/top_ids.npy '<i8' "2, 2" 8 1 2 3 4
refuses 3 "*arrays: top_ids: expected the 192 rows of hidden, found 2" train --examples arrays \
    -o x.specb
npy arrays/hidden.npy '<f2' "2, 8" 2 "${hidden[@]:0:16}"
npy arrays/documents.npy '<i8' "2," 8 1 2
refuses 3 "*training: expected 64 or more drafted positions of 2 or more prompts, found 2 of 2; *" \
    train --examples arrays -o x.specb
refuses 1 "*nowhere*" train --examples nowhere -o x.specb
refuses 2 "*--router dynaspec or coral*" cluster-build --model model.safetensors --examples arrays \
    -o x.specb
