# man.awk : the manual page of a tool or verb from its --help. -v page=specrt-eval-compare -v version=1.0.0
function quoted(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    sub(/^[.']/, "\\\\\\&&", text)
    return text
}
function line(text) { print quoted(text) }
# option TEXT : "-o, --output FILE  what it does", at two columns' distance.
function option(text,    at) {
    sub(/^ +/, "", text)
    print ".TP"
    at = match(text, /   *[^ ]/)
    print ".B " quoted(at ? substr(text, 1, at - 1) : text)
    if (at) line(substr(text, at + RLENGTH - 1))
}

{ sub(/[ \t]+$/, "") }
/^Example:$/ { part = "example"; next }
/^Usage: / { part = "usage"; usage = substr($0, 8); next }
/^Exit codes: / { part = "exit"; exits = substr($0, 13); next }
part == "example" && /^ / { sub(/^ +/, ""); example = example (example ? " " : "") $0; next }
part == "example" { part = "summary"; next }
part == "summary" && /^Verbs, each/ { part = "verbs"; next }
part == "summary" { summary = summary $0 "\n"; next }
part == "verbs" && /^  [a-z]/ { verbs[++n_verbs] = $0; next }
part == "usage" && /^  +[^ -]/ && !n_options { sub(/^ +/, " "); usage = usage $0; next }
part == "usage" && $0 != "" { options[++n_options] = $0; next }
part == "exit" { exits = exits " " $0 }

END {
    title = toupper(page)
    first = summary
    gsub(/\n/, " ", first)
    sub(/[.:;]( .*|$)/, "", first)
    printf ".TH %s 1 \"\" \"specrt %s\" \"specrt\"\n", quoted(title), version
    print ".SH NAME"
    line(page " - " tolower(substr(first, 1, 1)) substr(first, 2))
    print ".SH SYNOPSIS"
    print ".B " quoted(usage)
    print ".SH DESCRIPTION"
    n = split(summary, lines, "\n")
    for (i = 1; i <= n; i++) {
        table = lines[i] ~ /^ |[^ ]  / # lines with columns are not filled
        if (table != in_table) print (in_table = table) ? ".nf" : ".fi"
        if (lines[i] != "") line(lines[i])
    }
    if (in_table) print ".fi"
    if (n_verbs) print ".SH VERBS"
    for (i = 1; i <= n_verbs; i++) option(verbs[i])
    print ".SH OPTIONS"
    for (i = 1; i <= n_options; i++) {
        if (options[i] ~ /^[^ ]/)
            print ".SS " quoted(options[i])
        else if (options[i] ~ /^(  |      )-/)
            option(options[i])
        else {
            sub(/^ +/, "", options[i])
            line(options[i])
        }
    }
    print ".SH EXIT STATUS"
    line(exits)
    print ".SH EXAMPLE"
    print ".nf"
    line(example)
    print ".fi"
}
