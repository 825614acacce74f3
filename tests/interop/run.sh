#!/usr/bin/env bash
# run.sh [--torch FOLDER] [NAME...] : interoperability tests of this folder, opt-in, by their files'
# names: token_map_interop, transformers_live. Without names all that load our files into engines
# and clusters, NAME_live. Each has a virtual environment of its own under build/interop, with the
# pinned packages of requirements/NAME.txt, over those of torch.txt where its first line says so;
# NAME.nodeps.txt lists packages that come without what they ask for. What cannot be had is skipped
# with a line.
#
# FOLDER  a virtual environment that has torch.txt's packages, instead of making one (4 GB)
# $PYTHON an interpreter to take instead of all of them, whatever it has
#
# Run from the project's root (make interop); closes with one line "N passed, N failed, N skipped".
set -u
here=tests/interop made=build/interop passed=0 failed=0 skipped=0 torch=
if [ "${1:-}" = --torch ]; then torch=$2; shift 2; fi
mkdir -p $made
export PYTHONPATH=$PWD/python SPECRT_LIBRARY=$PWD/build/libspecrt.so SPECRT_TOOLS=$PWD/build/bin
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

# site FOLDER : where a virtual environment keeps its packages.
site() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# environment NAME : the virtual environment of requirements/NAME.txt, made unless it is there.
environment() {
    local name=$1 wanted=$here/requirements/$1 folder=$made/$1 base
    if [ "$name" = torch ] && [ -n "$torch" ]; then echo "$torch"; return; fi
    if ! cat "$wanted".txt "$wanted".nodeps.txt 2>/dev/null | cmp -s - "$folder/done"; then
        rm -rf "$folder"
        python3 -m venv "$folder" || return
        if head -n 1 "$wanted.txt" | grep -q 'over torch'; then
            base=$(environment torch) || return
            site "$base" >"$(site "$folder")/base.pth"
        fi
        "$folder/bin/pip" install -q --disable-pip-version-check -r "$wanted.txt" || return
        [ ! -e "$wanted.nodeps.txt" ] ||
            "$folder/bin/pip" install -q --disable-pip-version-check --no-deps \
                -r "$wanted.nodeps.txt" || return
        cat "$wanted".txt "$wanted".nodeps.txt >"$folder/done" 2>/dev/null
    fi
    echo "$folder"
}

# try SCRIPT : run it with its interpreter; add up the line it closes with.
try() {
    local script=$1 name python=${PYTHON:-} folder out code line p f s _
    name=$(basename "${script%.*}")
    name=${name%_*}
    echo "== $script"
    if [ -z "$python" ] && [ -e "$here/requirements/$name.txt" ]; then
        if ! folder=$(environment "$name" 2>$made/log); then
            echo "skipped: no packages of requirements/$name.txt: $(tail -n 1 $made/log)"
            skipped=$((skipped + 1))
            case $script in *.py) return ;; esac # others need more than Python, and go without it
        else
            python=$folder/bin/python
        fi
    fi
    case $script in
    *.py) out=$("${python:-python3}" "$script" 2>&1); code=$? ;;
    *) out=$(PYTHON=${python:-python3} "$script" 2>&1); code=$? ;;
    esac
    echo "$out"
    line=$(grep -oE '[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped' <<<"$out" | tail -n 1)
    if [ -z "$line" ]; then
        echo "FAIL $script: exit $code without a result line"
        failed=$((failed + 1))
        return
    fi
    read -r p _ f _ s _ <<<"${line//,/}"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

[ $# -gt 0 ] || set -- $(cd $here && printf '%s\n' *_live.* | sed 's/\..*//')
for name; do
    script=$(ls $here/"$name".* 2>/dev/null | head -n 1)
    [ -n "$script" ] || { echo "no $here/$name.py or .sh"; exit 2; }
    try "$script"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
