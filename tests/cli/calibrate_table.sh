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
     1,024     100.000%          -   1.750   1.122  ########################  best
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
export LC_ALL=C.UTF-8
run --accept-rate 0.5,0.5
prints '*hold-out     tau  60%                 100%
>        3      61.111%          -   1.399  ▋
     1,024     100.000%          -   1.750  ████████████*█
*   5,000     100.000%          -   1.750  ████████████*█

At 3 ids*'
run --weights t.bin:1
prints '*hold-out  60%                 100%
>        3      65.000%          -  ███
     1,024     100.000%          -  ████████████*█
*'
