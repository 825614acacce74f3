#!/bin/sh
# lines.sh [REV...] : lines of hand-written code and of tests by folder, one column per revision (HEAD),
# as a table. Generated files, data, raw results and pages do not count:
# include/specrt.h and cuda/ count where there is no src/ that they are generated from.
set -eu
[ $# -gt 0 ] || set -- HEAD
for rev; do
    generated=nothing
    [ -z "$(git ls-tree "$rev" src)" ] || generated='include/specrt.h|cuda/specrt_kernels.cu'
    git ls-tree -r --name-only "$rev" |
        grep -E '\.(c|h|cc|cu|cuh|hpp|inc|py|sh|awk|bash|mk)$|^Makefile$|^tools/amalgamate$|^\.ci/run$' |
        grep -vE "^($generated)\$|^data/corpus/" |
        while read -r file; do
            echo "$rev $(git show "$rev:$file" | wc -l) $file"
        done
done | awk -v revisions="$*" '
    {
        folder = $3
        if (!sub(/\/.*/, "", folder) || folder == ".ci") folder = "Makefile, .ci"
        if (folder == "include" || folder == "cuda") folder = "src" # where they are hand-written
        lines[folder, $1] += $2
        total[folder == "tests" ? "tests" : "code", $1] += $2
        seen[folder] = 1
    }
    function row(name, of, key,   i) {
        printf "| %s |", name
        for (i = 1; i <= n; i++) printf " %d |", of[key, rev[i]]
        print ""
    }
    BEGIN { n = split(revisions, rev, " ") }
    END {
        printf "| folder |"
        for (i = 1; i <= n; i++) printf " `%s` |", substr(rev[i], 1, 7)
        printf "\n|---|"
        for (i = 1; i <= n; i++) printf "--:|"
        print ""
        m = split("src lib engine tools adapters python examples bench data", folders, " ")
        for (f = 1; f <= m; f++) if (folders[f] in seen) row("`" folders[f] "`", lines, folders[f])
        row("Makefile, `.ci`", lines, "Makefile, .ci")
        row("**code**", total, "code")
        row("`tests`", lines, "tests")
    }'
