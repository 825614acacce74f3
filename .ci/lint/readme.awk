# readme.awk README.md : figures of README's tables that the result page named in the same row does not have.
/^\|/ && match($0, /bench\/results\/[a-z-]+\.md/) {
    page = substr($0, RSTART, RLENGTH)
    text = ""
    while ((getline line < page) > 0) text = text line "\n"
    close(page)
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
