# A served model's answers: a fault that may pass is met by another try, any other ends the run in
# bounded time. No answer is lost, no other file is changed, and a second run asks for the others.
. "$CLI_TESTS/lib.bash"
require python3
require curl
python3 "$CLI_TESTS/endpoint.py" ../port ../asked &
server=$!
trap 'kill $server' EXIT
for ((i = 0; i < 100; i++)); do [ -e ../port ] && break; sleep 0.1; done
base=http://127.0.0.1:$(cat ../port)
url=$base/v1
ask() { specrt ask --endpoint "$url" --prompts prompts.jsonl "$@"; }
n_asked() { grep -c "^$1$" ../asked; } # FAULT
for word in one two 'thr\"ee\\'; do
    printf '{"prompt": "%s?", "domain": "d"}\n' "$word"
done >prompts.jsonl

accepts ask -o plain.jsonl --json
has n_prompts=3 n_answers=3 model=served-model
for n in 0 1 2; do
    holds plain.jsonl "[$n].output=To *served-model says:
\"yes\" \\\\ None"
done

# All faults of a server at a time, since those that may pass take 15 s of waiting. The file has one
# answer before.
meet() { # FAULT CODE PATTERN OPTION...: the exit code, and what is on stderr
    local fault=$1 expected=$2 pattern=$3 code text; shift 3
    head -n 1 plain.jsonl >"../fault-$fault.jsonl"
    timeout -s KILL 100 specrt ask --endpoint "$base/$fault/v1" --prompts prompts.jsonl \
        -o "../fault-$fault.jsonl" "$@" 2>"../fault-$fault.err"
    code=$? text=$(cat "../fault-$fault.err")
    [ $code = "$expected" ] || echo "$fault: exit $code, expected $expected: $text"
    case $text in $pattern) ;; *) echo "$fault: expected '$pattern', found: $text" ;; esac
    same <(head -n 1 plain.jsonl) <(head -n 1 "../fault-$fault.jsonl")
    [ -z "$(tail -c 1 "../fault-$fault.jsonl")" ] || echo "$fault: an incomplete line"
    [ "$(wc -l <"../fault-$fault.jsonl")" = $([ $code = 0 ] && echo 3 || echo 1) ] ||
        echo "$fault: $(wc -l <"../fault-$fault.jsonl") answers"
}
faults=()
while read -r fault code pattern; do
    seconds=$([ $fault = drip ] && echo 1 || echo 20)
    meet "$fault" "$code" "$pattern" --timeout $seconds >>../faults &
    faults+=($!)
