# platforms_table.awk SAID... docs/platforms.md : the page, whose table has what tests/platforms.sh
# said last of a platform; other rows stay.
BEGIN {
    title["here"] = "this machine" # no row
    title["windows"] = "Windows, x86-64"
    title["windows-32"] = "Windows, 32 bits"
    title["windows-clang"] = "Windows, x86-64, clang"
    title["i686"] = "Linux, i686: 32 bits, SSE2"
    title["arm64"] = "Linux, arm64: NEON"
    title["armhf"] = "Linux, armhf: 32 bits"
    title["riscv64"] = "Linux, riscv64"
    title["macos-arm64"] = "macOS, arm64"
    title["macos-x86_64"] = "macOS, x86-64"
    title["wasm"] = "WebAssembly, vectors of 128 bits"
    title["wasm-scalar"] = "WebAssembly, scalar"
}
FILENAME !~ /\.md$/ { # windows: 37 tests run by wine, compiled by x86_64-w64-mingw32-gcc-posix ...
    how = by = $0
    sub(/^[^ ]+ [0-9]+ tests /, "", how)
    sub(/, compiled by .*/, "", how)
    sub(/tests\/wasm\/run.py/, "wasmtime", how)
    sub(/.*, compiled by /, "", by)
    sub(/ \(http.*/, "", by)
    name = title[substr($1, 1, length($1) - 1)]
    row[name] = sprintf("| %s | %d | %s | %s |", name, $2, how, by)
    next
}
/^<!-- end of the platforms table/ { inside = 0 }
/^\| / && inside {
    split($0, cell, / *\| */)
    if (cell[2] in row) $0 = row[cell[2]]
}
/^<!-- platforms table/ { inside = 1 }
{ print }
