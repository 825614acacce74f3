/* test_session_order.c : every call on a session at every place of the order of calls, with NULL and wrong
 * widths. Each call is refused, or the text is plain decoding's: nothing else. The target's logits depend on
 * all tokens before, so that a wrong position, path or key shows. */
#include <stdbool.h>
#include "specrt.h"
#include "specrt/pair.h"
#include "opened.h"

enum { V = PAIR_V, N_LOGITS = V + 12, D = PAIR_D, MOST = 600, N_ANSWER = 24, BRANCH = 3 };

static const pair models = {.n_last = 40, .noise = 0};
static specrt_head *head;
static specrt_policy *policies[3];
static const char *const texts[3] = {"full", "window:48", "window:30@min=8"};

/* f32 [N_LOGITS] after a text; the padding is what the target likes best. */
static void target(const int32_t *text, int32_t n, float *logits) {
    uint64_t all = 1469598103934665603u;
    for (int32_t i = 0; i < n; i++) all = (all ^ (uint64_t)(text[i] + 1)) * 1099511628211u;
    pair_target(&models, n > 1 ? text[n - 2] : 0, text[n - 1], logits);
    for (int i = 0; i < V; i++) logits[i] += 0.3f * fixture_normal(&all);
    for (int i = V; i < N_LOGITS; i++) logits[i] = 100;
}

/* An application, and what it knows. It passes what it has, however old. */
typedef struct app {
    specrt_session *s;
    specrt_verifier *plain; /* draws as the session should */
    bool samples;           /* drafts */
    specrt_sampling sampling;
    int32_t text[MOST], n; /* the conversation: prompts and what was emitted */
    int32_t n_prefilled;   /* of the prompt that has begun */
    int32_t n_pending;     /* emitted by a cycle whose last token was left open */
    uint64_t generation;   /* number of the next one */
    specrt_beam beam;
    specrt_draft draft;
    specrt_verdict verdict;
    int32_t beam_text[BRANCH][2]; /* the last two tokens of each row of the beam */
    float logits[SPECRT_TREE_MAX_NODES * N_LOGITS], hidden[BRANCH * D];
    uint8_t saved[1 << 14];
    size_t n_saved;
} app;

static void open_all(void) {
    if (head) return;
    specrt_head_desc desc = pair_head();
    head = bind_head(NULL, &desc);
    for (int i = 0; i < 3; i++) {
        const specrt_policy_desc pd = {.text = texts[i], .n_vocab = V};
        policies[i] = create_policy(NULL, head, &pd);
    }
}

static specrt_session_params params_of(float temperature) {
    return (specrt_session_params){
        .tree = {3, BRANCH, 12},
        .n_logits = N_LOGITS,
        .sampling = {.temperature = temperature, .seed = 5, .session = 2}};
}

static app *app_open_as(int policy, float temperature, bool samples) {
    app *a = (app *)calloc(1, sizeof *a);
    specrt_session_params params = params_of(temperature);
    if (samples) params.draft = SPECRT_DRAFT_SAMPLED, params.tree = (specrt_tree_params){3, 1, 4};
    REQUIRE(a != NULL);
    open_all();
    a->sampling = params.sampling;
    a->s = create_session(policies[policy], &params, NULL);
    a->plain = create_verifier(N_LOGITS, V, &params.sampling);
    a->samples = samples;
    a->text[a->n++] = 7;
    return a;
}

static app *app_open(int policy, float temperature) {
    return app_open_as(policy, temperature, false);
}

static void app_close(app *a) {
    specrt_session_close(a->s);
    specrt_verifier_close(a->plain);
    free(a);
}

/* The token of plain decoding behind the text. */
static int32_t next_token(app *a) {
    float logits[N_LOGITS];
    target(a->text, a->n, logits);
    return specrt_verifier_draw(a->plain, logits, a->n);
}

