# check_sections.awk : sections of specrt.h only reach into those they list, all of which stand above.
# Sections of specrt_kernels.cu, read after it, also into those of its own that stand above.
# A section starts with:  // >>hnsw (uses: base bundle)
# Private names carry it: specrt__hnsw_search, SPECRT__HNSW_LIMIT.
FNR == 1 { check_length(); section = "" }
{ last = FNR }
/^\/\/ >>/ {
    check_length()
    section = $2; sub(/^>>/, "", section)
    if (seen[section] == FILENAME) bad("section repeated: " section)
    seen[section] = FILENAME; start = FNR
    split("", allowed); allowed[section] = 1
    if (match($0, /\(uses:[^)]*\)/)) {
        n = split(substr($0, RSTART + 6, RLENGTH - 7), list, " ")
        for (i = 1; i <= n; i++) {
            allowed[list[i]] = 1
            if (!(list[i] in seen)) bad(section " uses " list[i] ", which stands below it")
        }
    }
    next
}
section {
    line = tolower($0)
    while (match(line, /specrt__[a-z0-9]+_/)) {
        target = substr(line, RSTART + 8, RLENGTH - 9)
        if (!(target in allowed)) bad(section " reaches into " target)
        line = substr(line, RSTART + RLENGTH)
    }
}
function check_length() {
    if (section && last - start > 900) bad("section over 900 lines: " section)
}
function bad(message) { printf "%s:%d: %s\n", FILENAME, FNR, message; failed = 1 }
END { check_length(); exit failed }
