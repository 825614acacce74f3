#!/usr/bin/env bash
# browser.sh [CHROMIUM] : examples/browser/browser.html in a browser without a window, over the
# sample pair's head and bundle (make calibrate): every policy's best tokens are those of the same
# functions compiled for this machine. Exit code 77 where zig (pip install ziglang) or a browser is
# missing. In the environment: BUILD, CC, ZIG.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD:-build} zig=${ZIG:-python3 -m ziglang} browser=${1:-chromium}
policies=full,static:2048,successor:64,sketch:256,static:512+successor:64+sketch:256
bundle=$build/sample/model.specb
$zig version >/dev/null 2>&1 || { echo "skipped: no zig (pip install ziglang)"; exit 77; }
command -v "$browser" >/dev/null || { echo "skipped: no $browser"; exit 77; }
[ -e "$bundle" ] || { echo "no $bundle; make calibrate builds it"; exit 1; }
at=$build/platforms/browser server=
mkdir -p "$at"
trap '[ -z "$server" ] || kill "$server"' EXIT

flags=(-std=c11 -O2 -Wall -Wextra -Iinclude)
wasm=(-target wasm32-wasi -msimd128 -mexec-model=reactor)
$zig cc "${wasm[@]}" "${flags[@]}" examples/browser/browser.c \
    -o "$at/browser.wasm"
${CC:-cc} -D_GNU_SOURCE "${flags[@]}" tests/wasm/browser.c -o "$at/native" -lm

# The sample pair's bundle, and its head as a page can read it.
"$build/bin/specrt-bundle" unpack "$bundle" -q -f -o "$at/model.specb"
"$build/bin/specrt-bundle" export "$bundle" -q -f --format safetensors --size 32758 \
    --head data/sample/target.gguf -o "$at/head.safetensors"
"$at/native" "$at/model.specb" "$at/head.safetensors" ${policies//,/ } >"$at/expected"

cp examples/browser/browser.html "$at"
port=$((20000 + $$ % 20000))
python3 -m http.server $port --bind 127.0.0.1 --directory "$at" >"$at/server" 2>&1 & server=$!
for _ in 1 2 3 4 5 6 7 8 9 10; do
    ! (: </dev/tcp/127.0.0.1/$port) 2>/dev/null || break
    sleep 0.5
done
"$browser" --headless --no-sandbox --disable-gpu --virtual-time-budget=60000 --dump-dom \
    "http://127.0.0.1:$port/browser.html?policy=$policies" >"$at/page" 2>"$at/log"
sed -E 's/<\/tr>/\n/g' "$at/page" | sed -nE '/of 64/s/<[^>]*>/ /gp; /<p .*Failed/p'
python3 - "$at/expected" "$at/page" <<'PY'
import re, sys
expected = [line.split() for line in open(sys.argv[1])]
page = open(sys.argv[2]).read()
rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(<td>.*?)</tr>", page)]
found = [[row[0], row[1], row[4]] for row in rows]
if found != expected:
    sys.exit(f"FAIL browser: expected {expected}, found {found}: {page[-600:]}")
print(f"browser: {len(found)} policies route {64 * len(found)} states as here")
PY