/* What the session emits is plain decoding's; of sampled drafts (test_distribution.c) it is some token. */
static void emit(app *a, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        REQUIRE(a->samples ? tokens[i] >= 0 && tokens[i] < V : tokens[i] == next_token(a));
        REQUIRE(a->n < MOST);
        a->text[a->n++] = tokens[i];
    }
}

static void drafter(app *a) {
    for (int32_t i = 0; i < a->beam.n && i < BRANCH; i++)
        pair_hidden(&models, a->beam_text[i][0], a->beam_text[i][1], a->hidden + i * D);
}

static void keep_beam(app *a) {
    int32_t before[BRANCH];
    for (int i = 0; i < BRANCH; i++) before[i] = a->beam_text[i][1];
    for (int32_t i = 0; i < a->beam.n && i < BRANCH; i++) {
        a->beam_text[i][0] = before[a->beam.parents[i]];
        a->beam_text[i][1] = a->beam.tokens[i];
    }
}

static void first_beam(app *a) {
    a->beam_text[0][0] = a->n > 1 ? a->text[a->n - 2] : 0;
    a->beam_text[0][1] = a->text[a->n - 1];
}

/* The target reads a tree behind the text, whose last token is the root. */
static void read_tree(app *a) {
    for (int32_t i = 0; i < a->draft.n; i++) {
        int32_t path[MOST], n = a->n, depth = 0, nodes[SPECRT_TREE_MAX_NODES];
        memcpy(path, a->text, (size_t)n * sizeof *path);
        for (int32_t k = i; k > 0; k = a->draft.parents[k]) nodes[depth++] = k;
        while (depth > 0) path[n++] = a->draft.tokens[nodes[--depth]];
        target(path, n, a->logits + i * N_LOGITS);
    }
}

/* --- calls --- */

typedef specrt_status call(app *a);

static specrt_status begin_as(app *a, specrt_begin kind, int64_t position) {
    const specrt_request request = {.begin = kind, .position = position};
    specrt_status status = specrt_session_begin(a->s, &request);
    if (status != SPECRT_STATUS_OK) return status;
    if (kind == SPECRT_BEGIN_NEW) a->n = 1;
    a->n_prefilled = (int32_t)position;
    a->n_pending = 0;
    specrt_verifier_set_generation(a->plain, a->generation++);
    return status;
}

static specrt_status do_begin(app *a) {
    return begin_as(a, SPECRT_BEGIN_NEW, 0);
}

static specrt_status do_turn(app *a) {
    return begin_as(a, SPECRT_BEGIN_TURN, 0);
}

/* The rest of the conversation, or more of it. */
static specrt_status do_prefill(app *a) {
    bool more = a->n == a->n_prefilled;
    if (more) a->text[a->n++] = 9;
    specrt_status status =
        specrt_session_prefill(a->s, a->text + a->n_prefilled, a->n - a->n_prefilled, NULL);
    if (status == SPECRT_STATUS_OK)
        a->n_prefilled = a->n;
    else if (more)
        a->n--;
    return status;
}

static specrt_status do_draw(app *a) {
    float logits[N_LOGITS];
    int32_t token;
    target(a->text, a->n, logits);
    specrt_status status = specrt_session_draw(a->s, logits, &token);
    if (status == SPECRT_STATUS_OK) CHECK_INT(token, next_token(a));
    return status;
}

static specrt_status do_start(app *a) {
    int32_t token = next_token(a);
    specrt_status status = specrt_session_start(a->s, token);
    if (status == SPECRT_STATUS_OK) emit(a, &token, 1), first_beam(a);
    return status;
}

static specrt_status do_first(app *a) {
    float logits[N_LOGITS];
    specrt_verdict verdict;
    target(a->text, a->n, logits);
    specrt_status status = specrt_session_first(a->s, logits, &verdict);
    CHECK_INT(verdict.n, status == SPECRT_STATUS_OK);
    if (status == SPECRT_STATUS_OK) emit(a, verdict.tokens, 1), first_beam(a), a->verdict = verdict;
    return status;
}