done <<'END'
empty 1 *1 of 3 prompts*expected a JSON object, found another text*
null 1 *expected a JSON object*the server sent: null
list 1 *expected a JSON object*the server sent: []
text 1 *expected a JSON object*the server sent: "hello"
number 1 *expected a JSON object*the server sent: 5
html 1 *expected a JSON object*the server sent: <!DOCTYPE html><title>Log in?[2J</title>
sse 1 *expected a JSON object*the server sent: data: *
half 1 *expected a JSON object*
two 1 *expected a JSON object*
nul 1 *expected a JSON object*
deep 1 *expected a JSON object*the server sent: [[[[*
deep-object 1 *expected a JSON object*
gzip 1 *expected a JSON object*
204 1 *expected a JSON object*
object 1 *choices\[0].message: expected a text, found none;*the server sent: {}
error-200 1 *choices\[0].message: *the server sent: {"error":{"message":"no capacity"}}
choices-null 1 *choices\[0].message: expected a text*
choices-none 1 *choices\[0].message: expected a text, found none; name*
choices-object 1 *choices\[0].message: expected a text*
choice-null 1 *choices\[0].message: expected a text*
choice-list 1 *choices\[0].message: expected a text*
message-null 1 *choices\[0].message: expected a text*
message-text 1 *choices\[0].message.content: expected a text*
no-content 1 *choices\[0].message.content: expected a text*
content-null 1 *choices\[0].message.content: expected a text, found none; raise --max-tokens*
content-number 1 *choices\[0].message.content: expected a text*
content-list 1 *choices\[0].message.content: expected a text*
content-empty 1 *choices\[0].message.content: expected a text, found none; raise --max-tokens*
endless 1 *expected an answer of at most 589824 bytes, found more*the server sent: xxx*
long 1 *expected an answer of at most 589824 bytes, found more*the server sent: {"choices*
400 1 *expected status 200, found 400: prompt is too long
400-null 1 *expected status 200, found 400: {"error": {"message": null}}
400-nothing 1 *expected status 200, found 400: {"error": null}
400-list 1 *expected status 200, found 400: {"error": *
401 1 *expected status 200, found 401: no such key
403 1 *expected status 200, found 403: *
404 1 *expected status 200, found 404*: <html>
422 1 *expected status 200, found 422: {"detail"*
302 1 *found 302, a redirect to http*/elsewhere/v1; name that address by --endpoint
307 1 *found 307, a redirect to http*/elsewhere/v1; *
304 1 *expected status 200, found 304: *
429 1 *found 429: busy; trying again, up to 5 times*1 of 3*found 429: busy
500 1 *trying again*expected status 200, found 500: Internal Server Error
503 1 *trying again*expected status 200, found 503: ???[31m
999 1 *expected status 200, found 999: odd
silent 1 *trying again*found a connection that ended early (curl's exit code 52)*
cut 1 *trying again*found a connection that ended early (curl's exit code 18)*
bad-chunk 1 *found a connection that ended early (curl's exit code 56)*
header-only 1 *expected *
no-http 1 *found one that is no HTTP*
status-line 1 *found one that is no HTTP*
bad-length 1 *
huge-length 1 *
huge-header 1 *
endless_header 1 *
continues 1 *
drip 1 *trying again*expected an answer within 1 s, found none in time (curl*28); raise --timeout*
once-429 0 *found 429: busy; trying again*3 answers, 1 of them from an earlier run
once-503 0 *trying again*
once-cut 0 *trying again*
reason-null 0 *3 answers*
reason-number 0 *3 answers*
escapes 0 *3 answers*
no-utf8 0 *3 answers*
thinks 0 *3 answers*
thinks-too 0 *3 answers*
thinks-only 0 *3 answers*
full 0 *3 answers*
null-models 3 *expected a JSON object*
html-models 3 *expected a JSON object*
data-null-models 3 *data\[0].id: expected a model, found none; name it by --model
data-none-models 3 *data\[0].id: expected a model*
data-list-models 3 *data\[0].id: expected a model*
id-null-models 3 *data\[0].id: expected a model*
id-number-models 3 *data\[0].id: expected a model*
endless-models 3 *expected an answer of at most 16777216 bytes*
503-models 1 *expected status 200, found 503*
silent-models 1 *found a connection that ended early*
END

accepts specrt ask --endpoint "$url//" --prompts prompts.jsonl -o slash.jsonl
same <(sort plain.jsonl) <(sort slash.jsonl)
refuses 1 "*/nowhere/v1/models: expected status 200, found 404 (--endpoint*): no such path" \
    specrt ask --endpoint "$base/nowhere/v1" --prompts prompts.jsonl -o x
refuses 1 '*/models: expected an answer within 30 s, found no connection (curl*7); start *' \
    specrt ask --endpoint http://127.0.0.1:1/v1 --prompts prompts.jsonl -o x
refuses 1 '*found no such host (curl*6); correct --endpoint*' \
    specrt ask --endpoint http://nowhere.invalid/v1 --prompts prompts.jsonl -o x
OPENAI_API_KEY='k"1' accepts ask -o key.jsonl --limit 1 --model other --temperature 0.5
grep -q 'other says.*Bearer k\\"1' key.jsonl || fail "$(cat key.jsonl)"
holds key.jsonl model=other temperature=0.5 seed=1

# A prompt of 200 kB, longer than a line of curl's options.
python3 -c 'print("{\"prompt\": \"%s\"}" % ("word " * 40000))' >long.jsonl
accepts specrt ask --endpoint "$url" --prompts long.jsonl -o long-out.jsonl
[ "$(wc -c <long-out.jsonl)" -gt 400000 ] || fail "$(head -c 500 long-out.jsonl)"

# Reasoning is part of the output, as the model writes it.
output() { specrt ask --endpoint "$base/$1/v1" --prompts prompts.jsonl --limit 1 -q "${@:2}" &&
    cut -d '"' -f 8 <reasons.jsonl; rm -f reasons.jsonl; }
[ "$(output thinks -o reasons.jsonl)" = '<think>hm\u0000m</think>fine' ] || fail "reasoning_content"
[ "$(output thinks-too -o reasons.jsonl)" = '<think>hm</think>fine' ] || fail "reasoning"
[ "$(output thinks-only -o reasons.jsonl)" = '<think>hmm' ] || fail "reasoning without content"
[ "$(output thinks -o reasons.jsonl --no-reasoning)" = 'fine' ] || fail "--no-reasoning"
specrt ask --endpoint "$base/thinks-only/v1" --prompts prompts.jsonl --no-reasoning \
    -o none.jsonl 2>../err
[ $? = 1 ] || fail "--no-reasoning without an answer"
warns '*0 of 3*content: expected a text, found none; raise --max-tokens*'

# An answer that was cut is asked again. Whole ones stay, also one without the end of its line.
{ head -n 2 plain.jsonl; tail -n 1 plain.jsonl | head -c 30; } >cut-short.jsonl
accepts ask -o cut-short.jsonl
warns '*3 answers, 2 of them from an earlier run*'
same <(sort plain.jsonl) <(sort cut-short.jsonl)
head -c -1 plain.jsonl >no-end.jsonl
accepts ask -o no-end.jsonl
warns '*3 answers, 3 of them from an earlier run*'
same plain.jsonl no-end.jsonl

# What is no file of answers is refused before any request, and stays.
printf '{"important":"config"}' >cfg.json
printf '{"prompt":"hi"}' >one-prompt.jsonl
echo '{"model":null}' >null-model.jsonl
printf '{"prompt":"one?","output":"x","model":null}\n' >null-text.jsonl
echo '{"prompt":null,"output":"x","model":"served-model"}' >null-prompt.jsonl
{ cat plain.jsonl; echo '{"prompt":"x'; } >damaged.jsonl
{ cat plain.jsonl; printf '# notes'; } >notes.jsonl
ln -s prompts.jsonl link.jsonl
ln prompts.jsonl hard.jsonl
mkfifo fifo
before=$(n_asked '')
for flags in '' -f; do
    for file in cfg.json null-model.jsonl null-prompt.jsonl; do
        refuses 3 "*$file:1: expected an answer that *specrt ask* wrote*; name another file" \
            ask -o $file $flags
    done
    for file in prompts.jsonl link.jsonl hard.jsonl ./prompts.jsonl; do
        refuses 2 "*-o $file: expected another file than --prompts prompts.jsonl" \
            ask -o $file $flags
    done
    for file in /dev/full /dev/null fifo; do
        refuses 2 "*-o $file: expected a file, to which a second run*" ask -o $file $flags
    done
done
for file in one-prompt.jsonl null-text.jsonl; do
    refuses 3 "*$file:1: expected an answer of the model served-model*" ask -o $file
done
refuses 3 '*damaged.jsonl:4: expected an answer that*' ask -o damaged.jsonl
refuses 3 '*notes.jsonl:4: expected an answer that*' ask -o notes.jsonl
refuses 1 '*gone/x: cannot create: No such file*' ask -o gone/x
[ "$(n_asked '')" = "$before" ] || fail "asked for a file that was refused"

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
refuses 1 '*curl: cannot run: No such file*expected this program in PATH: install the package*' \
    env PATH="$CLI_BIN" specrt ask --endpoint "$url" --prompts prompts.jsonl -o x
refuses 1 '*gone.jsonl*' specrt ask --endpoint "$url" --prompts gone.jsonl -o x
printf '{"prompt": "one?"}\n{"prompt_ids": [1, 2]}\n' >ids.jsonl
refuses 3 '*ids.jsonl:2: prompt_ids: expected a prompt as text, which a served model takes*' \
    specrt ask --endpoint "$url" --prompts ids.jsonl -o x
TMPDIR=gone accepts ask -o no-tmp.jsonl

# A run stops after three failures of one kind, whatever the number of prompts.
for ((i = 0; i < 20; i++)); do echo "{\"prompt\": \"prompt $i\"}"; done >many.jsonl
: >../asked
specrt ask --endpoint "$base/400/v1" --prompts many.jsonl --parallel 1 -o denied.jsonl 2>../err
[ $? = 1 ] && [ "$(n_asked 400)" = 3 ] || fail "$(n_asked 400) requests: $(cat ../err)"
warns '*0 of 20 prompts have an answer; the run stopped because several failed in the same way*'
[ ! -e denied.jsonl ] || fail "an empty file of answers"

# A full disk: whole lines, and a second run adds the others.
(ulimit -f 1; specrt ask --endpoint "$url" --prompts many.jsonl -o small.jsonl 2>../err)
[ $? = 1 ] || fail "full disk: $(cat ../err)"
warns '*small.jsonl: cannot write: File too large*'
[ -z "$(tail -c 1 small.jsonl)" ] && [ "$(wc -l <small.jsonl)" -gt 2 ] || fail "$(cat small.jsonl)"
accepts specrt ask --endpoint "$url" --prompts many.jsonl -o small.jsonl
[ "$(sort -u small.jsonl | wc -l)" = 20 ] || fail "$(cat small.jsonl)"

# The bar is there before the first answer. One run writes a file at a time. The key is no argument.
OPENAI_API_KEY=a-secret specrt ask --endpoint "$base/slow/v1" --prompts prompts.jsonl \
    --parallel 1 --progress -o slow.jsonl 2>bar &
asking=$!
for ((i = 0; i < 100; i++)); do grep -qs '  0%' bar && break; sleep 0.02; done
[ "$(wc -l <slow.jsonl)" = 0 ] || fail "the bar came after an answer: $(cat bar)"
grep -qsa 'a[-]secret' /proc/[0-9]*/cmdline && fail "the key is an argument"
ask -o slow.jsonl 2>../err # not by `refuses`: the first run goes on writing
[ $? = 1 ] || fail "two runs write one file"
warns '*slow.jsonl: another specrt ask writes this file; wait for its end'
wait $asking || fail "$(cat bar)"
grep -q ' 33%.* 67%.*100%' bar || fail "$(cat bar)"

# The beginning of a line may be anybody's.
printf '{"prompt":"my notes' >notes
cp notes notes-before
specrt ask --endpoint "$url" --prompts prompts.jsonl -o notes >../out 2>../err
[ $? = 3 ] || fail "exit $?: $(cat ../err)"
same notes notes-before

# 20 runs that are ended at any moment: no curl stays, the file has whole lines, and a second run
# completes it.
head -n 8 many.jsonl >eight.jsonl
accepts specrt ask --endpoint "$url" --prompts eight.jsonl -o eight-plain.jsonl
marked() { # NAME: the processes that still have it after 5 s; an end may be seen late
    local left tries
    for ((tries = 0; tries < 50; tries++)); do
        left=$(grep -lsz "^KILLED=$1\$" /proc/[0-9]*/environ) || return 0
        sleep 0.1
    done
    echo "$left"
}
end_one() { # NUMBER SIGNAL CODE
    local out=killed-$1.jsonl asking code left
    KILLED=$1 specrt ask --endpoint "$base/slow/v1" --prompts eight.jsonl --parallel 2 -q \
        -o "$out" 2>"killed-$1.err" &
    asking=$!
    sleep "0.$((RANDOM % 9))$((RANDOM % 9))"
    kill "-$2" $asking 2>/dev/null
    wait $asking 2>/dev/null
    code=$?
    [ $code = "$3" ] || [ $code = 0 ] || [ ! -e "$out" ] || # else it had not begun
        echo "$2: exit $code: $(cat "killed-$1.err")"
    left=$(marked "$1") # after KILL Linux ends curl, and nobody waits for the end
    [ -z "$left" ] || echo "$2: left $(xargs -n 1 dirname <<<"$left" | xargs -I{} cat {}/cmdline)"
    [ ! -s "$out" ] || [ -z "$(tail -c 1 "$out")" ] || echo "$2: an incomplete line"
    specrt ask --endpoint "$url" --prompts eight.jsonl -q -o "$out" || echo "$2: no second run"
    cmp <(sort eight-plain.jsonl) <(sort "$out")
}
ends=()
for ((i = 0; i < $(most 20 8 4); i += 4)); do
    end_one $i TERM 130 >>ends & ends+=($!)
    end_one $((i + 1)) INT 130 >>ends & ends+=($!)
    end_one $((i + 2)) HUP 130 >>ends & ends+=($!)
    end_one $((i + 3)) KILL 137 >>ends & ends+=($!)
done
wait "${ends[@]}"
[ ! -s ends ] || fail "$(cat ends)"

# From the endpoint to the drafter's list.
mkdir target eagle
cp "$TOKENIZER" target/tokenizer.json
echo '{"architectures": ["LlamaForCausalLM"], "vocab_size": 32768}' >target/config.json
echo '{"architectures": ["LlamaForCausalLMEagle"], "vocab_size": 32768}' >eagle/config.json
safetensors eagle/model.safetensors layers.0.x:BF16:1:0000 fc.weight:BF16:1,2:00000000
accepts specrt prepare --target target --drafter eagle --endpoint "$url" --prompts prompts.jsonl \
    --for sglang --size 30 --with none -o out
same <(sort plain.jsonl) <(sort out/answers.jsonl)
[ -s out/drafter/token_map.pt ] || fail "no token map"

# An interrupted preparation keeps the answers that were whole, and the next one goes on from them.
stalled=$base/once-stall/v1
specrt ask --endpoint "$stalled" --prompts prompts.jsonl -o asked.jsonl --limit 1 --timeout 1 -q
[ "$(wc -l <asked.jsonl)" = 1 ] || fail "$(cat asked.jsonl)" # answered at once from now on
specrt prepare --target target --drafter eagle --endpoint "$stalled" --prompts prompts.jsonl \
    --for sglang --size 30 --with none -o halted 2>../err &
until [ -s halted/answers.jsonl ]; do kill -0 $! || fail "$(cat ../err)"; sleep 0.1; done
kill -INT $!
wait $!
[ $? = 130 ] || fail "not interrupted: $(cat ../err)"
same asked.jsonl halted/answers.jsonl
[ ! -e halted/specrt-steps/ask.key ] && [ ! -e halted/start.sh ] ||
    fail "looks finished: $(ls halted)"
accepts specrt prepare --target target --drafter eagle --endpoint "$stalled" \
    --prompts prompts.jsonl --for sglang --size 30 --with none -v -o halted
warns '*3 answers, 1 of them from an earlier run*'
same asked.jsonl <(head -n 1 halted/answers.jsonl)
same <(sort plain.jsonl) <(sort halted/answers.jsonl)

wait "${faults[@]}"
[ ! -s ../faults ] || fail "$(cat ../faults)"
