# shellcheck shell=bash
# tables.sh : how bench/reproduce.sh prints what `rows` of bench/pair.sh gives; source it. Needs a
# folder of its own, $work.

# beside POLICY FIGURE... : the paper's own figures, which tables print at the end of these rows.
beside() { printf '%s\t%s\n' "$@" >>"$work/beside"; }

# by_task_beside POLICY "FIGURE..." ... : the paper's figures by task, which by_task prints under
# these rows. Without the paper's prompts there are other tasks, so they are left out.
by_task_beside() {
    [ "$prompts" = data/prompts ] || printf '%s\t%s\n' "$@" >"$work/tasks-beside"
}

# rows_of AWK [VARIABLES...] : AWK over `rows`, with paper(policy) for what `beside` said.
rows_of() {
    program=$1
    shift
    touch "$work/beside"
    awk -F '\t' -v beside="$work/beside" "$@" '
        BEGIN {
            while ((getline line <beside) > 0) {
                split(line, part, "\t")
                said[part[1]] = part[2]
                n_said++
            }
        }
        function paper(policy) { return policy in said ? "   " said[policy] : "" }
        function of_full() { # of the accept length, %
            return $24 == "-" ? "" : sprintf("%.1f %.1f-%.1f", 100 * $19, 100 * $24, 100 * $25)
        }
        function heading(policy, figures) {
            printf "%-45s%s%s\n", policy, figures, n_said ? "   the paper" : ""
        }
        '"$program"
}

# table : policies over all prompts.
table() {
    rows_of '
        BEGIN {
            heading("policy", sprintf(" %6s %11s %15s %8s %7s %8s %8s %8s %7s", "accept", "95%",
                "of full, 95%", "covered", "rows", "tokens/s", "+prompt", "x plain", "x full"))
        }
        $2 == "all" {
            printf "%-45s %6.2f %5.2f-%-5.2f %15s %7.1f%% %7.0f %8.0f %8.0f %8.2f %7.2f%s\n",
                $1, $3, $4, $5, of_full(), 100 * $6, $7, $8, $9, $10, $11, paper($1)
        }'
}

# by_task COLUMN [FORMAT [SCALE]] : one figure of every policy by task, the paper's under it.
by_task() {
    rows_of '
        $2 == "all" { policies[++n] = $1; next }
        !($2 in seen) { seen[$2] = 1; tasks[++m] = $2 }
        { x[$1, $2] = $column }
        END {
            printf "%-45s", "policy"
            for (t = 1; t <= m; t++) printf " %8.8s", tasks[t]
            print ""
            for (p = 1; p <= n; p++) {
                if (policies[p] == "plain" && column !~ /^(8|9|11)$/) continue # no speed
                printf "%-45s", policies[p]
                for (t = 1; t <= m; t++) printf " " format, scale * x[policies[p], tasks[t]]
                print ""
                if (split(said[policies[p]], theirs, " ") != m) continue
                printf "%-45s", "    the paper"
                for (t = 1; t <= m; t++) printf " %8s", theirs[t]
                print ""
            }
        }' -v column="$1" -v format="${2:-%8.2f}" -v scale="${3:-1}" \
        -v beside="$work/tasks-beside"
    rm -f "$work/tasks-beside"
}

# over_seeds : rows of several runs as mean and deviation of the accept length.
over_seeds() {
    rows_of '
        BEGIN { heading("policy", sprintf(" %6s %9s %5s", "accept", "deviation", "seeds")) }
        $2 != "all" || $1 == "plain" { next }
        !n[$1]++ { policies[++m] = $1 }
        { sum[$1] += $3; squares[$1] += $3 * $3 }
        END {
            for (p = 1; p <= m; p++) {
                name = policies[p]
                k = n[name]
                mean = sum[name] / k
                rest = squares[name] - k * mean * mean
                printf "%-45s %6.2f %9.3f %5d%s\n", name, mean,
                    (k > 1 && rest > 0 ? sqrt(rest / (k - 1)) : 0), k, paper(name)
            }
        }'
}

# with_mbsu STEPS : accept length, VocabTrim's block efficiency (BE), and the speed-up where
# memory is what binds: BE / (c STEPS + 1), with c the drafter's parameters as a share of the
# target's.
with_mbsu() {
    rows_of '
        BEGIN {
            heading("policy", sprintf(" %6s %11s %15s %8s %7s %7s",
                "BE", "95%", "of full, 95%", "covered", "rows", "MBSU"))
        }
        $2 == "all" && $1 != "plain" {
            c = (n_layer + n_cols * (n_vocab + $7)) / n_target
            printf "%-45s %6.2f %5.2f-%-5.2f %15s %7.1f%% %7.0f %7.3f%s\n",
                $1, $3, $4, $5, of_full(), 100 * $6, $7, $3 / (c * steps + 1), paper($1)
        }' -v steps="$1" -v n_vocab="$n_vocab" -v n_layer="$n_layer" -v n_target="$n_target" \
        -v n_cols="$n_cols"
}
