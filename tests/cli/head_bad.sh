# Every tool that reads a head refuses an empty one; every builder one with numbers that no head
# has, by its file, tensor and row.
. "$CLI_TESTS/lib.bash"
ids a.bin 5 6 7
head_file model.safetensors 300
calibrate() {
    vocabtrim-calibrate --tokenizer none --n-vocab 300 --corpus a.bin --id-bytes 2 --keep 1 "$@"
}
cluster() { cluster-build --clusters 4 "$@"; }
sketch() { sketch-build --min-recall 0 "$@"; }
hnsw() { hnsw-build --m 4 --ef-construction 16 --min-recall 0 "$@"; }

# No rows.
head_file empty.safetensors 0
empty='*: empty.safetensors: tensor "lm_head.weight": expected a matrix, found 2 dimensions of 0 '
empty+='rows, 8 columns'
accepts calibrate --model model.safetensors -o ranks.specb
accepts specrt-eval record --target "$sample/target.gguf" --draft "$sample/draft.safetensors" \
    --prompt "A text" --max-tokens 4 -q -o a.trace
refuses 3 "$empty" calibrate --model empty.safetensors -o x.specb
for tool in cluster sketch hnsw; do
    refuses 3 "$empty" $tool --model empty.safetensors -o x.specb
done
refuses 3 "$empty" specrt-bundle verify ranks.specb --model empty.safetensors
printf '0\n1\n2\n' >map.txt
refuses 3 "$empty" specrt-bundle import map.txt --values absolute --size 6 \
    --tokenizer "$TOKENIZER" --model empty.safetensors -o x.specb
refuses 3 "$empty" specrt-eval replay --trace a.trace \
    --model empty.safetensors --policy full

# weight ROW BYTES FILE : the head again, with other bytes for a bf16 of a row.
weight() {
    cp model.safetensors "$3"
    printf '%b' "$2" | dd of="$3" bs=1 conv=notrunc status=none \
        seek=$(($(stat -c %s model.safetensors) - (300 - $1) * 16 + 6))
}
weight 17 '\xc0\x7f' nan.safetensors
weight 299 '\x80\xff' infinite.safetensors
weight 17 '\xf0\x7c' great.safetensors
for tool in cluster sketch hnsw; do
    refuses 3 \
        '*: nan.safetensors: "lm_head.weight": row 17: expected a finite weight of 65504 at most, found nan' \
        $tool --model nan.safetensors -o x.specb
    refuses 3 '*: infinite.safetensors: "lm_head.weight": row 299: *-inf' \
        $tool --model infinite.safetensors -o x.specb
    refuses 3 '*: great.safetensors: "lm_head.weight": row 17: *9.96921e+36' \
        $tool --model great.safetensors -o x.specb
done

# The greatest that is let through ends in a bundle that can be read.
weight 17 '\x7f\x47' most.safetensors
for tool in cluster sketch hnsw; do
    accepts $tool --model most.safetensors -o most.$tool
    case $tool in
    cluster) figures="4 clusters of 75 to 75*0.4934 after 19 iterations (0.4970 before *" ;;
    sketch) figures="512 synthetic states*      37   0.9920   0.9928   0.9992   0.9998*" ;;
    hnsw) figures="0.998 by products, 0.406 by distances*      16       0.922 *chosen*" ;;
    esac
    prints "*$figures"
    accepts specrt-bundle verify most.$tool --model most.safetensors
    prints "most.$tool: ok, 3 sections; model matches"
done
