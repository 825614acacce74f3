#!/usr/bin/env bash
# completion.sh BIN OUT : completion of tools, verbs, options and values for bash, zsh and fish,
# from every --help: OUT/bash/specrt, OUT/zsh/_specrt and OUT/fish/specrt.fish.
set -eu
bin=$1 out=$2
here=$(dirname "$0")
mkdir -p "$out/bash" "$out/zsh" "$out/fish"
tools=$(for folder in "$here"/*/; do
    tool=$(basename "$folder")
    [ ! -x "$bin/$tool" ] || echo "$tool"
done | xargs)
options() { "$bin/$1" ${2:+"$2"} --help | awk -v key="$*" -f "$here/completion.awk"; }
table=$(for tool in $tools; do
    options "$tool" | tee "$out/own"
    awk -F '\t' '$3 == "verb" { print $2 }' "$out/own" | while read -r verb; do
        options "$tool" "$verb"
    done
done)
rm "$out/own"

# What bash and zsh share. _specrt_values "TOOL [VERB] [OPTION]" : the words that may follow, files,
# or the tool that a verb is.
functions=$(awk -F '\t' '
    function quoted(text) { gsub(/\047/, "", text); return "\047" text "\047" }
    {
        words[$1] = words[$1] " " $2
        if ($3 ~ /^tool /) values[quoted($1 " " $2)] = substr($3, 6)
        else if ($3 != "" && $3 != "-" && $3 != "verb")
            for (i = split($2, names, " "); i > 0; i--) values[quoted($1 " " names[i])] = $3
    }
    END {
        print "_specrt_values() {\n    case $1 in"
        fflush()
        for (key in words) values[quoted(key)] = substr(words[key], 2)
        for (key in values) print "    " key ") echo \"" values[key] "\" ;;" | "sort"
        close("sort")
        print "    esac\n}"
    }' <<<"$table")
functions+='
# _specrt_reply TOOL WORD... : what the last word may be: its choices, or files.
_specrt_reply() {
    local key=${1##*/} last="" previous="" word
    shift
    if [ "$key" = specrt ] && [ $# -gt 1 ]; then
        case $(_specrt_values "specrt $1") in
        specrt-* | *-build | *-calibrate) key=$(_specrt_values "specrt $1"); shift ;;
        esac
    fi
    if [ $# -gt 1 ] && [ -n "$(_specrt_values "$key $1")" ]; then
        case $1 in -*) ;; *) key="$key $1"; shift ;; esac
    fi
    for word; do previous=$last last=$word; done
    case $last in -*) _specrt_values "$key"; return ;; esac
    case $previous in
    -*) word=$(_specrt_values "$key $previous"); echo "${word:-files}"; return ;;
    esac
    word=$(_specrt_values "$key" | tr " " "\n" | grep -v "^-") # verbs
    if [ $# = 1 ] && [ -n "$word" ]; then echo "$word"; else echo files; fi
}'
cat >"$out/bash/specrt" <<END
# bash completion of specrt's tools, written by tools/completion.sh.
$functions
_specrt() {
    local current=\${COMP_WORDS[COMP_CWORD]} words
    words=\$(_specrt_reply "\${COMP_WORDS[@]:0:COMP_CWORD + 1}")
    mapfile -t COMPREPLY < <(compgen -W "\${words%files}" -- "\$current")
    case \$words in
    *files) compopt -o filenames 2>/dev/null
        mapfile -t -O \${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "\$current") ;;
    esac
}
complete -F _specrt $tools
END
cat >"$out/zsh/_specrt" <<END
#compdef $tools
# zsh completion of specrt's tools, written by tools/completion.sh.
$functions
local found=\$(_specrt_reply "\${(@)words[1,CURRENT]}")
compadd -- \${=found%files}
case \$found in *files) _files ;; esac
END
awk -F '\t' '
    function quoted(text) { gsub(/[\\\047]/, "\\\\&", text); return "\047" text "\047" }
    # line COMMAND WORDS ROW : the row of a tool, for a command behind these words.
    function line(command, words, row,    f, names, m, i, text) {
        split(rows[row], f, "\t")
        text = "complete -c " command
        if (f[3] == "verb" || f[3] ~ /^tool /) {
            print text " -n \"__specrt_is " words "\" -f -a " f[2] " -d " quoted(f[4])
            return
        }
        if (words != "") text = text " -n \"__specrt_in " words "\""
        m = split(f[2], names, " ")
        for (i = 1; i <= m; i++)
            text = text (names[i] ~ /^--/ ? " -l " substr(names[i], 3) : " -s " substr(names[i], 2))
        if (f[3] == "files") text = text " -r"
        else if (f[3] != "-") text = text " -x" (f[3] == "" ? "" : " -a " quoted(f[3]))
        print text " -d " quoted(f[4])
    }
    { rows[NR] = $0; if ($3 ~ /^tool /) name[substr($3, 6)] = $2 }
    END {
        print "# fish completion of the tools of specrt, written by tools/completion.sh."
        print "function __specrt_words # the words behind the command, up to the first option"
        print "    set -l words (commandline -opc)"
        print "    for word in $words[2..]"
        print "        string match -q -- \"-*\" $word; and break"
        print "        echo $word"
        print "    end"
        print "end"
        print "function __specrt_is"
        print "    set -l words (__specrt_words)"
        print "    test \"$words\" = \"$argv\""
        print "end"
        print "function __specrt_in"
        print "    set -l words (__specrt_words)"
        print "    string match -q -- \"$argv *\" \"$words \""
        print "end"
        for (row = 1; row <= NR; row++) {
            split(rows[row], f, "\t")
            n = split(f[1], key, " ")
            line(key[1], n > 1 ? key[2] : "", row)
            if (key[1] in name) line("specrt", name[key[1]] (n > 1 ? " " key[2] : ""), row)
        }
    }' <<<"$table" >"$out/fish/specrt.fish"
