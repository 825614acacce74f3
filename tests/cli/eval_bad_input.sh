# Models, drafters, bundles and prompts that do not fit: one line each, and nothing else happens.
. "$CLI_TESTS/lib.bash"
decode() { specrt-eval decode --target "$target" --max-tokens 4 "$@"; }
drafted() { decode --draft "$draft" "$@"; }

# files that are missing, or something else
refuses 1 "*: nosuch.gguf: *" specrt-eval decode --target nosuch.gguf \
    --prompt x
refuses 3 "*lib.bash: not a model; expected GGUF, safetensors or the index.json of sharded \
safetensors" specrt-eval decode --target "$CLI_TESTS/lib.bash" --prompt x
refuses 1 "*: nosuch: *" decode --draft nosuch --prompt x
refuses 3 "*lib.bash: not a model; *" decode --draft "$CLI_TESTS/lib.bash" --prompt x
refuses 1 "*: nosuch.specb: No such file or directory" drafted --bundle nosuch.specb --prompt x
refuses 1 "*: nosuch.jsonl: *" decode --prompts nosuch.jsonl
refuses 2 "*--chat-template: expected llama3, chatml, vicuna, gemma, none or a JSON file, found \
'nosuch'" decode --chat-template nosuch --prompt x

# what does not belong together
refuses 3 "*v1.0-zstd.specb: tokenizer: *'golden'*" drafted --prompt x \
    --bundle "$CLI_TESTS/../golden/bundles/v1.0-zstd.specb"
mkdir narrow
cp "$draft" narrow
sed 's/"hidden_size": *[0-9]*/"hidden_size": 128/' "${draft%/*}/config.json" >narrow/config.json
refuses 3 "*narrow/config.json: hidden_size: expected the target's 256, found 128; use the drafter \
trained for this model" decode --draft narrow/draft.safetensors --prompt x
sed 's/"vocab_size": *[0-9]*/"vocab_size": 128256/' "${draft%/*}/config.json" >narrow/config.json
refuses 3 "*narrow/config.json: vocab_size: expected the target's 32768, found 128256; *" \
    decode --draft narrow/draft.safetensors --prompt x
echo '{"hidden_size": ' >narrow/config.json
refuses 3 "*narrow/config.json: expected a JSON object" decode --draft narrow/draft.safetensors \
    --prompt x
rm -r narrow

# damaged weights
mkdir nan
cp "$target" nan/target.gguf
chmod u+w nan/target.gguf
nans() { head -c 65536 /dev/zero | tr '\0' '\377'; }
nans | dd of=nan/target.gguf bs=1M seek=11 conv=notrunc 2>/dev/null
refuses 3 "*target: its answer to the prompt is not finite; its weights are damaged" specrt-eval \
    decode --target nan/target.gguf --prompt x
cp "$draft" "${draft%/*}/config.json" nan
chmod u+w nan/draft.safetensors
nans | dd of=nan/draft.safetensors bs=1K seek=600 conv=notrunc 2>/dev/null
refuses 3 "*drafter: *not finite; *" decode \
    --draft nan/draft.safetensors --prompt x
head -c 1000000 "$target" >cut.gguf
refuses 3 "*cut.gguf: *" specrt-eval decode --target cut.gguf --prompt x
rm -r nan cut.gguf

# policies and trees
refuses 3 "*: policy 'static': static: needs a bundle with section 'ranks' (in C and Python, a \
list in \`ids\` will do); vocabtrim-calibrate builds it" drafted --policy static --prompt x
refuses 3 "*: policy 'static:9+window': *'ranks'*" specrt-eval compare --prompt x \
    --target "$target" --draft "$draft" --policy full,static:9+window,microspec
refuses 2 "*topk: expected at most the 18 rows of policy 'window:16@min=4', found 20" \
    drafted --policy window:16@min=4 --topk 20 --prompt x
refuses 2 "*tree: expected topk \* (num_steps - 1) of at most 256, found 1984" drafted --topk 64 \
    --num-steps 32 --prompt x
refuses 2 "*--policy: expected one, found more; compare takes several" drafted --policy full \
    --policy microspec --prompt x
refuses 2 "*--policy: *" drafted --policy full,microspec --prompt x

# prompts
refuses 2 "*--prompt: expected TEXT, found ''" decode --prompt ""
for n in 1 0 -3; do # a prompt and what follows it take two positions
    refuses 2 "*--context: expected a whole number from 2 to 16777216, found '$n'" decode \
        --context $n --prompt x
