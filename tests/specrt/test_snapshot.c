/* test_snapshot.c : saved sessions over a toy target: what is loaded drafts what the saved one goes on to
 * draft, bit for bit, wherever it was saved; bytes of any other kind are refused by an exact status. */
#include "specrt_tools.h"
#include "core/base.h"
#include "decode/policy.h"
#include "decode/session.h"
#include "decode/snapshot.h"
#include "pair.h"
#include "opened.h"

enum { V = PAIR_V, D = PAIR_D, N_PROMPT = 24, MAX_STREAM = 1024, MAX_BYTES = 1 << 16 };

static const pair models = {.n_last = 60, .noise = 0.4f};
static specrt_bundle *bundle, *other_bundle; /* the other's list is longer */
static specrt_head *head;
static fixture_allocator allocator;
static specrt_stock *stock; /* NULL: sessions have rows of their own */

/* swaps: the ranked ids at this place and the next change places; -1: none do. */
static specrt_bundle *open_bundle(int32_t n_default, int32_t swaps, uint8_t **bytes) {
    static const char *const tags[] = {"cograph", "ranks"};
    size_t sizes[2], n;
    uint8_t *parts[] = {fixture_graph(V, 6, NULL, 5, &sizes[0]),
                        fixture_ranks(V, 2, n_default, &sizes[1])};
    int32_t *ids = (int32_t *)(void *)(parts[1] + sizes[1]) - V, id = ids[swaps + 1];
    if (swaps >= 0) ids[swaps + 1] = ids[swaps], ids[swaps] = id;
    *bytes = fixture_join(tags, parts, sizes, 2, &n); /* the bundle lies in it */
    return open_memory(*bytes, n);
}

static void open_all(void) {
    if (bundle) return;
    static uint8_t *bytes[2];
    bundle = open_bundle(60, -1, &bytes[0]);
    other_bundle = open_bundle(80, -1, &bytes[1]);
    specrt_head_desc desc = pair_head();
    specrt_env env = fixture_desc(&allocator);
    REQUIRE(!specrt_head_bind(bundle, &desc, &env, &head, NULL));
}

/* --- sessions --- */

typedef struct setting {
    const char *policy;
    specrt_tree_params tree;
    specrt_draft_kind draft;
    float temperature;
} setting;