static specrt_status do_get_beam(app *a) {
    specrt_beam beam;
    specrt_status status = specrt_session_get_beam(a->s, &beam);
    if (status == SPECRT_STATUS_OK) a->beam = beam;
    return status;
}

static specrt_status do_expand(app *a) {
    specrt_beam beam;
    if (specrt_session_get_beam(a->s, &a->beam) == SPECRT_STATUS_OK) drafter(a);
    specrt_status status = specrt_session_expand(a->s, a->hidden, NULL, a->beam.n, &beam);
    if (status == SPECRT_STATUS_OK) a->beam = beam, keep_beam(a);
    return status;
}

static specrt_status do_expand_batch(app *a) {
    specrt_beam beam;
    if (specrt_session_get_beam(a->s, &a->beam) == SPECRT_STATUS_OK) drafter(a);
    specrt_status status = specrt_session_expand_batch(&a->s, 1, a->hidden, NULL, a->beam.n, &beam);
    if (status == SPECRT_STATUS_OK) a->beam = beam, keep_beam(a);
    return status;
}

static specrt_status do_route(app *a) {
    const int32_t token = 3;
    const float logprob = 0;
    const specrt_beam beam = {.n = 1, .tokens = &token, .logprobs = &logprob};
    if (specrt_session_route(a->s, 0, &beam, a->hidden, NULL)) return SPECRT_STATUS_OK;
    return specrt_session_last_error(a->s)->status;
}

static specrt_status do_finish(app *a) {
    specrt_draft draft;
    specrt_status status = specrt_session_finish(a->s, &draft);
    if (status == SPECRT_STATUS_OK) a->draft = draft, read_tree(a);
    return status;
}

static specrt_status do_verify(app *a) {
    specrt_verdict verdict;
    specrt_status status = specrt_session_verify(a->s, &a->draft, a->logits, &verdict);
    if (status == SPECRT_STATUS_OK) a->verdict = verdict;
    return status;
}

static specrt_status do_observe(app *a) {
    const specrt_target_rows rows = {.logits = a->logits};
    specrt_status status = specrt_session_observe(a->s, &a->draft, &a->verdict, &rows);
    if (status == SPECRT_STATUS_OK) emit(a, a->verdict.tokens, a->verdict.n), first_beam(a);
    return status;
}

static specrt_status do_accept(app *a) {
    const specrt_target_rows rows = {.logits = a->logits};
    specrt_verdict verdict;
    specrt_status status = specrt_session_accept(a->s, &a->draft, &rows, &verdict);
    if (status != SPECRT_STATUS_OK) return status;
    a->verdict = verdict;
    emit(a, verdict.tokens, verdict.n);
    first_beam(a);
    return status;
}

/* Plain decoding, told. */
static specrt_status do_observe_chain(app *a) {
    int32_t root = a->text[a->n - 1], token = next_token(a);
    specrt_status status = specrt_session_observe_chain(a->s, &root, 1, 0, token, NULL);
    if (status == SPECRT_STATUS_OK) emit(a, &token, 1), first_beam(a);
    return status;
}

static specrt_status do_leave_open(app *a) {
    return specrt_session_observe_chain(a->s, &a->text[a->n - 1], 1, 0, -1, NULL);
}

static specrt_status do_save(app *a) {
    size_t n;
    specrt_status status = specrt_session_save(a->s, a->saved, sizeof a->saved, &n);
    if (status == SPECRT_STATUS_OK) a->n_saved = n;
    return status;
}

/* What was saved here and now, so that nothing changes; else an empty save, which is refused. */
static specrt_status do_load(app *a) {
    specrt_status status = do_save(a);
    if (status != SPECRT_STATUS_OK) return status;
    return specrt_session_load(a->s, a->saved, a->n_saved);
}

