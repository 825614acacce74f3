# Decoding with a policy writes what plain decoding writes: greedy and sampled, a chain and a tree.
. "$CLI_TESTS/lib.bash"
length=$(most 12 6)
decode() { specrt-eval decode --target "$target" --max-tokens $length "$@"; }
tree=(--num-steps 3 --topk 2 --num-draft-tokens 6)

cat >prompts.jsonl <<'END'
{"question_id": 81, "category": "writing", "turns": ["Tell me of heat.", "And of cold?"]}
{"task_id": "HumanEval/0", "prompt": "def add(a, b):\n", "canonical_solution": "    return a + b\n"}
{"question": "How many are two and two?", "answer": "#### 4"}
{"instruction": "Translate.", "input": "Gr\u00fc\u00dfe"}
{"prompt_ids": [32752, 3923, 527, 279, 13803]}
END
accepts decode --prompts prompts.jsonl
cp ../out plain
[ "$(grep -c '^> ' plain)" = 5 ] || fail "expected 5 turns of text: $(cat plain)"
warns "* tokens in *"
accepts decode --prompts prompts.jsonl --draft "$draft" --topk 1 --num-steps 2 --policy full
same plain ../out
warns "*full: accept length *32768 shortlist rows*ms per cycle: *"
accepts decode --prompts prompts.jsonl --draft "$draft" "${tree[@]}"
same plain ../out
accepts decode --prompts prompts.jsonl --draft none -q --threads 1
same plain ../out
warns ""
accepts decode --prompts prompts.jsonl --limit 2
[ "$(grep -c '^> ' ../out)" = 3 ] || fail "--limit 2: $(cat ../out)"

sampled=(--temperature 0.9 --top-k 40 --top-p 0.95 --min-p 0.01 --seed 4)
accepts decode --prompts prompts.jsonl "${sampled[@]}"
cp ../out plain
accepts decode --prompts prompts.jsonl "${sampled[@]}" --draft "$draft" "${tree[@]}" \
    --policy microspec-paper
same plain ../out

# Each prompt has draws of its own, the same as in generate.
printf '{"prompt": "Tell me of heat."}\n{"prompt": "Tell me of heat."}\n' >twice.jsonl
accepts decode --prompts twice.jsonl "${sampled[@]}" --draft "$draft" "${tree[@]}"
cp ../out twice
[ "$(sed -n 2p twice)" != "$(sed -n 4p twice)" ] || fail "one answer for both: $(cat twice)"
accepts specrt-eval generate --target "$target" --max-tokens $length --prompts twice.jsonl \
    "${sampled[@]}" -o -
found=$(json ../out '[].output')
case $found in "$(sed -n 2p twice | cut -c1-8)"*) ;; *) fail "$found; decode: $(cat twice)" ;; esac

# Sampled drafts are a chain, of a target that samples.
chain=(--draft "$draft" --num-steps 2 --sampled-drafts)
accepts decode --prompts prompts.jsonl "${sampled[@]}" "${chain[@]}"
[ "$(grep -c '^> ' ../out)" = 5 ] || fail "sampled drafts: $(cat ../out)"
warns "*accept length*"
cp ../out first
accepts decode --prompts prompts.jsonl "${sampled[@]}" "${chain[@]}"
same first ../out
accepts decode --prompts prompts.jsonl "${sampled[@]}" "${chain[@]}" --draft-temperature 0.1
cmp -s first ../out && fail "the drafts' temperature makes no difference"
refuses 2 "*sampled drafts: expected a temperature above 0*" decode --prompt x "${chain[@]}"
refuses 2 "*sampled drafts: expected topk 1*" decode --prompt x "${chain[@]}" --topk 2 \
    --temperature 1
refuses 2 "*draft_temperature: expected 0*" decode --prompt x --draft "$draft" --draft-temperature 1

# Lines of stdin are turns of one conversation; an empty line begins another.
printf 'Tell me of heat.\nAnd of cold?\n\nTell me of heat.\n' >lines
specrt-eval decode --target "$target" --max-tokens $length -q <lines >talk || fail "stdin"
[ "$(head -n 2 plain | tail -n 1)" ] || fail "empty"
accepts decode --prompt "Tell me of heat." -q
grep -qxF "$(head -n 1 ../out)" <(head -n 1 talk) || fail "the first answer: $(cat talk)"
[ "$(head -n 1 talk)" = "$(tail -n 1 talk)" ] ||
    fail "an empty line did not begin anew: $(cat talk)"

accepts decode --prompt x --json --draft "$draft" "${tree[@]}"
has 'policy=window:3072@kver=8@*' 'answers[].text=?*' 'answers[].ids=[0-9]*' 'answers[].#=1' \
    n_turns=1 'n_tokens=*' 'accept_length=*'

