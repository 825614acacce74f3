# costs.bash : costs of auto in their file; $kept names the file, $work a folder.

# again LOG COMMAND... : once more, up to five times, where the machine was too busy to keep them.
again() {
    local log=$1; shift
    for _ in 1 2 3 4 5; do
        "$@" || return 1
        grep -q "not kept: too busy to tell" "$log" || return 0
    done
    return 1
}

# given TARGET DRAFT [MACHINE] : the kept costs become such that a pass of n tokens takes 1 + TARGET (n - 1)
# thousandths of a second, one of the drafter DRAFT; MACHINE replaces the file's.
given() {
    awk -v more="$1" -v draft="$2" -v machine="${3:-}" '$1 == "sum" { next }
        $1 == "machine" && machine { print "machine " machine; next }
        $1 == "target" { print $1, $2, 0.001 * (1 + more * ($2 - 1)); next }
        $1 == "draft" { print $1, $2, draft / 1000; next }
        $1 == "head" { $2 = 0.00001 } { print }' "$kept" >"$work/given"
    { cat "$work/given"; echo "sum $(sha256sum <"$work/given" | cut -c 1-16)"; } >"$kept"
}
