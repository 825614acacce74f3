# figures.awk PAGE.md... RAW.txt... : sections with a table that do not name the command, the
# commit and the raw output of their figures, or say that none is kept by "not reproduced yet"; and raw
# outputs that do not begin with commit and command.

function fault(where, what) { print where ": " what; bad = 1 }

function check_section() {
    if (!has_table || section == "" || section in exempt) return
    if (text !~ /commit `[0-9a-f]+`/) fault(place, section "; expected the commit, commit `1234567`")
    if (text !~ /`(make|bench|python3|specrt-|[a-z]+-build|vocabtrim-|compare)/)
        fault(place, section "; expected the command, in backquotes")
    if (text !~ /raw\/[a-z0-9\/-]+\.txt/ && text !~ /[Nn]ot reproduced yet/)
        fault(place, section "; expected a link to bench/results/raw/MACHINE/NAME.txt, or: not reproduced yet")
}
function check_raw() {
    if (raw != "" && (begin !~ /commit/ || begin !~ /(make|bench\/|build\/|specrt-)/))
        fault(raw ":1", "expected machine, commit and command in the first lines")
}

BEGIN {
    # What points at other sections, and what was trained on what.
    exempt["In short"] = exempt["Results by page"] = exempt["Machine, and how to repeat this"] = 1
    exempt["Trained, calibrated, tested"] = 1
}
FILENAME ~ /\.txt$/ {
    if (FNR == 1) {
        check_raw()
        raw = FILENAME
        begin = ""
    }
    if (FNR <= 6) begin = begin "\n" $0
    next
}
FNR == 1 { # the text above the first heading of a page
    check_section()
    section = place = text = has_table = ""
}
/^## / {
    check_section()
    section = substr($0, 4)
    place = FILENAME ":" FNR
    text = has_table = ""
}
{ text = text " " $0 }
/^\|/ { has_table = 1 }
END {
    check_section()
    check_raw()
    exit bad
}
