# readme.awk README.md : figures of README's tables that the result page named in the same row does not have, and rows
# of the table that a benchmark wrote which its raw output, linked above them, does not have.
function text_of(path,    line, text) {
    while ((getline line < path) > 0) text = text line "\n"
    close(path)
    return text
}
match($0, /bench\/results\/raw\/[a-z-]+\/readme\.txt/) { raw = text_of(substr($0, RSTART, RLENGTH)) }
/^<!-- readme table/ { inside = 1 }
/^<!-- end of the readme table/ { inside = 0 }
inside && /^\|/ {
    n++
    if (index(raw, $0 "\n") == 0) {
        printf "%s:%d: not in the raw output of readme.txt\n", FILENAME, FNR
        bad = 1
    }
}
/^\|/ && match($0, /bench\/results\/[a-z-]+\.md/) {
    page = substr($0, RSTART, RLENGTH)
    text = text_of(page)
    if (text == "") next # links.awk says so
    row = $0
    gsub(/\([^)]*\)/, "", row)
    while (match(row, /[0-9]+\.[0-9]+[x%M ]/)) {
        figure = substr(row, RSTART, RLENGTH - 1)
        unit = substr(row, RSTART + RLENGTH - 1, 1)
        row = substr(row, RSTART + RLENGTH)
        if (row ~ /^B drafts/ || unit == "B") continue
        n++
        if (index(text, figure) == 0) {
            printf "%s:%d: %s: not in %s\n", FILENAME, FNR, figure, page
            bad = 1
        }
    }
}
END {
    if (n < 5) {
        print "README.md: found " n + 0 " figures with a result page; expected at least 5"
        bad = 1
    }
    exit bad
}
