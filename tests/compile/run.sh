#!/usr/bin/env bash
# run.sh : the header under every standard and option, with gcc; with EVERYTHING=1 (`make test-all`)
# optimised and with clang, too; with TEST_QUICK=1 (`make test`) in C99, in C++11 and small. Closes
# with "N passed, N failed, N skipped".
set -u
EVERYTHING=${EVERYTHING:-} quick=${TEST_QUICK:-}
here=$(dirname "$0") passed=0 failed=0 skipped=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
warn="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wvla -Werror -Iinclude"
golden=tests/golden/bundles

check() { # name, command...
    local name=$1 out; shift
    if out=$("$@" 2>&1); then passed=$((passed + 1)); else
        failed=$((failed + 1)); echo "FAIL $name: $(head -n 5 <<<"$out")"
    fi
}

# The implementation beside two users of the declarations, position-dependent for symbols(), and
# with a worker: from OBJECT, if another check compiled one with SPECRT_WORKER.
language() { # name, compiler with language and standard [, OBJECT]
    local name=$1 cc=$2 worker=("$here/implementation.c")
    [ -z "${3:-}" ] || worker=(-x none "$3")
    check "$name implementation" $cc $warn -O0 -fno-pic -c "$here/implementation.c" \
        -o "$work/$name.o"
    check "$name two users" $cc $warn -O0 -fno-pic -no-pie "$here"/{program,other}.c \
        -x none "$work/$name.o" -lzstd -lm -o "$work/two"
    check "$name zstd" "$work/two" $golden/v1.0-zstd.specb 0 17
    check "$name raw" "$work/two" $golden/v1.0-raw.specb 0 17
    check "$name damaged" "$work/two" tests/golden-errors/bundles/overlap.23.specb 23 -1
    if [ -n "$quick" ] && [ "$name" = g++ ]; then return; fi
    check "$name worker" $cc $warn -O0 -DSPECRT_WORKER -pthread \
        "$here/worker.c" "${worker[@]}" -lzstd -lm -o "$work/worker"
    check "$name worker runs" "$work/worker"
}

# Of other libraries it needs what ISO C has, in memory.
asks_none() { # object
    nm -u "$1" | awk '{ print $2 }' >"$work/asked"
    grep -qx malloc "$work/asked" &&
        ! grep -E '^(f?open|close|f?read|mmap|munmap|madvise|sched|sysconf|clock)' "$work/asked"
}

# Twice in one program, each to itself; bare, without libzstd or vector instructions; and with the
# warnings that optimising brings. Macros decide, so one compiler will do.
options() { # name, compiler with language and standard
    local name=$1 cc=$2
    check "$name static" $cc $warn -O0 "$here"/static_{program,other}.c -lzstd -lm -o "$work/static"
    check "$name static runs" "$work/static" $golden/v1.0-zstd.specb 0 17
    check "$name bare" $cc $warn -O0 -DSPECRT_NO_ZSTD -DSPECRT_NO_SIMD \
        "$here"/{program,implementation}.c -lm -o "$work/bare"
    check "$name bare raw" "$work/bare" $golden/v1.0-raw.specb 0 17
    check "$name bare refuses" "$work/bare" $golden/v1.0-zstd.specb 4 -1
    check "$name no files" $cc $warn -O0 -DSPECRT_NO_ZSTD -DSPECRT_NO_FILES -c \
        "$here/implementation.c" -o "$work/nofiles.o"
    check "$name no files asks no system" asks_none "$work/nofiles.o"
    check "$name no files links" $cc $warn -O0 "$here/program.c" -x none "$work/nofiles.o" -lm \
        -o "$work/nofiles"
    check "$name no files refuses" "$work/nofiles" $golden/v1.0-raw.specb 2 -1
    [ -z "$EVERYTHING" ] ||
        check "$name -O2" $cc $warn -O2 -DSPECRT_WORKER -c "$here/implementation.c" \
            -o "$work/impl.o"
}

