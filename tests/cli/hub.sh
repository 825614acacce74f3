# What people have of a model in a form that is not read: a name on the hub, pointers of Git LFS,
# pickles. One line says the cause and the command.
. "$CLI_TESTS/lib.bash"
cp "$CLI_TESTS/../golden/bundles/v1.0-raw.specb" a.specb
mkdir here t d
echo "Hello" >text.txt
cut() { vocabtrim-calibrate --tokenizer "$1" --corpus text.txt -o x.specb; }
hub="*: meta-llama/Llama-3.1-8B: cannot open: No such file or directory; if this is a name on the \
Hugging Face hub, download it and give the folder: hf download meta-llama/Llama-3.1-8B --local-dir \
Llama-3.1-8B"
refuses 1 "$hub" cut meta-llama/Llama-3.1-8B
refuses 1 "$hub" specrt-bundle check meta-llama/Llama-3.1-8B
refuses 1 "$hub" specrt-bundle export a.specb --drafter meta-llama/Llama-3.1-8B --for vllm -o x
refuses 1 "$hub" cluster-build --model meta-llama/Llama-3.1-8B --clusters 2 -o x.specb
# A path is none: of a folder that is there, of a file, absolute, or deeper.
for path in here/model models/model.gguf ./a/b /no/model a/b/c model; do
    refuses 1 "*: $path: cannot open: No such file or directory" cut $path
done

pointer() { printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n' >"$1"; }
lfs="expected a file, found a Git LFS pointer to it; run git lfs pull in its repository"
pointer t/tokenizer.json
refuses 1 "*t/tokenizer.json: $lfs" cut t
pointer d/model.safetensors
echo '{"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": 20}' >d/config.json
refuses 1 "*d/model.safetensors: $lfs" specrt-bundle check d
pointer d/config.json
head_file d/model.safetensors 20
refuses 1 "*d/config.json: $lfs" specrt-bundle check d

rm d/model.safetensors
echo weights >d/pytorch_model.bin
refuses 3 "*d: expected safetensors, found pytorch_model\*.bin alone; *python3 -c *" \
    specrt-bundle check d
mv d/pytorch_model.bin d/pytorch_model-00001-of-00002.bin
refuses 3 "*: d: *pytorch_model\*.bin*" specrt-bundle export a.specb --drafter d \
    --for vllm -o x
