# calibrate_sections.awk : what a section of the bundle is worth, in a line, from the JSON of the
# tool that made it, cut before its braces. -v section=NAME -v answers=DOMAIN, the target's own.

function number(key) {
    if (!match($0, "\"" key "\":[-0-9.e+]+")) return ""
    return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}
function commas(n,  digits) {
    digits = sprintf("%.0f", n)
    while (match(digits, /^[0-9][0-9][0-9][0-9]+/))
        digits = substr(digits, 1, RLENGTH - 3) "," substr(digits, RLENGTH - 2)
    return digits
}
function percent(share) { return sprintf("%.1f%%", 100 * share) }
function show(text) { printf "  %-10s %s\n", section, text; exit }

section == "ranks" && number("n_selected") != "" {
    list = commas(number("n_selected")) " of " commas(number("n_valid")) " ids"
    if (number("coverage_holdout") != "")
        held = percent(number("coverage_holdout")) " of held-out text"
}
section == "ranks" && answers != "" && index($0, "\"name\":\"" answers "\"") &&
    number("coverage_holdout") != "" {
    own = percent(number("coverage_holdout")) " of the target's own"
}
section == "cograph" && number("successors") == 64 && number("share_of_pairs") != "" {
    show("the 64 likeliest successors of a token hold " percent(number("share_of_pairs")) \
        " of what follows")
}
section == "centroid" && number("rows_mean") != "" {
    show(commas(number("rows_mean")) " rows at a step, from the head alone")
}
(section == "dynaspec" || section == "coral") && /"kind":/ && number("rows_mean") != "" {
    show("the " commas(number("rows_mean")) " rows of a step hold " percent(number("recall")) \
        " of the target's best tokens")
}
section == "sketch" && number("rows") == 128 && number("recall_at_10") != "" {
    found = number("recall_at_10") # the last has the most dimensions
}
section == "hnsw" && number("ef") != "" && number("recall_at_10") != "" {
    show("a search at ef " number("ef") " finds " percent(number("recall_at_10")) \
        " of the ten best rows")
}
END {
    if (section == "ranks" && held != "") list = list " cover " held (own != "" ? ", " own : "")
    if (section == "ranks") printf "  %-10s %s\n", "list", list
    if (found != "") printf "  %-10s %s\n", section, \
        "128 rows that it finds hold " percent(found) " of the ten best"
}