# Functions that the header declares, which its implementation with SPECRT_TOOLS has; without, and
# small, it lacks some.
has_all_but() { # object, those that it lacks
    diff <(tools/exports.sh cc | grep -vE "$2") \
        <(nm -g --defined-only "$1" | awk '$2 == "T" { print $3 }' | grep '^specrt_' | sort -u)
}
text_of() { size "$1" | awk 'NR == 2 { print $1 }'; }
less() { # object, of a hundred parts of another's text, that other
    [ $((100 * $(text_of "$1"))) -lt $(($2 * $(text_of "$3"))) ] ||
        { echo "expected less than $2% of $(text_of "$3") bytes, found $(text_of "$1")"; return 1; }
}
# For gcc optimised with EVERYTHING=1, which brings warnings; clang warns of the same at -O0.
parts() { # name, compiler with language, standard and level of optimising
    local name=$1 cc=$2 part sections='specrt_(bundle_(cograph|clusters|sketch|hnsw)|cograph|hnsw)'
    local adapt
    adapt=$(sed -nE 's/^SPECRT_API .*(specrt_[a-z0-9_]+)\(.*/\1/p' src/specrt_adapt.h)
    adapt="^(${adapt//$'\n'/|})$"
    for part in "" SMALL TOOLS; do
        check "$name implementation $part" $cc $warn -DSPECRT_WORKER ${part:+-DSPECRT_$part} \
            -c "$here/implementation.c" -o "$work/parts$part.o"
        check "$name static $part" $cc $warn -O0 ${part:+-DSPECRT_$part} \
            -DSPECRT_STATIC -fsyntax-only "$here/implementation.c"
    done
    check "$name has tools" has_all_but "$work/partsTOOLS.o" '^$'
    check "$name has no tools" has_all_but "$work/parts.o" \
        "specrt_(trace|align)_|specrt_hnsw_(nearest|scores|any_above)$|$adapt"
    check "$name small has no sections" has_all_but "$work/partsSMALL.o" \
        "specrt_(trace|align)_|$sections|$adapt"
    check "$name is smaller without tools" less "$work/parts.o" 97 "$work/partsTOOLS.o"
    check "$name small is smaller" less "$work/partsSMALL.o" 68 "$work/parts.o"
    check "$name small or tools" eval "! $cc -Iinclude -DSPECRT_SMALL -DSPECRT_TOOLS \
        -fsyntax-only $here/implementation.c 2>/dev/null"
}

# MicroSpec in a small program, whose saved sessions are those of others.
small() { # compiler, with standard
    local part
    for part in SMALL $([ -n "$quick" ] || echo TOOLS); do
        check "small.c $part" $1 $warn -O0 -DSPECRT_$part "$here"/{small,implementation}.c \
            -lzstd -lm -o "$work/with$part"
        check "small.c $part saves" "$work/with$part" save "$work/saved$part"
    done
    check "small.c refuses" "$work/withSMALL" refuse
    [ -z "$quick" ] || return
    check "small.c loads" "$work/withSMALL" load "$work/savedTOOLS"
    check "small.c is loaded" "$work/withTOOLS" load "$work/savedSMALL"
    check "small.c saves alike" cmp "$work/savedSMALL" "$work/savedTOOLS"
    for part in minimal batch; do
        check "$part small" $1 $warn -O0 -DSPECRT_SMALL examples/$part.c -lzstd -lm -o "$work/$part"
    done
    check "minimal small runs" "$work/minimal"
    check "batch small runs" "$work/batch"
}

# The README's lines for C decode over the models of the examples; those of docs/integrations/c.md
# for C++ compile.
readme() { # compiler
    local lines='/^```c$/,/^```$/'
    sed -n "$lines{/^#/p}" README.md >"$work/readme_head.h"
    sed -n "$lines{/^\`\`\`/!{/^#/!p}}" README.md >"$work/readme_body.h"
    [ "$(cat "$work"/readme_*.h | grep -c .)" -le 20 ] ||
        { echo "README: over 20 lines of C"; return 1; }
    $1 -std=c99 $warn -O0 -I. -I"$work" "$here/readme.c" -lzstd -lm -o "$work/readme" &&
        "$work/readme"
}
readme_cpp() { # compiler
    {
        echo '#include "specrt.h"'
        echo 'int readme(specrt_bundle *bundle, specrt_head *head);'
        echo 'int readme(specrt_bundle *bundle, specrt_head *head) {'
        echo 'specrt_policy *policy; specrt_session *session; specrt_error err;'
        sed -n '/^```cpp$/,/^```$/{/^```/!p}' docs/integrations/c.md
        echo 'return err.status; }'
    } >"$work/readme.cc"
    grep -q specrt_policy_create "$work/readme.cc" &&
        $1 -std=c++11 $warn -fsyntax-only "$work/readme.cc"
}

