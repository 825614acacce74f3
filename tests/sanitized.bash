# is_sanitized BIN : whether the tools in the folder were built with a sanitizer.
is_sanitized() { grep -qE '__(asan|tsan|ubsan)_' "$1/specrt-bundle" 2>/dev/null; }
