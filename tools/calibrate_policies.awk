# calibrate_policies.awk : print the policies of a comparison, one row per line, and what `specrt-eval compare`
# says of them, from its JSON. -v own=1: the target drafted for itself, so there are no speeds to show.
# -v best=FILE receives the name to run: a policy, or "plain".

function number(key) {
    if (!match($0, "\"" key "\":[-0-9.e+]+")) return ""
    return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}
function interval(key, scale, format,  ends) {
    if (!match($0, "\"" key "\":\\[[-0-9.e+]+,[-0-9.e+]+\\]")) return "-"
    split(substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 5), ends, ",")
    return sprintf(format "-" format, scale * ends[1], scale * ends[2])
}
function text(key) {
    match($0, "\"" key "\":\"[^\"]*\"")
    return substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 5)
}
function commas(n,  digits) {
    digits = sprintf("%.0f", n)
    while (match(digits, /^[0-9][0-9][0-9][0-9]+/))
        digits = substr(digits, 1, RLENGTH - 3) "," substr(digits, RLENGTH - 2)
    return digits
}

/"recommended":/ {
    recommended = own ? text("recommended_policy") : text("recommended")
    match($0, /"advice":\["([^"\\]|\\.|",")*"\]/)
    advice = substr($0, RSTART + 11, RLENGTH - 13)
    gsub(/","/, "\n  ", advice)
    gsub(/\\\//, "/", advice)
    gsub(/\\"/, "\"", advice)
}
/^{"policy":/ && text("domain") == "all" && text("policy") != "plain" {
    names[++n] = text("policy")
    width = length(names[n]) > width ? length(names[n]) : width
    accept[n] = number("accept_length")
    kept[n] = number("accept_full")
    worst[n] = number("worst_accept_full") # "": the prompts have one task
    rows[n] = number("shortlist_rows")
    bytes[n] = number("bytes_pass")
    whole[n] = number("speedup_request")
    full[n] = number("speedup_full")
    between[n] = own ? interval("accept_full", 100, "%.1f") : interval("accept_length", 1, "%.2f")
    n_compared += number("n_compared")
}
function worst_cell(i) { return worst[i] == "" ? "-" : sprintf("%.1f%%", 100 * worst[i]) }
function row_own(i) {
    printf "%6.2f  %6.1f%%  %11s  %6s  %7s  %8.2f\n", accept[i], 100 * kept[i], between[i],
        worst_cell(i), commas(rows[i]), bytes[i] / 1e6
}
function row_pair(i) {
    printf "%6.2f  %9s  %6.1f%%  %6s  %7s  %7.2f  %6.2f\n", accept[i], between[i], 100 * kept[i],
        worst_cell(i), commas(rows[i]), whole[i], full[i]
}
END {
    name = "  %-" width "s  "
    printf name, "policy"
    if (own) printf "%6s  %7s  %11s  %6s  %7s  %8s\n", "accept", "of full", "95%", "worst", "rows",
            "MB read"
    else printf "%6s  %9s  %7s  %6s  %7s  %7s  %6s\n", "accept", "95%", "of full", "worst", "rows",
            "x plain", "x full"
    for (i = 1; i <= n; i++) {
        printf name, names[i]
        if (own) row_own(i)
        else row_pair(i)
    }
    printf "\n  %s tokens compared with plain decoding: all equal\n", commas(n_compared)
    if (!recommended) exit
    print "  " advice
    print recommended >best
}