# An example includes what it uses: the header's declarations bring <stddef.h> and <stdint.h>, and
# its implementation, which brings more, is left out.
example() { # compiler with standard, file, language
    sed '/^#define SPECRT_IMPLEMENTATION/d' "$2" |
        $1 -D_DEFAULT_SOURCE $warn -Ilib -I. -Isrc -Iexamples -fsyntax-only -x "$3" -
}

# Declarations under all warnings of clang, but of holes in structs: fields are in the order in
# which they are read.
everything() { # compiler with language and standard
    printf '#include "specrt.h"\n' |
        $1 -DSPECRT_WORKER -Weverything -Wno-padded -Werror -Iinclude -fsyntax-only -
}

# Functions that a header declares. The single header has the tools' and the device's too.
declared() { # compiler, folder of the header
    printf '#include "specrt.h"\n' | "$1" -DSPECRT_WORKER -I"$2" -E -P - | tr '\n' ' ' |
        grep -oE 'extern [^;{]* \*?specrt_[a-z0-9_]+\(' |
        grep -oE 'specrt_[a-z0-9_]+\($' | sort -u
}
tiers() { # compiler
    local n=$(declared "$1" src | wc -l) all=$(declared "$1" include)
    [ "$n" -ge 55 ] && [ "$n" -le 75 ] ||
        { echo "src/specrt.h has $n functions; expected 55 to 75"; return 1; }
    ! declared "$1" src | grep -E 'hnsw|trace|align|cuda' || return 1
    for name in session_create hnsw_nearest trace_read cuda_session_create; do
        grep -qx "specrt_$name(" <<<"$all" || { echo "the single header lacks $name"; return 1; }
    done
    ! grep -E 'specrt_cuda_(pack|verify|state_begin)' <<<"$all"
}

# Strict C that included something else first is told what to do.
late() { # compiler
    local out
    out=$($1 -std=c99 -Iinclude -fsyntax-only "$here/late.c" 2>&1) && return 1
    grep -q 'before other headers, or add -D_DEFAULT_SOURCE' <<<"$out" &&
        $1 -std=c99 -D_DEFAULT_SOURCE -Iinclude -fsyntax-only "$here/late.c"
}

# Options under which NaN passes for a number, or sums round otherwise for another batch.
fast_math() { # compiler, option
    ! $1 $2 -Iinclude -fsyntax-only "$here/implementation.c" 2>"$work/fast" &&
        grep -q 'without -ffast-math' "$work/fast"
}

# All names are ours; nothing prints or exits; no variables (position-dependent code, since
# otherwise constant tables of pointers are relocated and count as variables).
symbols() { # object
    ! nm -g --defined-only "$1" | awk '{ print $3 }' | grep -v '^specrt_' &&
        ! nm -u "$1" |
            grep -wE 'printf|puts|putchar|fprintf|fwrite|stdout|stderr|exit|abort|pthread_create' &&
        ! nm "$1" | grep -E ' [BbCDdGgSs] '
}

# The lints of folders and of functions' lengths see each kind of breach.
breach() { # lint, its complaint, file's name, its text
    mkdir -p "$work/$(dirname "$3")"
    printf "$4" >"$work/$3"
    (cd "$work" && awk -f "$OLDPWD/.ci/lint/$1" "$3") | grep -q "$2"
}
check "includes upward" breach includes.awk 'base may not include formats/gguf.h' \
    lib/base/x.c '#include "formats/gguf.h"\n'
check "includes of the command line" breach includes.awk 'engine may not include base/cli.h' \
    engine/x.c '#include "base/cli.h"\n'
check "includes of another tool" breach includes.awk 'tools may not include other.h' \
    tools/a/x.c '#include "other.h"\n'
check "includes of a source by the core" breach includes.awk \
    'core may not include sources/window.h' src/core/x.c '#include "sources/window.h"\n'
check "includes of what is private to src" breach includes.awk \
    'tools may not include core/head.h' tools/a/x.c '#include "core/head.h"\n'
check "guards" breach includes.awk 'guard OLD_X_H; expected BASE_X_H' \
    lib/base/x.h '#ifndef OLD_X_H\n#define OLD_X_H\n'
long="static int f(void) {\\n$(yes '    x;\n' | head -n 80 | tr -d '\n')}\\n"
check "lengths" breach lengths.awk 'a function of 82 lines' lib/base/long.c "$long"

check "a table without raw output" breach figures.awk 'expected a link' page.md \
    '# Speed\n\n`make bench`, commit `1234567`.\n\n| a |\n'