# The context ends an answer; prompts that are empty or do not fit are passed over among others.
accepts decode --prompt "Tell me of heat." --context 20 --max-tokens 100
warns "* tokens in *"
cp prompts.jsonl some.jsonl
echo '{"prompt": "a b c d e f g h i j k l m n o p q r s t u v w x y z"}' >>some.jsonl
printf '%s\n' '{"turns": ["a", ""]}' '{"prompt_ids": []}' '{"question": ""}' >>some.jsonl
accepts decode --prompts some.jsonl --context 36 --max-tokens 2
warns "*warning: 4 prompts were passed over: 3 empty, first some.jsonl:7; 1 unfit, first \
some.jsonl:6: prompt: expected 1 to 35 tokens, found *"
[ "$(grep -c "passed over" ../err)" = 1 ] || fail "more than one line: $(cat ../err)"
some=(--target "$target" --draft "$draft" --prompts some.jsonl --context 36 --max-tokens 2 --json)
for verb in decode generate record compare; do
    drafts=("${some[@]:2:2}")
    [ $verb = generate ] && drafts=()
    accepts specrt-eval $verb "${some[@]:0:2}" "${drafts[@]}" "${some[@]:4}" \
        $(case $verb in generate | record) echo -o $verb.out ;; esac)
    has n_empty=3 n_unfit=1
done
plan_of_some() { # it wants room for its widest tree
    some[7]=96
    accepts specrt-eval plan "${some[@]}" --policy microspec --num-steps 1 --topk 1 --measure 1
    has n_empty=3 n_unfit=1
}
is_quick || plan_of_some

# The model's own template. It ends with blanks here, so that tensors stay aligned behind it.
with_template() { # TEXT
    local text=$1
    while [ $(((43 + ${#text}) % 32)) != 0 ]; do text+=" "; done
    head -c 16 "$target"
    printf '\26\0\0\0\0\0\0\0' # one key more than 21
    printf '\27\0\0\0\0\0\0\0tokenizer.chat_template\10\0\0\0'
    printf "\\$(printf %o $((${#text} % 256)))\\$(printf %o $((${#text} / 256)))"
    printf '\0\0\0\0\0\0%s' "$text"
    tail -c +25 "$target"
}
mark="<|start_header_id|>" end="<|end_header_id|>"
brief="{% set system_message = 'Be brief.' %}"
with_template "$brief{{ '$mark' + role + '$end' + '<|eot_id|>' }}" >own.gguf
with_template "[INST] {{ message }} [/INST]" >foreign.gguf
own() { specrt-eval decode --prompt "Tell me of heat." --max-tokens $length "$@"; }
accepts own --target "$target"
warns "*template: llama3, guessed from the special tokens; the model has none of its own*"
cp ../out guessed
accepts own --target own.gguf
warns "*template: llama3, as the model's own says, with its system prompt*"
cmp -s ../out guessed && fail "a system prompt makes no difference"
cp ../out briefly
accepts own --target own.gguf --chat-template llama3
warns "*template: llama3, by --chat-template*"
same ../out guessed
accepts own --target foreign.gguf -q
warns "*warning: the model's chat template is unknown to specrt; llama3 is used, guessed \
from its special tokens; choose another with --chat-template"
same ../out guessed
accepts own --target own.gguf --json
has chat_template=llama3 chat_template_from=model 'system_prompt=Be brief.'
for system in "Be brief." ""; do
    printf '{"system":"%s","prompt":"Tell me of heat."}\n' "$system" >system.jsonl
    accepts specrt-eval decode --target own.gguf --max-tokens $length -q --prompts system.jsonl
    [ "$system" ] || cp guessed briefly # an empty one is none
    same ../out briefly
done

# Templates from a file: texts before and after a message, where special tokens are named.
cat >plain.json <<'END'
{"begin": "<|begin_of_text|>", "user": ["<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"],
 "assistant": ["<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"]}
END
accepts decode --prompt "Tell me of heat." -q
cp ../out detected
accepts decode --prompt "Tell me of heat." -q --chat-template plain.json
same detected ../out
accepts decode --prompt "Tell me of heat." -q --chat-template none
cmp -s detected ../out && fail "a template makes no difference"
sed 's/^{/{"system": ["<|start_header_id|>system<|end_header_id|>\\n\\n", "<|eot_id|>"],/' \
    plain.json >system.json
printf '{"system":"Be brief.","prompt":"Tell me of heat."}\n' >system.jsonl
accepts decode --prompts system.jsonl -q --chat-template llama3
cp ../out system
accepts decode --prompts system.jsonl -q --chat-template system.json
same ../out system
accepts decode --prompts system.jsonl -q --chat-template plain.json
cp ../out led # by the system message, in the user's own
accepts decode --prompt $'Be brief.\n\nTell me of heat.' -q --chat-template plain.json
same ../out led
echo '{"user": ["a"]}' >bad.json
refuses 3 '*bad.json: chat template: expected {"begin": *' decode --prompt x --chat-template \
    bad.json