static const setting settings[] = {
    {"full", {4, 5, 20}, SPECRT_DRAFT_TOP_K, 0},
    {"static:30", {3, 1, 4}, SPECRT_DRAFT_SAMPLED, 0.8f},
    {"static:12+window:48", {4, 5, 20}, SPECRT_DRAFT_TOP_K, 0.8f},
    {"static:12+window:40", {3, 1, 4}, SPECRT_DRAFT_SAMPLED, 0.8f},
    {"window:90@kpre=8@kver=8@positions=tree@min=90", {4, 5, 20}, SPECRT_DRAFT_TOP_K, 0},
    {"window:60@positions=tree@min=20", {4, 1, 5}, SPECRT_DRAFT_TOP_K, 0},
    {"window:70@mode=stream@only=ext@min=10", {4, 5, 20}, SPECRT_DRAFT_TOP_K, 0},
    {"static:20+retrieve:40", {4, 5, 20}, SPECRT_DRAFT_TOP_K, 0.6f},
    {"static:20+retrieve:16@graph=off@keep=on@prompt=best", {3, 1, 4}, SPECRT_DRAFT_TOP_K, 0},
    {"static:20+window:20@min=0+retrieve:32@mode=async", {3, 1, 4}, SPECRT_DRAFT_TOP_K, 0},
    {"static:20+successor:24", {4, 5, 20}, SPECRT_DRAFT_TOP_K, 0},
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static void run_now(void *user, specrt_task *task) {
    (void)user;
    task->run(task);
}

static specrt_policy *make_policy(const char *text, const specrt_bundle *from) {
    specrt_policy_desc desc = {.text = text};
    return create_policy(from, head, &desc);
}

static specrt_session *make_session(const specrt_policy *policy, const setting *set) {
    specrt_session_params params = {.n_logits = V,
                                    .tree = set->tree,
                                    .sampling = {set->temperature, 0, 0, 0, 9, 4, 2},
                                    .draft = set->draft,
                                    .submit = run_now,
                                    .stock = stock};
    return create_session(policy, &params, NULL);
}

/* A text that a session goes through, and what came of it. */
typedef struct run {
    specrt_session *s;
    int32_t stream[MAX_STREAM], n;
    uint64_t digest; /* of every draft's tokens, shape and log-probabilities, and every verdict */
} run;

/* The next prompt, of which the first tokens were there already. */
static void prompt(run *r, int32_t first, int32_t from, int32_t n) {
    static float logits[N_PROMPT * V];
    int32_t begin = r->n;
    for (int32_t i = 0; i < n; i++) r->stream[r->n++] = (first + 11 * (from + i)) % 57;
    for (int32_t i = 0; i < n; i++)
        pair_target(&models, begin + i > 0 ? r->stream[begin + i - 1] : 0, r->stream[begin + i],
                    logits + i * V);
    specrt_target_rows rows = {.logits = logits};
    REQUIRE(!specrt_session_prefill(r->s, r->stream + begin, n, &rows));
}

static void start(run *r) {
    float logits[V];
    pair_target(&models, r->stream[r->n - 2], r->stream[r->n - 1], logits);
    REQUIRE(!specrt_session_draw(r->s, logits, &r->stream[r->n]));
    REQUIRE(!specrt_session_start(r->s, r->stream[r->n]));
    r->n++;
}

static void add(run *r, const void *bytes, size_t n) {
    r->digest = specrt_hash64(bytes, n, r->digest);
}

/* The next turn: the token that was emitted last leads the prompt. */
static void turn(run *r) {
    const specrt_request request = {.begin = SPECRT_BEGIN_TURN, .position = r->n - 1};
    REQUIRE(!specrt_session_begin(r->s, &request));
    REQUIRE(!specrt_session_prefill(r->s, &r->stream[r->n - 1], 1, NULL));
}

/* later: the last token is told by start, or, with open, not at all yet. */
static void cycle(run *r, bool later, bool open) {
    static float logits[SPECRT_TREE_MAX_NODES * V];
    specrt_draft draft;
    specrt_verdict verdict;
    int32_t before = r->stream[r->n - 2];
    pair_draft(&models, r->s, before, r->stream[r->n - 1], &draft);
    pair_verify(&models, r->s, before, &draft, logits, &verdict);
    add(r, draft.tokens, (size_t)draft.n * 4);
    add(r, draft.parents, (size_t)draft.n * 4);
    add(r, draft.logprobs, (size_t)draft.n * 4);
    add(r, verdict.tokens, (size_t)verdict.n * 4);
    memcpy(r->stream + r->n, verdict.tokens, (size_t)verdict.n * 4);
    r->n += verdict.n;
    specrt_target_rows rows = {.logits = logits};
    if (!later) {
        REQUIRE(!specrt_session_observe(r->s, &draft, &verdict, &rows));
        return;
    }
    REQUIRE(!specrt_session_observe_chain(r->s, draft.tokens, draft.n, verdict.n - 1, -1, &rows));
    if (!open) REQUIRE(!specrt_session_start(r->s, r->stream[r->n - 1]));
}

static void cycles(run *r, int n) {
    for (int i = 0; i < n; i++) cycle(r, false, false);
}

/* Where a session is saved. */
enum { AT_BEGIN, IN_PROMPT, AT_START, IN_ANSWER, LATE, AT_TURN, OPEN, PLACES };

static void go_to(run *r, int place) {
    REQUIRE(!specrt_session_begin(r->s, NULL));
    if (place == AT_BEGIN) return;
    prompt(r, 3, 0, place == IN_PROMPT ? 9 : N_PROMPT);
    if (place == IN_PROMPT) return;
    start(r);
    if (place == AT_START) return;
    cycles(r, place == LATE ? 90 : 7);
    if (place == OPEN) cycle(r, true, true);
    if (place == AT_TURN) turn(r);
}

/* From a place on: the rest of the prompt, an answer, and another turn. */
static void go_on(run *r, int place) {
    if (place == AT_BEGIN) prompt(r, 3, 0, N_PROMPT);
    if (place == IN_PROMPT) prompt(r, 3, 9, N_PROMPT - 9);
    if (place == AT_TURN) prompt(r, 20, 0, 10);
    if (place == AT_BEGIN || place == IN_PROMPT || place == AT_TURN) start(r);
    if (place == OPEN) REQUIRE(!specrt_session_start(r->s, r->stream[r->n - 1]));
    cycles(r, 30);
    turn(r);
    prompt(r, 40, 0, 10);
    start(r);
    cycles(r, 20);
}

static size_t save(specrt_session *s, uint8_t *bytes) {
    size_t bound, n;
    REQUIRE(!specrt_session_save(s, NULL, 0, &bound));
    REQUIRE(bound <= MAX_BYTES);
    REQUIRE(!specrt_session_save(s, bytes, bound, &n));
    CHECK(n <= bound);
    return n;
}

static void load(specrt_session *s, const uint8_t *bytes, size_t n) {
    if (specrt_session_load(s, bytes, n)) CHECK_STR(specrt_session_last_error(s)->msg, "");
}

/* --- tests --- */

/* Saved anywhere and loaded into a session that did something else, it goes on as the one that stayed. */
static void check_round_trip(const setting *set, int place) {
    static run stays, moves;
    static uint8_t bytes[MAX_BYTES], later[MAX_BYTES];
    specrt_policy *policy = make_policy(set->policy, bundle);
    memset(&stays, 0, sizeof stays);
    stays.s = make_session(policy, set);
    go_to(&stays, place);
    size_t n = save(stays.s, bytes + 1); /* at any address */
    moves = stays;
    moves.n = 0;
    moves.s = make_session(policy, set);
    REQUIRE(!specrt_session_begin(moves.s, NULL));
    prompt(&moves, 31, 0, N_PROMPT);
    start(&moves);
    cycles(&moves, 12);
    load(moves.s, bytes + 1, n);
    memcpy(moves.stream, stays.stream, sizeof moves.stream);
    moves.n = stays.n;
    moves.digest = stays.digest;
    CHECK_INT(save(moves.s, later), n);
    CHECK(memcmp(bytes + 1, later, n) == 0);
    go_on(&stays, place);
    go_on(&moves, place);
    CHECK_INT(moves.n, stays.n);
    CHECK(memcmp(moves.stream, stays.stream, sizeof moves.stream) == 0);
    CHECK(moves.digest == stays.digest);
    n = save(stays.s, bytes);
    CHECK_INT(save(moves.s, later), n);
    CHECK(memcmp(bytes, later, n) == 0);
    specrt_session_close(stays.s);
    close_both(moves.s, policy);
}

TEST(stock, "the same where sessions hold rows together") {
    specrt_stock_stats stats;
    open_all();
    REQUIRE(!specrt_stock_create(head, NULL, NULL, &stock, NULL));
    for (int i = 2; i < N_SETTINGS; i += 5) check_round_trip(&settings[i], LATE);
    specrt_stock_get_stats(stock, &stats);
    CHECK_INT(stats.n_held, 0);
    specrt_stock_close(stock);
    stock = NULL;
}

TEST(round_trip, "a session that is loaded drafts what the saved one goes on to draft") {
    open_all();
    for (int i = 0; i < N_SETTINGS; i++)
        for (int place = 0; place < PLACES; place++)
            if ((place != OPEN || settings[i].tree.topk == 1) && !(test_quick() && (i + place) % 2))
                check_round_trip(&settings[i], place);
}

TEST(lossless, "whatever another text taught it, the answer is plain decoding's") {
    static uint8_t bytes[MAX_BYTES];
    open_all();
    for (int i = 0; i < N_SETTINGS; i++) {
        static run taught, plain;
        const setting *set = &settings[i];
        if (set->draft == SPECRT_DRAFT_SAMPLED)
            continue; /* the distribution is the target's, not the draws */
        specrt_policy *policy = make_policy(set->policy, bundle),
                      *full = make_policy("full", bundle);
        memset(&taught, 0, sizeof taught);
        memset(&plain, 0, sizeof plain);
        taught.s = make_session(policy, set);
        plain.s = make_session(full, set);
        go_to(&taught, LATE);
        load(taught.s, bytes, save(taught.s, bytes));
        taught.n = 0;
        for (int k = 0; k < 2; k++) {
            run *r = k ? &plain : &taught;
            const specrt_sampling sampling = {set->temperature, 0, 0, 0, 9, 4, 77};
            const specrt_request again = {.begin = SPECRT_BEGIN_TURN, .sampling = &sampling};
            REQUIRE(!specrt_session_begin(r->s, &again));
            prompt(r, 8, 0, N_PROMPT);
            start(r);
            cycles(r, 40);
        }
        int32_t n = taught.n < plain.n ? taught.n : plain.n;
        CHECK(memcmp(taught.stream, plain.stream, (size_t)n * 4) == 0);
        specrt_session_close(taught.s);
        close_both(plain.s, policy);
        specrt_policy_close(full);
    }
}

TEST(size, "bounded, known beforehand, nothing allocated") {
    static uint8_t bytes[MAX_BYTES], canary[MAX_BYTES];
    open_all();
    for (int i = 0; i < N_SETTINGS; i++) {
        static run r;
        size_t first, bound, n;
        specrt_policy *policy = make_policy(settings[i].policy, bundle);
        memset(&r, 0, sizeof r);
        r.s = make_session(policy, &settings[i]);
        REQUIRE(!specrt_session_save(r.s, NULL, 0, &first));
        go_to(&r, LATE);
        int n_calls = allocator.n_calls;
        REQUIRE(!specrt_session_save(r.s, NULL, 0, &bound));
        CHECK_INT(first, bound);
        size_t wanted = save(r.s, bytes);
        memset(canary, 7, sizeof canary);
        CHECK_INT(specrt_session_save(r.s, canary, wanted - 1, &n), SPECRT_STATUS_BAD_ARG);
        CHECK_INT(n, wanted);
        for (size_t k = 0; k < wanted; k++) REQUIRE(canary[k] == 7);
        CHECK_INT(specrt_session_save(r.s, NULL, bound, &n), SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(specrt_session_last_error(r.s)->msg, "save: bytes: ");
        REQUIRE(!specrt_session_save(r.s, canary, wanted, &n));
        CHECK(memcmp(bytes, canary, wanted) == 0);
        load(r.s, bytes, wanted);
        CHECK_INT(allocator.n_calls, n_calls);
        close_both(r.s, policy);
    }
}

TEST(size_of_text, "a policy's text is part of what a save may take") {
    static const char *const texts[2] = {"window:40", "window:40@min=0@kver=8"};
    size_t bounds[2], lengths[2];
    open_all();
    for (int i = 0; i < 2; i++) {
        specrt_policy *policy = make_policy(texts[i], bundle);
        specrt_session *s = make_session(policy, &settings[0]);
        REQUIRE(!specrt_session_save(s, NULL, 0, &bounds[i]));
        lengths[i] = (strlen(specrt_policy_get_info(policy)->text) + 3) / 4 * 4;
        close_both(s, policy);
    }
    CHECK(lengths[1] > lengths[0]);
    CHECK_INT(bounds[1] - bounds[0], lengths[1] - lengths[0]);
}

/* What ids mean to a policy, by the words that docs/FORMAT.md names: with tokens that are never proposed, and
 * without. */
TEST(digest, "what ids mean, by its definition") {
    static uint8_t bytes[MAX_BYTES];
    open_all();
    for (int i = 0; i < 2; i++) {
        specrt_policy *p =
            i ? make_policy("static:30+window:40", bundle) : make_policy("window:40", NULL);
        specrt_session *s = make_session(p, &settings[0]);
        uint64_t found;
        save(s, bytes);
        memcpy(&found, bytes + 24, 8);
        const int32_t sizes[6] = {p->n_vocab,    s->pool->n_ids, p->fixed.n_rows,
                                  p->n_frequent, p->n_invalid,   p->n_ends};
        uint64_t hash = specrt_hash64(sizes, sizeof sizes, 0);
        if (i) { /* without a bundle there is none of these lists */
            hash = specrt_hash64(p->fixed.ids, 4 * (size_t)p->fixed.n_rows, hash);
            hash = specrt_hash64(p->frequent, 4 * (size_t)p->n_frequent, hash);
            hash = specrt_hash64(p->invalid, 4 * (size_t)p->n_invalid, hash);
        }
        CHECK(found == specrt_hash64(p->ends, 4 * (size_t)p->n_ends, hash));
        close_both(s, p);
    }
}

TEST(between_cycles, "not while a tree is drafted; a draft that was left is no hindrance") {
    static uint8_t bytes[MAX_BYTES];
    static run r;
    specrt_draft draft;
    size_t n;
    open_all();
    specrt_policy *policy = make_policy(settings[2].policy, bundle);
    memset(&r, 0, sizeof r);
    r.s = make_session(policy, &settings[2]);
    go_to(&r, IN_ANSWER);
    pair_draft(&models, r.s, r.stream[r.n - 2], r.stream[r.n - 1], &draft);
    CHECK_INT(specrt_session_save(r.s, bytes, sizeof bytes, &n), SPECRT_STATUS_BAD_ORDER);
    CHECK_STR(specrt_session_last_error(r.s)->msg,
              "save: expected specrt_session_accept() or observe() first, which end the cycle");
    CHECK_INT(specrt_session_save(r.s, NULL, 0, &n), SPECRT_STATUS_OK); /* what it may take */
    turn(&r);
    CHECK_INT(specrt_session_save(r.s, bytes, sizeof bytes, &n), SPECRT_STATUS_OK);
    close_both(r.s, policy);
}

static void seal(uint8_t *bytes, size_t n) {
    uint32_t size = (uint32_t)n;
    memcpy(bytes + 12, &size, 4);
    uint64_t sum = specrt_hash64(bytes + 24, n - 24, 0);
    memcpy(bytes + 16, &sum, 8);
}

/* Refused by this status, and the session is as after create. */
static void refuses(specrt_session *s, const uint8_t *bytes, size_t n, specrt_status expected,
                    const char *part) {
    static uint8_t before[MAX_BYTES], after[MAX_BYTES];
    specrt__session_reset(s);
    size_t n_before = save(s, before);
    CHECK_INT(specrt_session_load(s, bytes, n), expected);
    const specrt_error *err = specrt_session_last_error(s);
    CHECK_INT(err->status, expected);
    if (part) CHECK_HAS(err->msg, part);
    CHECK(!strchr(err->msg, '\n'));
    REQUIRE(save(s, after) == n_before);
    CHECK(memcmp(before, after, n_before) == 0);
}

/* A session of many sources, late in its text, and its bytes. */
static size_t save_late(run *r, specrt_policy **policy, uint8_t *bytes) {
    open_all();
    *policy = make_policy(settings[9].policy, bundle);
    memset(r, 0, sizeof *r);
    r->s = make_session(*policy, &settings[9]);
    go_to(r, LATE);
    return save(r->s, bytes);
}

TEST(damaged, "cut or flipped anywhere: an exact status") {
    static uint8_t bytes[MAX_BYTES], copy[MAX_BYTES];
    static run r;
    specrt_policy *policy;
    size_t n = save_late(&r, &policy, bytes);
    for (size_t cut = 0; cut < n; cut += cut < 120 ? 1 : 37) {
        char sizes[80];
        snprintf(sizes, sizeof sizes, "expected %zu bytes, found %zu;", n, cut);
        refuses(r.s, bytes, cut,
                cut < 8 ? SPECRT_STATUS_SESSION_MAGIC : SPECRT_STATUS_SESSION_DAMAGED,
                cut < 8                      ? NULL
                : cut < SPECRT__SAVED_HEADER ? "header"
                                             : sizes);
    }
    for (size_t at = 0; at < n; at += at < 160 ? 1 : 29) {
        memcpy(copy, bytes, n);
        copy[at] ^= 0x40;
        refuses(r.s, copy, n,
                at < 8    ? SPECRT_STATUS_SESSION_MAGIC
                : at < 12 ? SPECRT_STATUS_SESSION_VERSION
                          : SPECRT_STATUS_SESSION_DAMAGED,
                NULL);
    }
    CHECK_INT(specrt_session_load(r.s, NULL, 100), SPECRT_STATUS_BAD_ARG);
    memcpy(copy, bytes, n);
    copy[8] = 3;
    refuses(r.s, copy, n, SPECRT_STATUS_SESSION_VERSION, "expected 1 to 2, found 3");
    copy[8] = 0;
    refuses(r.s, copy, n, SPECRT_STATUS_SESSION_VERSION, "expected 1 to 2, found 0");
    memcpy(copy, bytes, n);
    const int64_t farthest = INT64_MAX / 2;
    memcpy(copy + 32, &farthest, 8); /* as far as a text may go: position and cycle */
    memcpy(copy + 40, &farthest, 8);
    seal(copy, n);
    load(r.s, copy, n);
    const uint32_t n_text = (uint32_t)n - SPECRT__SAVED_HEADER + 1;
    memcpy(copy + 92, &n_text, 4);
    seal(copy, n);
    refuses(r.s, copy, n, SPECRT_STATUS_SESSION_DAMAGED, "policy");
    load(r.s, bytes, n);
    close_both(r.s, policy);
}

/* A policy whose ranked ids at a place and the next one changed places. */
static void refuses_swapped(const char *text, int32_t place, const uint8_t *bytes, size_t n) {
    uint8_t *memory;
    specrt_bundle *swapped = open_bundle(60, place, &memory);
    specrt_policy *policy = make_policy(text, swapped);
    specrt_session *s = make_session(policy, &settings[2]);
    refuses(s, bytes, n, SPECRT_STATUS_SESSION_MISMATCH, "digest");
    close_both(s, policy);
    specrt_bundle_close(swapped);
    free(memory);
}

/* Without a window nothing is filled up: the rows, and the ids that may not be proposed, tell policies
 * apart. */
TEST(mismatch_static, "other rows, or other ids that are invalid") {
    static uint8_t bytes[MAX_BYTES];
    open_all();
    specrt_policy *policy = make_policy("static:12", bundle);
    specrt_session *s = make_session(policy, &settings[2]);
    size_t n = save(s, bytes);
    refuses_swapped("static:12", 11, bytes, n);
    refuses_swapped("static:12", 4, bytes, n);
    refuses_swapped("static:12", V - 2, bytes, n); /* the last one is invalid */
    load(s, bytes, n);
    close_both(s, policy);
}

TEST(mismatch, "another policy or vocabulary") {
    static uint8_t bytes[MAX_BYTES], other_bytes[MAX_BYTES];
    static run r;
    open_all();
    specrt_policy *policy = make_policy(settings[2].policy, bundle);
    specrt_policy *longer = make_policy("static:12+window:49", bundle);
    specrt_policy *others = make_policy("static:12+window:48", other_bundle);
    memset(&r, 0, sizeof r);
    r.s = make_session(policy, &settings[2]);
    go_to(&r, IN_ANSWER);
    size_t n = save(r.s, bytes);
    specrt_session *s = make_session(longer, &settings[2]);
    refuses(s, bytes, n, SPECRT_STATUS_SESSION_MISMATCH,
            "policy: expected 'static:12+window:49', found 'static:12+window:48'");
    specrt_session_close(s);
    specrt_policy_desc desc = {.text = "static:12+window:48", .n_vocab = V, .n_terminators = 1};
    desc.terminators = &(int32_t){17};
    specrt_policy *ends = create_policy(bundle, head, &desc);
    s = make_session(ends, &settings[2]);
    refuses(s, bytes, n, SPECRT_STATUS_SESSION_MISMATCH, "digest");
    specrt_session_close(s);
    int32_t invalid[] = {V - 3, V - 2, V - 1}, n_own = policy->n_invalid; /* to the last, too */
    const int32_t *own = policy->invalid;
    policy->invalid = invalid;
    policy->n_invalid = 3;
    s = make_session(policy, &settings[2]);
    size_t n_invalid = save(s, other_bytes);
    load(s, other_bytes, n_invalid);
    invalid[2] = V - 4;
    refuses(s, other_bytes, n_invalid, SPECRT_STATUS_SESSION_MISMATCH, "digest");
    specrt_session_close(s);
    policy->invalid = own;
    policy->n_invalid = n_own;
    s = make_session(others, &settings[2]); /* its ranks are the same, what is calibrated is not */
    load(s, bytes, n);
    specrt_session_close(s);
    /* Rows of the list, and what fills a window up, to the last: in another order it is another policy. */
    const int32_t places[] = {0, 10, V - 3, V - 2};
    for (int i = 0; i < 4; i++) refuses_swapped("static:12+window:48", places[i], bytes, n);
    close_both(r.s, policy);
    specrt_policy_close(longer);
    specrt_policy_close(others);
    specrt_policy_close(ends);
}

/* --- bytes that no session saved, under a right checksum --- */

/* The lists of docs/FORMAT.md in their order. */
enum { ROWS, WINDOW, RING, SEED, T1, T2, B1, B2, AGES, CHAIN, CHAIN_BEST };

static size_t list_at(const uint8_t *bytes, int list) {
    size_t at =
        SPECRT__SAVED_HEADER + (size_t)specrt__base_align(specrt__base_load32(bytes + 92), 4);
    for (int i = 0; i < list; i++) at += 4 + 4 * (size_t)specrt__base_load32(bytes + at);
    return at;
}

typedef struct forgery {
    const char *part;   /* of the complaint */
    int list, i, other; /* word i of a list becomes `value`, or what word `other` is */
    int32_t value;
    size_t at; /* or, where list is -1, the word at this byte of the header */
} forgery;

static const forgery forgeries[] = {
    {"lists", ROWS, -1, -1, 1 << 20, 0},
    {"lists", CHAIN_BEST, -1, -1, 1, 0},
    {"tokens", ROWS, 0, -1, V, 0},
    {"rows", ROWS, 0, 1, 0, 0},
    {"tokens", WINDOW, 0, -1, -1, 0},
    {"window", WINDOW, 0, 1, 0, 0},
    {"tokens", T1, 0, -1, V, 0},
    {"cache", T1, 0, 1, 0, 0},
    {"cache", T1, 0, -1, 3, 0}, /* a terminator that is a fixed row */
    {"ages", AGES, 0, -1, 9, 0},
    {"ages", AGES, 0, -1, -1, 0},
    {"position", -1, 0, 0, INT32_MIN, 36},
    {"cycle", -1, 0, 0, INT32_MIN, 44},
    {"cache", -1, 0, 0, 0x7ff80000, 68},          /* p is no number */
    {"cache", -1, 0, 0, (int32_t)0xbff00000, 68}, /* p is -1 */
    {"cache", -1, 0, 0, 0x7fe00000, 68},          /* p is more than the cache holds */
    {"root", -1, 0, 0, V, 76},
    {"fill", -1, 0, 0, V + 1, 80},
    {"rows", -1, 0, 0, 40, 80}, /* filled up beyond what is packed */
    {"events", -1, 0, 0, -1, 84},
    {"chain", -1, 0, 0, -1, 88},
    {"policy", -1, 0, 0, -1, 92},
    {"order", -1, 0, 0, 0, 72},
    {"order", -1, 0, 0, 8, 72},  /* a chain that is open, and none there */
    {"order", -1, 0, 0, 32, 72}, /* in the middle of a cycle */
    {"order", -1, 0, 0, 128, 72},
};

TEST(hostile, "lists that no session has, under a right checksum") {
    static uint8_t bytes[MAX_BYTES], copy[MAX_BYTES];
    static run r;
    specrt_policy *policy;
    size_t n = save_late(&r, &policy, bytes);
    CHECK(specrt__base_load32(bytes + list_at(bytes, T1)) > 1);
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
        const forgery *f = &forgeries[i];
        memcpy(copy, bytes, n);
        uint8_t *list = copy + (f->list < 0 ? 0 : list_at(bytes, f->list));
        if (f->list < 0)
            memcpy(copy + f->at, &f->value, 4);
        else if (f->other >= 0)
            memcpy(list + 4 + 4 * f->i, list + 4 + 4 * f->other, 4);
        else
            memcpy(list + 4 + 4 * f->i, &f->value, 4); /* i -1: its length */
        seal(copy, n);
        refuses(r.s, copy, n, SPECRT_STATUS_SESSION_DAMAGED, f->part);
    }
    for (int list = ROWS; list <= CHAIN_BEST;
         list++) /* cut where a list begins, or within its length */
        for (size_t at = list_at(bytes, list), k = 0; k < 4; k++) {
            fixture_pages pages = fixture_pages_open(at + k);
            memcpy(pages.bytes, bytes, at + k);
            seal(pages.bytes, at + k);
            refuses(r.s, pages.bytes, at + k, SPECRT_STATUS_SESSION_DAMAGED, "lists");
            fixture_pages_close(&pages);
        }
    memcpy(copy, bytes, n); /* words behind the last list */
    memset(copy + n, 0, 4);
    seal(copy, n + 4);
    refuses(r.s, copy, n + 4, SPECRT_STATUS_SESSION_DAMAGED, "lists");
    close_both(r.s, policy);
}

/* A chain that waits for its last token: as many of the target's best as it has tokens, or none. */
TEST(hostile_chain, "one that waits for its last token, cut or forged") {
    static uint8_t bytes[MAX_BYTES];
    static run r;
    open_all();
    specrt_policy *policy = make_policy(settings[9].policy, bundle);
    memset(&r, 0, sizeof r);
    r.s = make_session(policy, &settings[9]);
    go_to(&r, OPEN);
    size_t n = save(r.s, bytes);
    uint8_t *chain = bytes + list_at(bytes, CHAIN);
    uint8_t *best = bytes + list_at(bytes, CHAIN_BEST);
    int32_t n_chain = (int32_t)specrt__base_load32(chain), n_best = n_chain * SPECRT_LOGITS_MAX_K;
    CHECK(n_chain > 0);
    CHECK_INT(specrt__base_load32(best), n_best);
    for (int32_t k = n_best; k >= 0; k--) { /* the last list, cut */
        memcpy(best, &k, 4);
        seal(bytes, n - 4 * (size_t)(n_best - k));
        if (k > 0 && k < n_best)
            refuses(r.s, bytes, n - 4 * (size_t)(n_best - k), SPECRT_STATUS_SESSION_DAMAGED,
                    "chain");
        else
            load(r.s, bytes, n - 4 * (size_t)(n_best - k));
    }
    n -= 4 * (size_t)n_best;
    for (int32_t accepted = -1; accepted <= n_chain; accepted++) {
        memcpy(bytes + 88, &accepted, 4);
        seal(bytes, n);
        if (accepted < 0 || accepted == n_chain)
            refuses(r.s, bytes, n, SPECRT_STATUS_SESSION_DAMAGED, "chain");
        else
            load(r.s, bytes, n);
    }
    memcpy(bytes + 88, &(int32_t){0}, 4);
    memcpy(chain + 4, &(int32_t){V}, 4);
    seal(bytes, n);
    refuses(r.s, bytes, n, SPECRT_STATUS_SESSION_DAMAGED, "chain");
    close_both(r.s, policy);
}

/* A chain of which the target's choices were not told teaches no more once it was saved. */
TEST(untold_chain, "one of which the target said nothing") {
    static uint8_t bytes[MAX_BYTES], again[MAX_BYTES];
    const int32_t tokens[] = {5, 6, 7};
    open_all();
    specrt_policy *policy = make_policy(settings[2].policy, bundle);
    specrt_session *s = make_session(policy, &settings[2]), *t = make_session(policy, &settings[2]);
    REQUIRE(!specrt_session_begin(s, NULL) && !specrt_session_prefill(s, tokens, 1, NULL));
    REQUIRE(!specrt_session_start(s, 5));
    REQUIRE(!specrt_session_observe_chain(s, tokens, 3, 1, -1, NULL));
    load(t, bytes, save(s, bytes));
    CHECK_INT(specrt__base_load32(bytes + list_at(bytes, CHAIN_BEST)), 0);
    REQUIRE(!specrt_session_start(s, 9) && !specrt_session_start(t, 9));
    size_t n = save(s, bytes);
    REQUIRE(save(t, again) == n);
    CHECK(memcmp(bytes, again, n) == 0);
    specrt_session_close(s);
    close_both(t, policy);
}

/* Sessions that version 1 saved: in an answer, with an open chain, and in a turn's prompt. The files do not
 * say where. Never replace the files. */
TEST(golden, "sessions saved by version 1 go on") {
    const struct {
        const char *path;
        int setting, place;
        int32_t n, before, last;
    } files[] = {
        {"tests/golden/sessions/v1-answer.bin", 2, IN_ANSWER, 43, 188, 260},
        {"tests/golden/sessions/v1-open.bin", 3, OPEN, 36, 6, 122},
        {"tests/golden/sessions/v1-turn.bin", 2, AT_TURN, 43, 188, 260},
    };
    static uint8_t bytes[MAX_BYTES];
    static run r;
    open_all();
    for (int i = 0; i < 3; i++) {
        specrt_policy *policy = make_policy(settings[files[i].setting].policy, bundle);
        FILE *f = fopen(files[i].path, "rb");
        REQUIRE(f != NULL);
        size_t n = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        memset(&r, 0, sizeof r);
        r.s = make_session(policy, &settings[files[i].setting]);
        load(r.s, bytes, n);
        r.n = files[i].n;
        r.stream[r.n - 2] = files[i].before;
        r.stream[r.n - 1] = files[i].last;
        go_on(&r, files[i].place);
        CHECK(r.n > files[i].n + 50);
        close_both(r.s, policy);
    }
}