done
refuses 2 "*--context: expected at least 113 positions, for a prompt, an answer of 48 tokens and a \
tree, found 112; lower --max-tokens" specrt-eval plan --target "$target" --draft "$draft" \
    --context 112 --prompt x
refuses 3 "*prompt: expected 1 to 1 tokens, found 13" decode --context 2 --prompt "a b c"
refuses 3 "*prompt: *9 *20" decode --context 10 \
    --prompt "a b c d e f g h i j"
echo '{"prompt_ids":[1,32768]}' >ids.jsonl
refuses 3 "*prompt: token 1: expected 0 to 32767, found 32768" decode --prompts ids.jsonl
printf '{"prompt":"a"}\n\n{"answer":"b"}\n' >other.jsonl
refuses 3 "*other.jsonl:3: expected an object with a text under prompt, question, instruction, \
text, turns or messages, or prompt_ids" decode --prompts other.jsonl
printf '{"prompt":""}\n{"turns":[]}\n' >empty.jsonl
refuses 3 "*empty.jsonl: expected one prompt per line, found empty lines only" decode \
    --prompts empty.jsonl --prompt a
echo '{"prompt":"a"' >cut.jsonl
refuses 3 "*cut.jsonl:1: expected JSON: it ends too early; a prompt is *" decode --prompts cut.jsonl
: >none.jsonl
refuses 3 "*none.jsonl: expected one prompt per line, found none" decode --prompts none.jsonl
refuses 3 "*prompt: token 1: *32768" specrt-eval record \
    --target "$target" --draft "$draft" --prompts ids.jsonl -o x.trace
refuses 3 "*prompt: *9 *20" specrt-eval record --target "$target" \
    --draft "$draft" --context 10 --prompt "a b c d e f g h i j" -o x.trace
refuses 3 "*prompt: *9 *" specrt-eval compare --target "$target" \
    --draft "$draft" --context 10 --prompt "a b c d e f g h i j"
refuses 3 "*--prompt: prompt: *9 *20" specrt-eval generate --target "$target" \
    --context 10 --prompt "a b c d e f g h i j" -o x.jsonl
printf '{"prompt":"%s"}\n' "" "a b c d e f g h i j" "k l m n o p q r s t" >long.jsonl
long=(--target "$target" --context 10 --prompts long.jsonl)
none="*no prompt could be decoded: 3 prompts were passed over: 1 empty, first long.jsonl:1; 2 \
unfit, first long.jsonl:2: prompt: *"
refuses 3 "$none" specrt-eval decode "${long[@]}" --json
refuses 3 "$none" specrt-eval generate "${long[@]}" -o x.jsonl
refuses 3 "$none" specrt-eval record "${long[@]}" --draft "$draft" -o x.trace
refuses 3 "$none" specrt-eval compare "${long[@]}" --draft "$draft"
refuses 3 "$none 1 to 6 tokens, so that its answer and a tree fit the context of 118, found 20" \
    specrt-eval plan "${long[@]}" --draft "$draft" --context 118

# bundles: one of another head, one of another vocabulary, one whose graph is damaged
head_file model.safetensors 300
accepts hnsw-build --model model.safetensors --m 4 --ef-construction 16 --min-recall 0 \
    -o index.specb
refuses 3 "*index.specb: head: expected 'lm_head.weight' [[]300, 8], found [[]32768, 256]; use the \
bundle made for this model: sketch, cluster and centroid are of the drafter's head" drafted \
    --bundle index.specb --policy retrieve:8@sem=hnsw_h@graph=off --prompt x
ids pairs.bin 1 2 1 2
accepts cograph-build --tokenizer none --id-bytes 2 --n-vocab 40000 --corpus pairs.bin \
    --successor-count 1 -o graph.specb
refuses 3 "*graph.specb: head: expected at least the 40000 rows of tokenizer 'ids', found 32768" \
    drafted --bundle graph.specb --policy successor --prompt x
refuses 3 "*policy 'successor': *damaged.specb: section 'cograph': ids: *" \
    drafted --bundle "$CLI_TESTS/damaged.specb" --policy successor --prompt x
refuses 3 "*index.specb: head: *" \
    drafted --bundle index.specb --policy dynaspec --prompt x
