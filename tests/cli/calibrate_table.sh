# The table of sizes and domains, with figures computed by hand: of the 36 weighted tokens the first
# three ids (7 is forced) are 22, the accept length is 1 + 0.5 x 22/36 + (0.5 x 22/36)^2, and c is
# (3e7 - 512 x 4997) / 1e8.
. "$CLI_TESTS/lib.bash"
ids t.bin 5 5 5 5 3 3 3 9 9 2 700 5 1500 9 4000 5
ids u.bin 3 3 3 5
run() { accepts vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 5000 --keep 7 \
    --holdout 0 --corpus t.bin u.bin --size 3 --weights t.bin:2 -o x.specb -f "$@"; }
shows() { diff - <(grep -v '^to run' ../out) || fail "another table"; }
run --accept-rate 0.5,0.5 --target-params 1e8 --draft-params 3e7 --d-draft 512
shows <<'END'
ids: 20 tokens in 2 documents; 5,000 ids, 1 of them forced

      size  calibration   hold-out     tau    MBSU  60%                 100%
>        3      61.111%          -   1.399   0.903  #
       512     100.000%          -   1.750   1.126  ########################  best
     1,024     100.000%          -   1.750   1.122  ########################
     2,048     100.000%          -   1.750   1.115  ########################
     4,096     100.000%          -   1.750   1.100  ########################
     5,000     100.000%          -   1.750   1.094  ########################

MBSU = tau / (c x gamma + 1), an estimate that ignores all but reading weights:
  gamma = 2 drafter passes; c = 0.27442 at 3 ids, from a drafter of 30.0M and a target of 100.0M
  parameters (as given)

At 3 ids, by domain, the worst first:
                      tokens  weight  calibration   hold-out
  t.bin                   16       2      56.250%          -
  u.bin                    4       1     100.000%          -

END
run --accept-rate 0.5,0.5 --target-params 1e8 --draft-params 3e7 --d-draft 512 --json
has n_tokens=20 n_selected=3 n_distinct=7 unseen_estimate=0.2 bytes_read=40 n_files=2 n_records=2 \
    'domains[].name=t.bin u.bin' 'domains[].weight=2 1' 'domains[].n_documents=1 1' \
    'domains[].n_bytes=64 16' 'domains[].n_tokens=16 4' 'domains[].n_tokens_holdout=0 0' \
    'domains[].n_completions=0 0' 'domains[].coverage_calibration=0.5625 1' \
    'domains[name=u.bin].digest=0ef749a5728751a9' 'speed.accept_rate=0.5 0.5' speed.gamma=2 \
    speed.target_params=100000000 speed.draft_params=30000000 speed.d_draft=512 \
    'speed.params_source=as given' best_size=512 'sweep[].size=3 512 1024 2048 4096 5000' \
    'sweep[].tau=1.3989 1.75 1.75 1.75 1.75 1.75' 'sweep[].c=0.2744 0.277 0.2796 0.2849 0.2954 0.3' \
    'sweep[].mbsu=0.9032 1.1261 1.1223 1.1148 1.1001 1.0938'
export LC_ALL=C.UTF-8
run --accept-rate 0.5,0.5
prints '*hold-out     tau  60%                 100%
>        3      61.111%          -   1.399  ▋
       512     100.000%          -   1.750  *
     1,024     100.000%          -   1.750  ████████████*█
*   5,000     100.000%          -   1.750  ████████████*█

At 3 ids*'
run --weights t.bin:1
prints '*hold-out  60%                 100%
>        3      65.000%          -  ███
       512     100.000%          - *
     1,024     100.000%          -  ████████████*█
*'

# The report's lists and facts: id i occurs 121 - i times, but for 7, which ends texts.
list=()
for ((i = 1; i <= 120; i++)); do for ((n = i; i != 7 && n <= 120; n++)); do list+=($i); done; done
ids many.bin "${list[@]}"
accepts vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 5000 --keep 7 --holdout 0 \
    --corpus many.bin --size 100 --report r.html
for fact in "100</b><span>ids in the draft" "97.061%</b><span>of the corpus" \
    "7,146</b><span>tokens" "5,000</b><span>ids in the full" "1</b><span>ids forced"; do
    grep -qF "<b>$fact" r.html || fail "no $fact: $(grep '<b>' r.html)"
done
[ "$(grep 'class="chosen"' r.html | cut -d '<' -f 2-3)" = 'tr class="chosen"><td>100' ] ||
    fail "another row is chosen: $(grep '<tr' r.html)"
tokens() { # TITLE : ids and counts below it
    sed -n "/<h2>$1</,/<\/ul>/s|<li>.*>\([0-9]*\)</span><small>\([0-9]*\)<.*|\1:\2|p" r.html |
        xargs
}
expected() { # FIRST LAST : tokens in this order
    for ((i = $1; i <= $2; i++)); do [ $i = 7 ] || echo -n "$i:$((i > 120 ? 0 : 121 - i)) "; done
}
check() { # TITLE EXPECTED
    [ "$(tokens "$1") " = "$2" ] || fail "$1: $(tokens "$1")"
}
check "Most frequent" "$(expected 1 61)"
check "The last that are in" "$(expected 41 100)"
check "The first left out" "$(expected 101 120)0:0 $(expected 121 159)"