static specrt_status do_stats(app *a) {
    specrt_session_stats stats;
    specrt_session_get_stats(a->s, &stats);
    (void)specrt_session_member(a->s, 5, 0);
    return specrt_session_shortlist(a->s) ? SPECRT_STATUS_OK : SPECRT_STATUS_BAD_ARG;
}

/* Places: created, begun, prompt read, chain open, drafting, draft finished, ended. */
enum { CREATED, PROMPT, READ, OPEN, DRAFT, DRAFTED, ENDED, N_PLACES };

/* '+': in order; '-': BAD_ORDER. By docs/tutorial-embed.md, "The order of calls". */
static const struct {
    const char *name;
    call *run;
    const char *allowed; /* [N_PLACES] */
} calls[] = {
    {"begin", do_begin, "+++++++"},
    {"begin a turn", do_turn, "+++++++"},
    {"prefill", do_prefill, "-++----"},
    {"draw", do_draw, "--+++--"},
    {"start", do_start, "--++---"},
    {"first", do_first, "--+----"},
    {"get_beam", do_get_beam, "----+--"},
    {"expand", do_expand, "----+--"},
    {"expand_batch", do_expand_batch, "----+--"},
    {"route", do_route, "----+--"},
    {"finish", do_finish, "----+--"},
    {"verify", do_verify, "----++-"},
    {"observe", do_observe, "-----+-"},
    {"accept", do_accept, "----++-"},
    {"observe_chain", do_observe_chain, "----++-"},
    {"observe_chain, left open", do_leave_open, "----++-"},
    {"save", do_save, "+++++-+"},
    {"load", do_load, "+++++-+"},
    {"get_stats, member, shortlist", do_stats, "+++++++"},
};
enum { N_CALLS = sizeof calls / sizeof *calls };

static void must(specrt_status status) {
    REQUIRE(status == SPECRT_STATUS_OK);
}

/* A tree of the application's own: the root alone. */
static void own_tree(app *a) {
    static const int32_t root_of = -1, depth = 0;
    static const float logprob = 0;
    a->draft = (specrt_draft){1, &a->text[a->n - 1], &root_of, &depth, NULL, &logprob, NULL, 0};
    read_tree(a);
}

/* A session at a place, with a cycle behind it wherever one can be. */
static void go_to(app *a, int place) {
    if (place == CREATED) return;
    must(do_begin(a));
    if (place == PROMPT) return;
    must(do_prefill(a));
    if (place == READ) return;
    must(do_first(a));
    must(do_finish(a));
    must(do_accept(a));
    if (place == OPEN) must(do_leave_open(a));
    if (place == DRAFTED) {
        must(do_expand(a));
        must(do_finish(a));
        must(do_verify(a));
    }
    if (place == DRAFT) own_tree(a);
    if (place != ENDED) return;
    const specrt_request shortest = {.begin = SPECRT_BEGIN_NEW, .max_tokens = 1};
    must(specrt_session_begin(a->s, &shortest));
    specrt_verifier_set_generation(a->plain, a->generation++);
    a->n = 1;
    a->n_prefilled = 0;
    must(do_prefill(a));
    must(do_first(a));
    CHECK_INT(a->verdict.end, SPECRT_END_LENGTH);
}

/* Whatever was called, an application that goes on as the pages say gets plain decoding's text. */
static void complete(app *a) {
    if (do_finish(a) == SPECRT_STATUS_OK || do_verify(a) == SPECRT_STATUS_OK) must(do_accept(a));
    for (int turn = 0; turn < 2; turn++) {
        if (turn || (do_expand(a) && do_start(a) && do_first(a))) {
            must(turn ? do_turn(a) : do_begin(a));
            must(do_prefill(a));
            must(do_first(a));
        }
        for (int32_t end = a->n + N_ANSWER; a->n < end;) {
            while (do_expand(a) == SPECRT_STATUS_OK) {
            }
            must(do_finish(a));
            must(do_accept(a));
        }
    }
}

