# A served model's answers: every fault of a server is met by another try, no whole answer is lost,
# and a second run asks for what is missing.
. "$CLI_TESTS/lib.bash"
require python3
require curl
server=
trap '[ -z "$server" ] || kill $server' EXIT
serve() { # FAULT
    [ -z "$server" ] || { kill $server; wait $server 2>/dev/null; }
    rm -f port
    python3 "$CLI_TESTS/endpoint.py" port "$1" &
    server=$!
    for ((i = 0; i < 100; i++)); do [ -e port ] && break; sleep 0.1; done
    url=http://127.0.0.1:$(cat port)/v1
}
ask() { specrt ask --endpoint "$url" --prompts prompts.jsonl "$@"; }
for word in one two 'thr\"ee\\'; do
    printf '{"prompt": "%s?", "domain": "d"}\n' "$word"
done >prompts.jsonl

serve none
accepts ask -o plain.jsonl --json
prints '{"n_prompts":3,"n_answers":3,"model":"served-model"*}'
[ "$(grep -c '"output":"To .*served-model says:\\n\\"yes\\" \\\\ None"' plain.jsonl)" = 3 ] ||
    fail "$(cat plain.jsonl)"
accepts specrt ask --endpoint "$url/" --prompts prompts.jsonl -o slash.jsonl
same <(sort plain.jsonl) <(sort slash.jsonl)
refuses 1 '*/nowhere/models: expected status 200, found 404: no such path' \
    specrt ask --endpoint "${url%v1}nowhere" --prompts prompts.jsonl -o x
OPENAI_API_KEY='k"1' accepts ask -o key.jsonl --limit 1 --model other --temperature 0.5
grep -q 'other says.*Bearer k\\"1' key.jsonl || fail "$(cat key.jsonl)"
grep -q '"model":"other","temperature":0.5,"seed":1' key.jsonl || fail "$(cat key.jsonl)"
for fault in 429 500 json shape cut stall; do
    serve $fault
    accepts ask -o $fault.jsonl --timeout 3
    same <(sort plain.jsonl) <(sort $fault.jsonl)
done

# An answer that was cut is asked again; whole ones stay.
{ head -n 2 plain.jsonl; tail -n 1 plain.jsonl | head -c 30; } >cut-short.jsonl
serve none
accepts ask -o cut-short.jsonl
warns '*3 answers, 2 of them from an earlier run*'
same <(sort plain.jsonl) <(sort cut-short.jsonl)

# What another try does not help ends the run in one line, and keeps what is there.
for flags in "-o x" "--endpoint http://x -o x" "--endpoint http://x --prompts x" \
    "--prompts x -o x"; do
    refuses 2 '*expected --endpoint, --prompts and -o*' specrt ask $flags
done
refuses 2 '*--endpoint: expected a URL that begins with http*' \
    specrt ask --endpoint localhost --prompts prompts.jsonl -o x
refuses 3 "*plain.jsonl:1: expected an answer of the model other, found*" \
    ask -o plain.jsonl --model other
refuses 2 '*--temperature 1: expected 0, as in plain.jsonl:1*' ask -o plain.jsonl --temperature 1
refuses 1 '*curl: expected this program in PATH*' \
    env PATH="$CLI_BIN" specrt ask --endpoint "$url" --prompts prompts.jsonl -o x
refuses 1 '*gone/specrt-http-*: cannot make this file: No such file or directory; set TMPDIR*' \
    env TMPDIR=gone specrt ask --endpoint "$url" --prompts prompts.jsonl -o x
refuses 1 '*gone.jsonl*' specrt ask --endpoint "$url" --prompts gone.jsonl -o x
serve 401
specrt ask --endpoint "$url" --prompts prompts.jsonl --parallel 1 -o denied.jsonl 2>../err
[ $? = 1 ] || fail "exit code of status 401: $(cat ../err)"
warns '*0 of 3 prompts have an answer*expected status 200, found 401: no such key, 1 asked*'

# From the endpoint to the drafter's list.
mkdir target eagle
cp "$TOKENIZER" target/tokenizer.json
echo '{"architectures": ["LlamaForCausalLM"], "vocab_size": 32768}' >target/config.json
echo '{"architectures": ["LlamaForCausalLMEagle"], "vocab_size": 32768}' >eagle/config.json
safetensors eagle/model.safetensors layers.0.x:BF16:1:0000 fc.weight:BF16:1,2:00000000
serve none
accepts specrt prepare --target target --drafter eagle --endpoint "$url" --prompts prompts.jsonl \
    --for sglang --size 30 --with none -o out
same <(sort plain.jsonl) <(sort out/answers.jsonl)
[ -s out/drafter/token_map.pt ] || fail "no token map"

# An interrupted preparation keeps the answers that were whole, and the next one goes on from them.
serve stall
accepts ask -o asked.jsonl --limit 1 --timeout 20 # answered at once from now on
timeout -s INT 2 specrt prepare --target target --drafter eagle --endpoint "$url" \
    --prompts prompts.jsonl --for sglang --size 30 --with none -o halted 2>../err
[ $? = 124 ] || fail "not interrupted: $(cat ../err)"
same asked.jsonl halted/answers.jsonl
[ ! -e halted/steps/ask.key ] && [ ! -e halted/start.sh ] || fail "looks finished: $(ls halted)"
accepts specrt prepare --target target --drafter eagle --endpoint "$url" --prompts prompts.jsonl \
    --for sglang --size 30 --with none -v -o halted
warns '*3 answers, 1 of them from an earlier run*'
same asked.jsonl <(head -n 1 halted/answers.jsonl)
same <(sort plain.jsonl) <(sort halted/answers.jsonl)
