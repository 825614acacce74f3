# The help; flags that do not go together, or make no sense, are usage errors of one line.
. "$CLI_TESTS/lib.bash"
ids a.bin 5 5 5 3 3 9
echo hello >a.txt
run() { vocabtrim-calibrate "$@"; }
none() { vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep "${keep-1}" \
    --corpus a.bin "$@"; }
refuses 2 "*expected --corpus PATH, or --merge FILE with count files" run
refuses 2 "*: expected --corpus *" run -o x.specb
refuses 2 "*--corpus: expected --tokenizer T with it (none for files of token ids)" run \
    --corpus a.txt -o x.specb
refuses 2 "*--tokenizer: expected one T, found 'a' and 'b'*" run --tokenizer a --tokenizer b
refuses 2 "*--exclude: expected one PATH, found 'a' and 'b'*" run --exclude a --exclude b
refuses 2 "*none: expected --n-vocab N with it" run --tokenizer none --corpus a.bin -o x.specb
refuses 2 "*--n-vocab goes with --tokenizer none" run --tokenizer t.json --n-vocab 9 \
    --corpus a.txt -o x.specb
refuses 2 "*nothing to write; give -o, --counts-out, --export, --report or --json" none
refuses 2 "*unknown option '--sise'" none --sise 4 -o x.specb
refuses 2 "*unexpected argument 'stray'" none -o x.specb stray
refuses 2 "*--messages: expected assistant or all, found 'user'" none --messages user -o x.specb
refuses 2 "*--provenance: expected raw, target or draft, found 'me'" none --provenance me -o x.specb
refuses 2 "*--id-bytes: expected 2 or 4, found 3" none --id-bytes 3 -o x.specb
refuses 2 "*--holdout: expected a number from 0 to 0.5, found '1'" none --holdout 1 -o x.specb
refuses 2 "*--holdout: expected 0, or 0.05 to 0.5, found 0.04" none --holdout 0.04 -o x.specb
refuses 2 "*--format: expected auto, text or json, found 'csv'" none --format csv -o x.specb
keep=3,12 refuses 2 "*--keep: expected ids below 12 as in 5,7-9, found '12'" none -o x.specb
keep=keep.txt refuses 1 "*keep.txt: cannot open: No such file*" none -o x.specb
refuses 2 "*--weights: 'b.bin' is no --corpus argument and no domain" none --weights b.bin:2 \
    -o x.specb
for weight in :x : :1x :-1 :2e6 ""; do
    refuses 2 "*--weights: expected FILE:W with W from 0 to 1e6, found 'a.bin$weight'" none \
        --weights "a.bin$weight" -o x.specb
done
refuses 2 "*--weights: at least one must be above 0" none --weights a.bin:0 -o x.specb
refuses 2 "*--accept-rate: expected up to 64 shares from 0 to 1 as in 0.8,0.7, found '1.2'" none \
    --accept-rate 0.8,1.2 -o x.specb
refuses 2 "*--accept-rate: *found ''" none --accept-rate 0.8, -o x.specb
for flags in "--target-params 1e9" "--draft-params 9" "--d-draft 2"; do
    refuses 2 "*--target-params, --draft-params and --d-draft go with --accept-rate" none $flags \
        -o x.specb
    refuses 2 "*without --model give all of *" none --accept-rate 0.5 $flags -o x.specb
done
refuses 2 "*without --model give all of --target-params, --draft-params, --d-draft" none \
    --accept-rate 0.5 --target-params 1e9 --d-draft 4 -o x.specb
refuses 2 "*--draft-params 10: fewer than the 48 of its full head; expected all parameters of the \
drafter" none --accept-rate 0.5 --target-params 1e3 --draft-params 10 --d-draft 4 -o x.specb
refuses 2 "*--tensor goes with --model" none --tensor head -o x.specb
for export in text text= =list; do
    refuses 2 "*--export: expected FORMAT=FILE, found '$export'" none --export $export
done
refuses 2 "*--domain: a name without tabs and line ends is expected" none --domain $'a\tb' \
    -o x.specb
refuses 2 "*expected at most one output on stdout, found more; name a file for each other one" \
    none --json -o -
refuses 2 "*on stdout*" none --counts-out - --report /dev/stdout
for shard in 3/3 -1/3 1 a/b 1/2x 1/0; do
    refuses 2 "*--shard: expected I/N with 0 <= I < N, found '$shard'" none --shard "$shard" \
        --counts-out c
done
for flags in "--holdout 0.1" "--messages all" "--field x" "--provenance raw" --by-language; do
    refuses 2 "*--messages, --field, --format, --provenance, --by-language and --holdout are fixed \
in count files; give them where the corpus is counted" run --merge c $flags -o x.specb
done
refuses 2 "*--corpus - and --merge -: expected one of them, since both read stdin" run \
    --tokenizer none --n-vocab 9 --corpus - --merge - -o x.specb
tells vocabtrim-calibrate --help
accepts vocabtrim-calibrate --version
prints "vocabtrim-calibrate 1.*"
