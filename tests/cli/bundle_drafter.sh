# A drafter with the head cut to the list, and the list read back from it.
. "$CLI_TESTS/lib.bash"
model=$(data weights/pair128k/target.gguf) || skip "$model"
echo 5 128000 9 7 300 128009 1000 77 78 79 >map.txt
accepts specrt-bundle import map.txt --values absolute --tokenizer "$model" --model "$model" \
    -o x.specb
accepts specrt-bundle verify x.specb --tokenizer "$model" --model "$model"
prints "*tokenizer matches; model matches"
accepts specrt-bundle export x.specb --format gguf --drafter "$model" -o small.gguf
warns "*warning: *llama.cpp reads d2t for eagle3 and dflash*"
accepts specrt-bundle import small.gguf --tokenizer "$model" -o y.specb
a=$(specrt-bundle export x.specb --format text -q -o -)
b=$(specrt-bundle export y.specb --format text -q -o -)
[ "$a" = "$b" ] || fail "the drafter's d2t is $b, expected $a"
refuses 3 "*its head is q8_0, which safetensors cannot hold*" \
    specrt-bundle export x.specb --format safetensors --head "$model" -o x.safetensors
refuses 1 "*/dev/full: cannot write*" specrt-bundle export x.specb --format gguf \
    --drafter "$model" -o /dev/full

# A drafter with room for every id, but of another tokenizer.
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus map.txt --holdout 0 --size 100 -q \
    -o z.specb
refuses 3 "*target.gguf: the model's own tokenizer is *; expected *" \
    specrt-bundle export z.specb --format gguf --drafter "$model" -o z.gguf
