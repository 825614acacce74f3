# figures.awk PAGE.md... RAW.txt... : sections with a table that do not name the command, the
# commit and the raw output of their figures; a section without any of these has those of the page's
# first lines. Also raw outputs with a section that does not begin with machine, commit and command.

function fault(where, what) { print where ": " what; bad = 1 }

function has_source(t) { return t ~ /raw\/[a-z0-9\/-]+(\.txt|\))/ }

function check_section(   t) {
    t = has_source(text) ? text : begun text
    if (section == "") begun = text
    if (!has_table || section in exempt) return
    if (t ~ /\*\*Nothing on this page was measured/) return
    if (!has_source(t)) fault(place, section "; expected a link to bench/results/raw/MACHINE/NAME.txt")
    if (t !~ /[Cc]ommits? (`[0-9a-f]+`|and)|\[[^]]*[Cc]ommit/) fault(place, section "; expected the commit, commit `1234567`")
    if (t !~ /`[A-Z]*=?.*(make|bench|python3|specrt-|[a-z]+-build|vocabtrim-|compare)/ && t !~ /\[.*[Cc]ommand/)
        fault(place, section "; expected the command, in backquotes")
}
function check_raw() {
    if (raw != "" && begin !~ /^## [a-z0-9-]+\n(.*\n)?machine: .*\ncommit: .*\ncommand: .*(make|bench\/|build\/|specrt-)/)
        fault(raw, "expected '## NAME', then machine:, commit: and command: before an empty line")
}

BEGIN {
    # What points at other sections, and what was trained on what.
    exempt["In short"] = exempt["Results by page"] = exempt["Machine, and how to repeat this"] = 1
    exempt["Trained, calibrated, tested"] = exempt["Raw outputs with seen text"] = exempt["Goals"] = 1
}
FILENAME ~ /\.txt$/ {
    if (FNR == 1 || /^## /) {
        check_raw()
        raw = FILENAME ":" FNR
        begin = ""
        begins = 1
    }
    if ($0 == "") begins = 0
    if (begins) begin = begin $0 "\n"
    next
}
FNR == 1 { # the text above the first heading of a page
    check_section()
    section = text = has_table = begun = ""
    place = FILENAME ":1"
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
