# commands.awk PAGE : the page's shell commands as a script of bash. Each command is preceded by a line that
# appends PAGE:LINE to the file $AT, each skipped block gives "skipped PAGE:LINE: REASON" on the file -v skips=.
# A block begins with ```sh; words behind that are the reason why it is not run.
function emit(    at) {
    if (command !~ /^ *(#.*)?$/) printf "echo '%s:%d' >>\"$AT\"\n%s\n", FILENAME, line, command
    command = ""
}
/^```/ {
    if (fence) {
        emit()
        fence = run = 0
        next
    }
    fence = 1
    run = $0 == "```sh"
    if ($1 == "```sh" && !run) {
        sub(/^```sh /, "")
        printf "skipped %s:%d: %s\n", FILENAME, FNR, $0 >>skips
    }
    next
}
run {
    if (command == "") line = FNR
    else sub(/^ +/, "")
    command = command $0
    if (!sub(/\\$/, "", command)) emit()
}
# Whole commands of README's tables.
FILENAME == "README.md" && /^\|/ {
    n = split($0, spans, "`")
    for (i = 2; i <= n; i += 2)
        if (spans[i] ~ /^specrt.* --.* -o /) {
            command = spans[i]
            line = FNR
            emit()
        }
}
