# calibrate_policies.awk : the policies of a comparison and the best of them, from the JSON of
# `specrt-eval compare`, a row on a line. -v own=1: the target drafted for itself, and what counts
# is what a list keeps of accept length, for the fewest bytes. -v best=FILE takes the best's name.

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

/^{"policy":/ && text("domain") == "all" && text("policy") != "plain" {
    names[++n] = text("policy")
    width = length(names[n]) > width ? length(names[n]) : width
    accept[n] = number("accept_length")
    kept[n] = number("accept_full")
    rows[n] = number("active_rows")
    bytes[n] = number("bytes_pass")
    speed[n] = number("tokens_per_second")
    plain[n] = number("speedup_plain")
    full[n] = number("speedup_full")
    between[n] = own ? interval("accept_full", 100, "%.1f") : interval("accept_length", 1, "%.2f")
    n_compared += number("n_compared")
}
function choose(  i, most, chosen) {
    for (i = 1; i <= n; i++) if (names[i] != "full" && kept[i] > most) most = kept[i]
    for (i = 1; i <= n; i++) {
        if (names[i] == "full" || (own && kept[i] < most - 0.02)) continue
        if (!chosen || (own ? bytes[i] < bytes[chosen] : speed[i] > speed[chosen])) chosen = i
    }
    return chosen
}
function row_own(i) {
    printf "%6.2f  %6.1f%%  %11s  %7s  %8.2f\n", accept[i], 100 * kept[i], between[i],
        commas(rows[i]), bytes[i] / 1e6
}
function row_pair(i) {
    printf "%6.2f  %9s  %7s  %7.2f  %6.2f\n", accept[i], between[i], commas(rows[i]), plain[i],
        full[i]
}
function verdict_own(i) {
    print "  The target drafted for itself: this shows what lists keep, not speed, which needs a"
    print "  real drafter, an EAGLE head or a small GGUF with this tokenizer."
    printf "  %s keeps %.1f%% of accept length and reads %.1f%% of the head's bytes.\n", names[i],
        100 * kept[i], 100 * bytes[i] / bytes[1]
}
function verdict_pair(i) {
    printf "  %s is the fastest: %.2f times plain decoding, %.2f times the full vocabulary.\n",
        names[i], plain[i], full[i]
    if (plain[i] < 1) print "  Nothing beats plain decoding with this drafter on this machine."
}
END {
    name = "  %-" width "s  "
    printf name, "policy"
    if (own) printf "%6s  %7s  %11s  %7s  %8s\n", "accept", "of full", "95%", "rows", "MB read"
    else printf "%6s  %9s  %7s  %7s  %6s\n", "accept", "95%", "rows", "x plain", "x full"
    for (i = 1; i <= n; i++) {
        printf name, names[i]
        if (own) row_own(i)
        else row_pair(i)
    }
    printf "\n  %s tokens compared with plain decoding: all equal\n", commas(n_compared)
    chosen = choose()
    if (!chosen) exit
    if (own) verdict_own(chosen)
    else verdict_pair(chosen)
    print names[chosen] >best
}
