# Completion for bash is run; for zsh and fish it is parsed, where they are installed.
. "$CLI_TESTS/lib.bash"
"$root/tools/completion.sh" "$CLI_BIN" out || fail "not written"
. out/bash/specrt || fail "bash does not read it"
touch "a file.specb"
completes() { # EXPECTED WORD... : what bash offers for the last word
    local expected=$1; shift
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _specrt
    [ "${COMPREPLY[*]}" = "$expected" ] || fail "$*: expected '$expected', found '${COMPREPLY[*]}'"
}
completes "prepare ask calibrate graph clusters sketch index bundle eval llama" specrt ""
completes "extract export" specrt-bundle e
completes "extract export" /usr/bin/specrt bundle e
completes "--format --for --force" specrt bundle export x.specb --fo
completes "--format --for --force" specrt-bundle export x.specb --fo
completes "sglang-pt speculators safetensors" specrt-bundle export x.specb --format s
completes "vllm" specrt prepare --for v
completes "raw target draft" specrt calibrate --provenance ""
completes "2 4" cograph-build --id-bytes ""
completes "a file.specb" specrt-bundle info a
completes "a file.specb" specrt-bundle verify "a file.specb" --tokenizer a
completes "--num-steps --num-draft-tokens" specrt-eval plan --num
# Every option that a help has.
for tool in specrt cluster-build specrt-bundle vocabtrim-calibrate; do
    for option in $("$tool" -h | grep -oE '^ +(-[a-z], )?--[a-z-]+' | grep -oE -- '--.*'); do
        case " $(_specrt_values "$tool") " in *" $option "*) ;; *) fail "$tool: no $option" ;; esac
    done
done
for shell in zsh fish; do
    file=$(echo out/$shell/*)
    ! command -v $shell >/dev/null || $shell -n "$file" || fail "$shell does not read $file"
done
! command -v fish >/dev/null ||
    [ "$(fish -c "source out/fish/specrt.fish; complete -C 'specrt-bundle export x --format sg'" |
        cut -f 1)" = sglang-pt ] || fail "fish does not complete"
