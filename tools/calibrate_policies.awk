# calibrate_policies.awk : print the policies of a comparison and the recommended policy, from the JSON
# of `specrt-eval compare`, one row per line. `compare` recommends by each policy's worst task.
# -v own=1: the target drafted for itself, so there is no speed to recommend by. Then the policy with
# the fewest bytes is recommended, of those that retain in their worst task at most two points less
# of the accept length than the best. -v best=FILE receives the recommended name, or "plain".
# -v num_steps=N: drafts of a chain.

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
    recommended = text("recommended")
    policy = text("recommended_policy")
    pays = number("speculation_pays")
    match($0, /"as_fast":\[[^]]*\]/)
    as_fast = substr($0, RSTART + 11, RLENGTH - 12)
    gsub(/"/, "", as_fast)
    gsub(/,/, ", ", as_fast)
}
/^{"policy":/ && text("domain") == "all" && text("policy") != "plain" {
    names[++n] = text("policy")
    at[names[n]] = n
    width = length(names[n]) > width ? length(names[n]) : width
    accept[n] = number("accept_length")
    kept[n] = number("accept_full")
    worst[n] = number("worst_accept_full") # "": the prompts have one task
    task[n] = worst[n] == "" ? "" : text("worst_domain")
    rows[n] = number("shortlist_rows")
    bytes[n] = number("bytes_pass")
    plain[n] = number("speedup_plain")
    full[n] = number("speedup_full")
    between[n] = own ? interval("accept_full", 100, "%.1f") : interval("accept_length", 1, "%.2f")
    n_compared += number("n_compared")
}
function at_worst(i) { return worst[i] == "" ? kept[i] : worst[i] }
function worst_cell(i) { return worst[i] == "" ? "-" : sprintf("%.1f%%", 100 * worst[i]) }
function choose_own(  i, most, chosen) {
    for (i = 1; i <= n; i++) if (names[i] != "full" && at_worst(i) > most) most = at_worst(i)
    for (i = 1; i <= n; i++) {
        if (names[i] == "full" || at_worst(i) < most - 0.02) continue
        if (!chosen || bytes[i] < bytes[chosen]) chosen = i
    }
    return chosen
}
function row_own(i) {
    printf "%6.2f  %6.1f%%  %11s  %6s  %7s  %8.2f\n", accept[i], 100 * kept[i], between[i],
        worst_cell(i), commas(rows[i]), bytes[i] / 1e6
}
function row_pair(i) {
    printf "%6.2f  %9s  %6.1f%%  %6s  %7s  %7.2f  %6.2f\n", accept[i], between[i], 100 * kept[i],
        worst_cell(i), commas(rows[i]), plain[i], full[i]
}
function verdict_own(i) {
    print "  The target drafted for itself: this shows what lists keep, not speed, which needs a"
    print "  real drafter: an EAGLE head, an MTP module or a small GGUF with this tokenizer."
    printf "  %s keeps %.1f%% of accept length and reads %.1f%% of the head's bytes.\n", names[i],
        100 * kept[i], 100 * bytes[i] / bytes[1]
}
# Of cycles that take as long, so many tokens each are plain decoding's speed.
function verdict_plain(i,  need) {
    need = accept[i] / plain[i]
    print "  Decode plainly, or let a larger drafter draft: on this machine no policy with this"
    print "  drafter is faster than plain decoding."
    printf "  The policy to draft with is %s: %.2f times its speed, accept length %.2f.\n", names[i], \
        plain[i], accept[i]
    printf "  A drafter whose cycles take as long "
    if (need < num_steps + 1) printf "is faster from an accept length of %.2f on.\n", need
    else printf "is never faster: %d drafts give %d tokens at most.\n", num_steps, num_steps + 1
}
function verdict_pair(i) {
    if (recommended == "plain") verdict_plain(i)
    else printf "  Recommended: %s, %.2f times plain decoding, %.2f times the full vocabulary.\n", \
        names[i], plain[i], full[i]
    if (recommended != "plain" && pays == 0)
        print "  Whether it is faster than plain decoding, these prompts cannot tell."
    if (as_fast != "")
        printf "  As fast, within the error of these prompts: %s; %s scores the fewest rows.\n", as_fast, \
            names[i]
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
    chosen = own ? choose_own() : at[policy]
    if (!chosen) exit
    if (own) verdict_own(chosen)
    else verdict_pair(chosen)
    if (worst[chosen] == "")
        print "  These prompts name fewer than two tasks, so the mean over all prompts decides."
    else
        printf "  In its worst task (%s) %s retains %.1f%% of the full vocabulary's accept length.\n",
            task[chosen], names[chosen], 100 * worst[chosen]
    print (own || recommended != "plain" ? names[chosen] : "plain") >best
}
