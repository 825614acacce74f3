# completion.awk : the options of one --help, a line each: KEY, names, what a value is, what it says. -v key=
# A value is "-" (there is none), "files", its choices, or nothing where the help names none.

# choices TEXT SPACED : the words that are separated by commas or "or" in its first part with two of them; with
# SPACED those of all parts that are words only.
function choices(text, spaced,    parts, items, n, m, i, j, found, count, all) {
    gsub(/\([^)]*\)/, "", text)
    gsub(/,? +or +/, ", ", text)
    n = split(text, parts, "[;:]")
    for (i = 1; i <= n; i++) {
        m = split(parts[i], items, spaced && parts[i] !~ /,/ ? " " : ", *")
        found = ""
        count = 0
        for (j = 1; j <= m; j++) {
            gsub(/^ +| +$/, "", items[j])
            if (items[j] !~ /^[a-z][a-z0-9._-]*$/) continue
            found = found (count++ ? " " : "") items[j]
        }
        for (j = 1; spaced && count == m && j <= m; j++)
            if (index(all " ", " " items[j] " ") == 0) all = all " " items[j]
        if (!spaced && count > 1) return found (parts[i + 1] ~ /^[, ]*none *$/ ? " none" : "")
    }
    return substr(all, 2)
}
function emit(    n, words, value, names, kind, i) {
    if (option == "") return
    n = split(option, words, /,? +/)
    for (i = 1; i <= n && words[i] ~ /^-/; i++) names = names (i > 1 ? " " : "") words[i]
    value = i <= n ? words[i] : ""
    if (value == "") kind = "-"
    else if (value ~ /FILE|DIR|PATH|FOLDER|GGUF/ || names == "--tokenizer") kind = "files"
    else if (value ~ /^[a-z0-9|]+$/) {
        gsub(/\|/, " ", value)
        kind = value
    } else if (value ~ /^(F|ENGINE|NAME|WHICH|WHO|WHAT|KIND|LIST|SPEC)/)
        kind = choices(says, value == "ENGINE" || names == "--format")
    printf "%s\t%s\t%s\t%s\n", key, names, kind, says
    option = ""
}
/^Verbs, each/ { verbs = 1; next }
verbs && /^  [a-z]/ {
    verb = $1
    sub(/^ +[^ ]+ +/, "")
    target = $0 ~ /\([a-z-]+\)$/ ? $NF : ""
    gsub(/[()]/, "", target)
    printf "%s\t%s\t%s\t%s\n", key, verb, target ? "tool " target : "verb", $0
    next
}
{ verbs = 0 }
/^Usage: / { body = 1 }
body && /^(  |      )-/ {
    emit()
    sub(/^ +/, "")
    match($0, /   *[^ ]|$/)
    option = substr($0, 1, RSTART - 1)
    says = substr($0, RSTART + RLENGTH - 1)
    next
}
/^     +[^ ]/ && option != "" {
    sub(/^ +/, "")
    says = says " " $0
    next
}
{ emit() }
END { emit() }
