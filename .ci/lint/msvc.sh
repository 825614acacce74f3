#!/usr/bin/env bash
# msvc.sh HEADER : what Microsoft's compiler sees of the header and its implementation, and refuses:
# GNU's words, and functions of POSIX. Arrays of variable length are found by gcc -Wvla, arrays and
# structs without elements by -Wpedantic, in tests/compile/run.sh. Without Microsoft's compiler this
# list is all that is checked.
set -euo pipefail
seen=$(sed '/^# *include *</d' "$1" |
    ${CC:-cc} -E -P -undef -D_MSC_VER=1939 -D_WIN32 -D_M_X64 -DSPECRT_IMPLEMENTATION \
        -DSPECRT_TOOLS -DSPECRT_WORKER -DSPECRT_NO_ZSTD -x c -)
words='__attribute__|__builtin_[a-z0-9_]+|__extension__|__(asm|typeof|inline|restrict)__|__auto_type'
words="$words|asm|typeof|restrict|__int128|_Complex|_Atomic|_Thread_local|__thread|vector_size"
words="$words|ssize_t|off_t|alloca|strdup|strndup|strcasecmp|strtok_r|usleep|getline|aligned_alloc"
words="$words|M_PI|clock_gettime|mmap|sysconf|unistd"
if bad=$(grep -nE "(^|[^A-Za-z0-9_])($words)([^A-Za-z0-9_]|$)|\(\{|\?:" <<<"$seen"); then
    echo "$1: expected C that Microsoft's compiler takes, found:"
    sed 's/^[0-9]*:/    /' <<<"$bad" | head -n 5
    exit 1
fi
