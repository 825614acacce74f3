# What `make calibrate` says at its end, of comparisons written by hand.
. "$CLI_TESTS/lib.bash"
NARRATES=1
tools=$CLI_TESTS/../../tools

# row POLICY ACCEPT ROWS WHOLE [FULL WORST] : of a comparison's JSON, WHOLE times plain decoding's
# speed; FULL and WORST are shares of the full vocabulary's accept length.
row() {
    printf '{"policy":"%s","domain":"all","accept_length":%s,"accept_full":%s,' "$1" "$2" "${5:-1}"
    printf '"shortlist_rows":%s,' "$3"
    [ -z "${6:-}" ] || printf '"worst_domain":"code","worst_accept_full":%s,' "$6"
    printf '"bytes_pass":%s,"speedup_plain":9,"speedup_request":%s,"speedup_full":2,' "$3" "$4"
    printf '"ci95":{"accept_length":[1.3,1.6],"accept_full":[0.97,0.99]},"n_compared":100}\n'
}
# advice RECOMMENDED ADVICE [OWN] : of static:2048, beside `full`.
advice() {
    {
        printf '{"recommended":%s,"recommended_policy":"static:2048","advice":[%s],"rows":[\n' \
            "$1" "$2"
        row plain 1 0 1
        row full 1.5 32768 0.50
        row static:2048 1.48 2048 0.74 0.98 0.97
    } | awk -v own="${3:-}" -v best=best -f "$tools/calibrate_policies.awk"
}

# The comparison's own words, a line each, and the name that it says to run.
accepts advice '"plain"' '"Decode plainly: static:2048 is slower.","In task \"a\/b\"."'
prints '*  static:2048  *  97.0%    2,048     0.74    2.00*all equal
  Decode plainly: static:2048 is slower.
  In task "a/b".*'
[ "$(cat best)" = plain ] || fail "chosen: $(cat best)"
accepts advice '"static:2048"' '"Draft with static:2048."'
[ "$(cat best)" = static:2048 ] || fail "chosen: $(cat best)"

# A target that drafts for itself has no speed.
accepts advice null '"The target drafted for itself."' 1
prints "*  MB read*  97.0-99.0  *  The target drafted for itself.*"
[ "$(cat best)" = static:2048 ] || fail "chosen: $(cat best)"