TEST(table, "every call at every place is in order or refused, and then the text is right") {
    for (int k = 0; k < N_CALLS; k++)
        for (int place = 0; place < N_PLACES; place++)
            for (int i = 0; i < 6; i++) {
                if (test_quick() && i != (k + place) % 6) continue;
                app *a = app_open(i / 2, i % 2 ? 0.8f : 0);
                go_to(a, place);
                specrt_status status = calls[k].run(a);
                bool in_order = calls[k].allowed[place] == '+';
                if (status != (in_order ? SPECRT_STATUS_OK : SPECRT_STATUS_BAD_ORDER))
                    printf("%s at place %d: %s\n", calls[k].name, place,
                           specrt_session_last_error(a->s)->msg);
                CHECK_INT(status, in_order ? SPECRT_STATUS_OK : SPECRT_STATUS_BAD_ORDER);
                if (!in_order) CHECK_HAS(specrt_session_last_error(a->s)->msg, ": expected ");
                complete(a);
                app_close(a);
            }
}

TEST(chance, "calls by chance: a status, or plain decoding's tokens") {
    uint64_t state = 11;
    int64_t n_ok[N_CALLS] = {0}, n_refused[N_CALLS] = {0};
    for (int round = 0; round < (test_brief() ? 60 : 240); round++) {
        app *a = app_open_as(round % 3, round % 2 ? 0.9f : 0, round % 6 > 2 && round % 2);
        for (int i = 0; i < 200 && a->n < MOST / 2; i++) {
            int k = fixture_below(&state, N_CALLS - 1 - (i % 7 != 0) * 2);
            if (k < 2 && fixture_below(&state, 4)) k += 2; /* begin less often */
            specrt_status status = calls[k].run(a);
            ++*(status == SPECRT_STATUS_OK ? &n_ok[k] : &n_refused[k]);
            CHECK(status == SPECRT_STATUS_OK || status == SPECRT_STATUS_BAD_ORDER ||
                  status == SPECRT_STATUS_BAD_ARG);
        }
        complete(a);
        app_close(a);
    }
    for (int k = 2; k < N_CALLS - 1; k++) CHECK(n_ok[k] > 0 && n_refused[k] > 0);
}

