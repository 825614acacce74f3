# links.awk FILE.md... : links of Markdown files to files, and to headings of the files given, that
# do not exist. Anchors are made as GitHub makes them: lower case, punctuation dropped, spaces to hyphens.

function folder(path) { return sub("/[^/]*$", "", path) ? path "/" : "" }

# a/b/../c is a/c
function resolved(path) {
    gsub("/\\./", "/", path)
    sub("^\\./", "", path)
    while (sub("[^/.][^/]*/\\.\\.(/|$)", "", path)) {
    }
    return path
}
function exists(path) {
    if (!(path in there)) there[path] = system("test -e '" path "'") == 0
    return there[path]
}
function anchor(heading) {
    gsub(/`/, "", heading)
    heading = tolower(heading)
    gsub(/[^a-z0-9_ -]/, "", heading)
    gsub(/ /, "-", heading)
    return heading
}

FNR == 1 { fenced = 0; given[FILENAME] = 1 }
/^```/ { fenced = !fenced; next }
fenced { next }
/^#+ / {
    sub(/^#+ +/, "")
    name = FILENAME "#" anchor($0)
    anchors[n_same[name] ? name "-" n_same[name] : name] = 1
    n_same[name]++
}
{
    while (match($0, /\]\([^)]+\)/)) {
        link = substr($0, RSTART + 2, RLENGTH - 3)
        $0 = substr($0, RSTART + RLENGTH)
        if (link ~ /^[a-z]+:/) continue
        where[++n] = FILENAME ":" FNR
        links[n] = FILENAME " " link
    }
}
END {
    for (i = 1; i <= n; i++) {
        split(links[i], part, " ")
        target = part[2]
        sub(/#.*/, "", target)
        path = target == "" ? part[1] : resolved(folder(part[1]) target)
        if (!exists(path)) fault = "no such file"
        else if (part[2] ~ /#/ && path in given && !(path substr(part[2], index(part[2], "#")) in anchors))
            fault = "no such heading"
        else continue
        printf "%s: %s: %s\n", where[i], part[2], fault
        bad = 1
    }
    exit bad
}
