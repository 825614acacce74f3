# specrt: its help; a verb whose tool is not in the folder of `specrt` says how to get the tool.
. "$CLI_TESTS/lib.bash"
helps specrt
cp "$CLI_BIN/specrt" .
says() { # VERB TOOL FIX
    refuses 2 "*: $2: expected this tool in the folder of specrt, found none; $3" ./specrt "$1"
}
says calibrate vocabtrim-calibrate '`make tools` in a checkout builds it'
says llama specrt-llama '`make llama` in a checkout builds it'
says sketch sketch-build 'the Python wheel leaves it out; `make tools` in a checkout builds it'
