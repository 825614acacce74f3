# platforms_table.awk LOG docs/platforms.md : the page with its table as the last lines of
# tests/platforms.sh say; `make test-platforms` writes LOG.
BEGIN {
    n = split("windows windows-32 windows-clang arm64 armhf riscv64 macos-arm64 macos-x86_64 wasm" \
        " wasm-scalar", names, " ")
    split("Windows, x86-64|Windows, 32 bits|Windows, x86-64, clang|Linux, arm64: NEON|" \
        "Linux, armhf: 32 bits|Linux, riscv64|macOS, arm64|macOS, x86-64|" \
        "WebAssembly, vectors of 128 bits|WebAssembly, scalar", titles, "|")
}
FNR == NR { # windows: 37 tests run by wine, compiled by x86_64-w64-mingw32-gcc-posix (GCC) 12-posix
    if (match($0, /^[a-z0-9_-]+: [0-9]+ tests /)) {
        name = substr($0, 1, index($0, ":") - 1)
        how[name] = substr($0, RLENGTH + 1)
        count[name] = $2
        sub(/, compiled by .*/, "", how[name])
        sub(/run by tests\/wasm\/run.py/, "run by wasmtime", how[name])
        sub(/.*, compiled by /, "")
        by[name] = $0
    }
    next
}
/^<!-- platforms table/ {
    print
    print "| platform | unit tests | how | compiler |"
    print "|---|--:|---|---|"
    for (i = 1; i <= n; i++)
        if (names[i] in how)
            printf "| %s | %d | %s | %s |\n", titles[i], count[names[i]], how[names[i]], by[names[i]]
    inside = 1
    next
}
/^<!-- end of the platforms table/ { inside = 0 }
!inside
