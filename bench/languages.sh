#!/usr/bin/env bash
# languages.sh TOKENIZER [ROWS...] : what lists cover of 19 languages, the worst first: one from
# English text, one from text in all of them, and both with --balance
# (bench/results/languages.md). Text: ShareGPT's answers (make models NAME=sharegpt), nearly all
# English, and Debian's manual of installation (apt-get download installation-guide-amd64). Run
# from the project's root after make.
set -euo pipefail
tokenizer=$1
shift
rows=${*:-32768}
build=${BUILD:-build} work=${BUILD:-build}/languages
guide=$work/installation-guide/usr/share/doc/installation-guide-amd64
mkdir -p "$work"
if [ ! -d "$guide" ]; then
    (cd "$work" && apt-get download -qq installation-guide-amd64 2>/dev/null)
    dpkg -x "$work"/installation-guide-amd64_*.deb "$work/installation-guide"
fi
[ -d "$work/text" ] || "${PYTHON:-python3}" bench/guide.py "$guide" "$work/text"
count() { # NAME CORPUS... : counts, a twentieth of the text held out
    "$build/bin/vocabtrim-calibrate" --tokenizer "$tokenizer" --corpus "${@:2}" -q -f \
        --counts-out "$work/$1.counts" 2>/dev/null
}
count test "$work"/text/test/*.jsonl
count chat "$build/models/sharegpt.json"
count guide "$work"/text/*.jsonl
make_list() { # NAME COUNTS... : its bundle, and what it covers: of held-out chat, and of the test
    local name=$1
    shift
    rm -f "$work/$name.specb"
    "$build/bin/vocabtrim-calibrate" --merge "$@" --size "$n" -o "$work/$name.specb" --json -f \
        >"$work/$name.made.json" 2>/dev/null
    "$build/bin/specrt-bundle" drift "$work/$name.specb" --counts "$work/test.counts" --max-drop 1 \
        --json >"$work/$name.json" 2>/dev/null
}
for n in $rows; do
    make_list english "$work/chat.counts"
    make_list all "$work"/{chat,guide}.counts
    make_list half "$work"/{chat,guide}.counts --balance --weights sharegpt.json:19
    make_list balanced "$work"/{chat,guide}.counts --balance
    "${PYTHON:-python3}" - "$n" "$work"/{english,all,half,balanced} <<'END'
import json
import sys

paths = sys.argv[2:]


def domains(path):
    return {d["name"].split(".")[0]: d for d in json.load(open(path))["domains"]}


lists = [domains(path + ".json") for path in paths]
chats = [domains(path + ".made.json")["sharegpt"]["coverage_holdout"] for path in paths]


def row(name, tokens, shares):
    return f"| {name} | {tokens} | " + " | ".join(f"{100 * share:.1f}" for share in shares) + " |"


print(f"== {int(sys.argv[1]):,} rows: % of tokens covered\n")
print("| language | tokens | list from English | from all text | balanced, half chat | balanced |")
print("|---|--:|--:|--:|--:|--:|")
for name in sorted(lists[0], key=lambda name: lists[0][name]["coverage"]):
    print(row(name, f"{lists[0][name]['n_tokens']:,}", [l[name]["coverage"] for l in lists]))
print(row("worst", "", [min(d["coverage"] for d in l.values()) for l in lists]))
print(row("ShareGPT's answers, held out", "", chats) + "\n")
END
done
