# shellcheck shell=bash
# settings.bash : what benchmarks may be told, as words NAME=VALUE among their arguments, like those
# of make. Source it with "$@": each becomes a variable with its name in lower case, `given` has
# these words, `words` the others. A script that takes other settings names them in `settings`.
#
#     BUILD    what is measured (build)              MACHINE  folder of results (here)
#     PAIRS    of bench/pair.sh                      THREADS  of the engine (1)
#     TASKS    prompt files, by name                 LIMIT    prompts of a task
#     TOKENS   of an answer                          POLICIES, ALIGN  instead of a script's own
#     WARM, RUNS, TEMPERATURES  of published.py
say() { printf '%s\n' "$*" >&2; }
words=() given=()
: "${settings:=BUILD MACHINE PAIRS THREADS TASKS LIMIT TOKENS POLICIES ALIGN WARM RUNS TEMPERATURES}"
for word; do
    case " $settings $word " in
    *" ${word%%=*} "*"="*) # a setting of the list
        declare "$(tr A-Z a-z <<<"${word%%=*}")=${word#*=}"
        given+=("$word")
        ;;
    *=*) say "$0: ${word%%=*}: expected one of the settings $settings"; exit 2 ;;
    *) words+=("$word") ;;
    esac
done
