# What bench/reproduce.sh prints of rows: by policy, by task, over seeds, with the paper's figures.
. "$CLI_TESTS/lib.bash"
require python3
work=$PWD prompts=other n_vocab=32768 n_layer=918016 n_target=13110528 n_cols=256
. "$CLI_TESTS/../../bench/tables.sh"
# made MORE : rows of three policies over two tasks; accept length, rows and speeds are made up
made() {
    for policy in plain full "static:512 (lora)"; do
        for task in all code law; do
            printf '%s\t%s' "$policy" $task
            for i in $(seq 3 25); do printf '\t%s' $((${#policy} % 7 + i + $1)); done
            echo
        done
    done
}
beside full "3.80" "static:512 (lora)" "3.65, kept"
made 0 | table
made 0 | with_mbsu 4
{ made 0; made 1; made 3; } | over_seeds
by_task_beside plain "12.5 13" full "1 2 3" "static:512 (lora)" "3.1 3.2"
made 0 | by_task 8 %8.1f
made 0 | by_task 3 # the paper's figures belong to one table

# A trace in which the cache brings three tokens: one that was missed, one of the target's best at
# that miss, one that neither explains.
echo '[0, 1, 2, 3, 4, 5]' >list.json
"$CLI_TESTS/../../bench/event.py" list.json "$CLI_TESTS/../../data/sample/target.gguf" <<'END'
s code: 1 2 3 : 4 5 6
c 1 700 : 700 800 900 4 : 1 2
c 2 3 : 3 2 1 : 1 2
c 800 2 : 2 1 : 3
c 700 901 : 901 3 : 3
c 999 1 : 1 3 : 3
whole
END