TEST(stale, "a verdict of another cycle, or of the first token, is not taken for this one's") {
    for (int i = 0; i < 2; i++) {
        app *a = app_open(0, 0);
        must(do_begin(a));
        must(do_prefill(a));
        must(do_first(a));
        if (i) must(do_finish(a)), must(do_accept(a));
        specrt_verdict old = a->verdict;
        must(do_finish(a));
        a->verdict = old;
        CHECK_INT(do_observe(a), i || old.n == 1 ? SPECRT_STATUS_BAD_ORDER : SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(specrt_session_last_error(a->s)->msg, "found an older one");
        complete(a);
        app_close(a);
    }
}

/* --- arguments --- */

TEST(null, "NULL for every argument that needs something") {
    app *a = app_open(1, 0);
    const specrt_target_rows rows = {.logits = a->logits}, none = {.logits = NULL};
    specrt_session *s = a->s, *absent = NULL;
    specrt_verdict v;
    specrt_beam beam;
    specrt_draft bare = {.n = 1};
    int32_t token = 1;
    size_t n;
    const specrt_error *(*error)(const specrt_session *) = specrt_session_last_error;
    must(do_begin(a));
#define NULLS(status)                                                                              \
    do {                                                                                           \
        CHECK_INT(status, SPECRT_STATUS_BAD_ARG);                                                  \
        CHECK_HAS(error(s)->msg, "expected a pointer, found NULL");                                \
    } while (0)
    NULLS(specrt_session_prefill(s, NULL, 1, NULL));
    must(do_prefill(a));
    NULLS(specrt_session_draw(s, NULL, &token));
    NULLS(specrt_session_draw(s, a->logits, NULL));
    NULLS(specrt_session_first(s, NULL, &v));
    NULLS(specrt_session_first(s, a->logits, NULL));
    must(do_first(a));
    NULLS(specrt_session_get_beam(s, NULL));
    NULLS(specrt_session_expand(s, NULL, NULL, 1, &beam));
    NULLS(specrt_session_expand(s, a->hidden, NULL, 1, NULL));
    NULLS(specrt_session_expand_batch(&s, 1, NULL, NULL, 1, &beam));
    NULLS(specrt_session_expand_batch(&s, 1, a->hidden, NULL, 1, NULL));
    CHECK_INT(specrt_session_expand_batch(NULL, 1, a->hidden, NULL, 1, &beam),
              SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_expand_batch(&absent, 1, a->hidden, NULL, 1, &beam),
              SPECRT_STATUS_BAD_ARG);
    CHECK(!specrt_session_route(s, 0, NULL, a->hidden, NULL));
    CHECK_HAS(error(s)->msg, "found NULL");
    const float logprob = 0;
    beam = (specrt_beam){1, &token, NULL, NULL}; /* parents alone are not read */
    CHECK(!specrt_session_route(s, 0, &beam, a->hidden, NULL));
    beam = (specrt_beam){1, NULL, NULL, &logprob};
    CHECK(!specrt_session_route(s, 0, &beam, a->hidden, NULL));
    CHECK_HAS(error(s)->msg, "found NULL");
    must(do_finish(a));
    NULLS(specrt_session_verify(s, NULL, a->logits, &v));
    NULLS(specrt_session_verify(s, &a->draft, NULL, &v));
    NULLS(specrt_session_verify(s, &a->draft, a->logits, NULL));
    CHECK_INT(specrt_session_verify(s, &bare, a->logits, &v), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(error(s)->msg, "found 1 without");
    NULLS(specrt_session_accept(s, NULL, &rows, &v));
    NULLS(specrt_session_accept(s, &a->draft, NULL, &v));
    NULLS(specrt_session_accept(s, &a->draft, &none, &v));
    NULLS(specrt_session_accept(s, &a->draft, &rows, NULL));
    specrt_draft half = a->draft; /* verified, but nothing can be learned of it */
    half.depths = NULL;
    NULLS(specrt_session_accept(s, &half, &rows, &v));
    CHECK_INT(v.n, 0);
    NULLS(specrt_session_observe(s, NULL, &v, &rows));
    NULLS(specrt_session_observe(s, &a->draft, NULL, &rows));
    NULLS(specrt_session_observe(s, &bare, &v, &rows));
    NULLS(specrt_session_observe_chain(s, NULL, 1, 0, 5, NULL));
    NULLS(specrt_session_save(s, a->saved, sizeof a->saved, NULL));
    NULLS(specrt_session_load(s, NULL, 5));
#undef NULLS
    complete(a);
    app_close(a);
    CHECK_INT(specrt_session_create(NULL, NULL, NULL, &s, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK(s == NULL);
    CHECK_INT(specrt_session_create(policies[0], NULL, NULL, NULL, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_begin(NULL, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_prefill(NULL, &token, 1, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_start(NULL, 1), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_finish(NULL, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_save(NULL, NULL, 0, &n), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_load(NULL, "", 0), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_member(NULL, 0, 0), SPECRT_MEMBER_NO);
    CHECK(!specrt_session_route(NULL, 0, &beam, NULL, NULL) && !specrt_session_shortlist(NULL));
    CHECK(!specrt_session_last_error(NULL));
    specrt_session_get_stats(NULL, NULL);
}

/* Columns of logits that are none or too few, and requests that no session can answer. */
TEST(widths, "wrong widths and requests") {
    specrt_session_params params = params_of(0.8f);
    specrt_session *s;
    specrt_error err;
    open_all();
    for (int32_t n = -1; n < 3; n++) {
        params.n_logits = n < 1 ? n : n == 1 ? V - 1 : SPECRT_MAX_VOCAB + 1;
        CHECK_INT(specrt_session_create(policies[0], &params, NULL, &s, &err),
                  SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(err.msg, "n_logits: expected the columns of the target's logits, at least 300");
    }
    params.n_logits = V;
    params.sampling.session = 0;
    CHECK_INT(specrt_session_create(policies[0], &params, NULL, &s, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "session: expected a number of 1 or more");
    params.sampling.session = 1;
    s = create_session(policies[0], &params, NULL);
    const specrt_sampling unnumbered = {.temperature = 1};
    const struct {
        specrt_request request;
        const char *says;
    } bad[] = {
        {{.begin = (specrt_begin)2}, "begin: begin: expected new (0) or turn (1), found 2"},
        {{.position = -1}, "begin: position: expected 0 to "},
        {{.position = INT64_MAX}, "begin: position: expected 0 to "},
        {{.begin = SPECRT_BEGIN_TURN, .position = 123456}, "expected 0 to 0, the tokens that"},
        {{.max_tokens = -5}, "begin: max_tokens: expected 0 for no limit, or more, found -5"},
        {{.sampling = &unnumbered}, "session: expected a number of 1 or more"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_INT(specrt_session_begin(s, &bad[i].request), SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(specrt_session_last_error(s)->msg, bad[i].says);
        int32_t token = 3;
        CHECK_INT(specrt_session_prefill(s, &token, 1, NULL), SPECRT_STATUS_BAD_ORDER);
    }
    specrt_session_close(s);
}

TEST(positions, "a turn begins within what the target has read") {
    for (int place = 0; place < N_PLACES; place++) {
        app *a = app_open(1, 0.8f);
        go_to(a, place);
        int64_t read = place <= PROMPT ? 0 : place == READ ? a->n : a->n - 1;
        if (place == OPEN) read = a->n; /* the root has been read, too */
        CHECK_INT(begin_as(a, SPECRT_BEGIN_TURN, read + 1), SPECRT_STATUS_BAD_ARG);
        CHECK_INT(begin_as(a, SPECRT_BEGIN_TURN, read), SPECRT_STATUS_OK);
        a->text[a->n++] = 9; /* what the user says */
        must(do_prefill(a));
        must(do_first(a));
        complete(a);
        app_close(a);
    }
}

/* The key of a generation is three numbers, none added to another: no two texts are alike, and what has the
 * same three is the same. */
TEST(keys, "seed, session and generation are three numbers") {
    enum { N = 4, LENGTH = 12 };
    int32_t text[N * N * N][LENGTH];
    const specrt_session_params params = params_of(1.5f);
    open_all();
    specrt_session *s = create_session(policies[0], &params, NULL);
    for (int again = 0; again < 2; again++)
        for (int i = 0; i < N * N * N; i++) {
            const specrt_sampling key = {.temperature = 1.5f,
                                         .seed = (uint64_t)(i / N / N),
                                         .session = (uint64_t)(1 + i / N % N),
                                         .generation = (uint64_t)(i % N)};
            const specrt_request request = {.sampling = i % N && !again ? NULL : &key};
            int32_t prompt = 4, answer[LENGTH];
            float logits[N_LOGITS] = {0};
            must(specrt_session_begin(s, &request)); /* NULL: the next number */
            must(specrt_session_prefill(s, &prompt, 1, NULL));
            for (int k = 0; k < LENGTH; k++) {
                must(specrt_session_draw(s, logits, &answer[k]));
                must(k ? specrt_session_observe_chain(s, &answer[k - 1], 1, 0, answer[k], NULL)
                       : specrt_session_start(s, answer[k]));
            }
            if (again)
                CHECK(memcmp(text[i], answer, sizeof answer) == 0);
            else
                memcpy(text[i], answer, sizeof answer);
        }
    for (int i = 0; i < N * N * N; i++)
        for (int j = 0; j < i; j++) CHECK(memcmp(text[i], text[j], sizeof text[i]) != 0);
    specrt_session_close(s);
}
