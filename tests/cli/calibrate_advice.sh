# What `make calibrate` says at its end, of comparisons written by hand.
. "$CLI_TESTS/lib.bash"
NARRATES=1
tools=$CLI_TESTS/../../tools

# row POLICY ACCEPT ROWS PLAIN [FULL WORST] : of a comparison's JSON, PLAIN times plain decoding's
# speed; FULL and WORST are shares of the full vocabulary's accept length.
row() {
    printf '{"policy":"%s","domain":"all","accept_length":%s,"accept_full":%s,' "$1" "$2" "${5:-1}"
    printf '"shortlist_rows":%s,' "$3"
    [ -z "${6:-}" ] || printf '"worst_domain":"code","worst_accept_full":%s,' "$6"
    printf '"bytes_pass":%s,"tokens_per_second":%s,"speedup_plain":%s,"speedup_full":2,' \
        "$3" "${4/./}" "$4"
    printf '"ci95":{"accept_length":[1.3,1.6]},"n_compared":100}\n'
}
# advice RECOMMENDED PAYS AS_FAST : of static:2048 and centroid, beside `full`.
advice() {
    {
        printf '{"recommended":"%s","recommended_policy":"static:2048","as_fast":[%s],' "$1" "$3"
        printf '"speculation_pays":%s,"rows":[\n' "$2"
        row plain 1 0 1
        row full 1.5 32768 0.50
        row static:2048 1.48 2048 "$4"
        row centroid 1.5 2500 0.76
    } | awk -v best=best -v num_steps="${5:-3}" -f "$tools/calibrate_policies.awk"
}

# Where drafting loses, that comes first, with what a drafter would need: 1.48 / 0.74.
accepts advice plain -1 '"centroid"' 0.74
prints "*all equal
  Decode plainly, or let a larger drafter draft: *no policy with this
  drafter is faster than plain decoding.
  The policy to draft with is static:2048: 0.74 times its speed, accept length 1.48.
  A drafter whose cycles take as long is faster from an accept length of 2.00 on.
  As fast, within the error of these prompts: centroid; static:2048 scores the fewest rows.*"
[ "$(cat best)" = plain ] || fail "chosen: $(cat best)"
accepts advice plain -1 "" 0.37 # 4.00 tokens are all that three drafts may give
prints "*A drafter whose cycles take as long is never faster: 3 drafts give 4 tokens at most.*"

accepts advice static:2048 1 '"centroid","coral"' 1.30
prints "*all equal
  Recommended: static:2048, 1.30 times plain decoding, 2.00 times the full vocabulary.
  As fast, within the error of these prompts: centroid, coral; static:2048 scores the fewest rows.*"
[ "$(cat best)" = static:2048 ] || fail "chosen: $(cat best)"
accepts advice static:2048 0 "" 1.30
prints "*Recommended: static:2048, *
  Whether it is faster than plain decoding, these prompts cannot tell.*"

# A target that drafts for itself: by the worst task, where tasks are named.
own() {
    {
        row full 5 32768 1 1 "${1:+1}"
        row static:2048 4.9 2048 1 0.98 "${1:-}"
        row hybrid 4.95 4000 1 0.99 "${2:-}"
    } | awk -v own=1 -v best=best -f "$tools/calibrate_policies.awk"
}
accepts own 0.8 0.97
prints "* hybrid keeps 99.0% of accept length*In its worst task (code) hybrid retains 97.0% of *"
[ "$(cat best)" = hybrid ] || fail "chosen: $(cat best)"
accepts own
prints "*static:2048 keeps 98.0% of accept length*fewer than two tasks, so the mean *decides."