check "a table without a commit" breach figures.awk 'expected the commit' page.md \
    '# Speed\n\n`make bench`, [raw output](raw/a/b.txt).\n\n| a |\n'
head='machine: x\ncommit: 1234567\n'
check "a raw section without a command" breach figures.awk '^raw.txt:6: expected' raw.txt \
    "## a\n${head}command: make\n\n## b\n$head\ncommand: make\n"

# So does the lint of what Microsoft's compiler refuses, where no other compiler is asked for.
refused() { # text
    printf "$1" >"$work/words.h"
    .ci/lint/msvc.sh "$work/words.h" | grep -q 'expected C that Microsoft'
}
check "an attribute for Microsoft's compiler" refused 'static int f __attribute__((unused));\n'
check "a statement expression" refused '#if !defined(__GNUC__)\nint f = ({ 1; });\n#endif\n'
check "an attribute for gcc alone" eval \
    "! refused '#if defined(__GNUC__)\\nint f __attribute__((unused));\\n#endif\\n'"

# So does the lint of prose, and it lets a plain page pass.
prose() { # text
    printf "$1" >"$work/page.md"
    python3 .ci/lint/prose.py "$work/page.md" >/dev/null
}
if command -v python3 >/dev/null; then
    check "plain prose" prose 'Run `make test`. It takes a minute.\n'
    check "a long sentence" eval "! prose '$(yes word | head -n 41 | tr '\n' ' ').\n'"
    check "a phrase to avoid" eval '! prose "A token is told apart. It is told so.\n"'
    printf 'sl_cli_usage("it is told so");\n' >"$work/said.c"
    check "a phrase to avoid in an error" eval \
        '! python3 .ci/lint/errors.py --check "$work/said.c" >/dev/null'
else
    echo "skipped: the lint of prose: python3 is not installed"; skipped=$((skipped + 1))
fi

# family C_COMPILER CXX_COMPILER : in a process of its own, which leaves its tally in a file.
family() (
    local level tally=$work/$1.tally work=$work/$1 passed=0 failed=0 skipped=0
    mkdir "$work"
    if command -v "$1" >/dev/null && command -v "$2" >/dev/null; then
        level=-O0
        if [ "$1" = gcc ] && [ -n "$EVERYTHING" ]; then level=-Os; fi
        [ -n "$quick" ] || parts "$1" "$1 -std=c99 $level"
        language "$1" "$1 -std=c99" $(ls "$work/parts.o" 2>/dev/null)
        [ "$2" != g++ ] || [ -n "$quick" ] || options "$2" "$2 -x c++ -std=c++11"
        language "$2" "$2 -x c++ -std=c++11" $(ls "$work/impl.o" 2>/dev/null)
        [ "$1" != gcc ] || small "$1 -std=c99"
        if [ -z "$quick" ]; then
            check "$1 gnu17" $1 -std=gnu17 $warn -fsyntax-only "$here/implementation.c"
            check "$2 c++20" $2 -x c++ -std=c++20 $warn -DSPECRT_TOOLS -fsyntax-only \
                "$here/implementation.c"
        fi
        check "$1 -ffast-math" fast_math "$1" -ffast-math
        check "$1 -ffinite-math-only" fast_math "$1" -ffinite-math-only
        check "$1 readme" readme "$1"
        check "$2 readme" readme_cpp "$2"
        check "$1 late" late "$1"
        for file in examples/*.c; do check "$1 $file" example "$1 -std=c99" "$file" c; done
        for file in examples/*.cpp; do check "$2 $file" example "$2 -std=c++17" "$file" c++; done
        check "$1 symbols" symbols "$work/$1.o"
        check "$1 tiers" tiers "$1"
        [ "$1" != clang ] || check "$1 -Weverything" everything "$1 -std=c99 -x c"
        [ "$2" != clang++ ] || check "$2 -Weverything" everything "$2 -std=c++11 -x c++"
    else
        echo "skipped: $1 is not installed"; skipped=1
    fi
    echo "$passed $failed $skipped" >"$tally"
)
compilers="gcc ${EVERYTHING:+clang}"
for compiler in $compilers; do
    case $compiler in gcc) family gcc g++ ;; *) family clang clang++ ;; esac \
        >"$work/$compiler.log" &
done
wait
for compiler in $compilers; do
    cat "$work/$compiler.log"
    read -r p f s <"$work/$compiler.tally"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "compile: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
