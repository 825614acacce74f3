/* test_host.c : the whole loop over a table of callbacks: its tokens are plain decoding's, and it ends
 * where it should. The models are a toy: a token's logits follow from the two tokens before it. */
#include <stdbool.h>
#include "specrt.h"
#include "opened.h"

enum { V = 200, D = 8, N_PROMPT = 23, MOST = 400 };

static float weights[V * D];

typedef struct toy {
    int32_t
        stream[MOST + N_PROMPT + 64]; /* tokens that the caches hold, and the root behind them */
    int32_t n;                        /* of them in the caches */
    int32_t last[SPECRT_TREE_MAX_TOPK][2];
    float hidden[SPECRT_TREE_MAX_TOPK * D], logits[SPECRT_TREE_MAX_NODES * V];
    int32_t fail_at; /* calls of target_verify before it fails */
    int n_levels;
    /* Of the draft at hand: passes, the tokens of each, and the most passes of any. */
    int32_t deepest; /* positions that a verification took */
    int32_t n_passes, most_passes, draft_input[SPECRT_TREE_MAX_STEPS][SPECRT_TREE_MAX_TOPK];
    float least; /* the best path's log-probability at any pass but the first */
    int32_t given[MOST + 64], n_given, stop_after;
} toy;

static void hidden_of(int32_t before, int32_t last, float *out) {
    uint64_t state = (uint64_t)(before % 3 * 500 + last % 30 + 1) * 0x9E3779B97F4A7C15u;
    for (int i = 0; i < D; i++) out[i] = fixture_normal(&state);
}

static void logits_of(int32_t before, int32_t last, float *out) {
    uint64_t state = (uint64_t)(before * V + last + 1) * 0xD6E8FEB86659FD93u;
    float h[D];
    hidden_of(before, last, h);
    for (int i = 0; i < V; i++) {
        out[i] = 0.3f * fixture_normal(&state);
        for (int j = 0; j < D; j++) out[i] += weights[i * D + j] * h[j];
    }
}

static int prefill(void *user, const int32_t *tokens, int32_t n, int all, const float **logits) {
    toy *t = (toy *)user;
    CHECK(n > 0);
    for (int32_t i = 0; i < n; i++) {
        t->stream[t->n++] = tokens[i];
        int32_t before = t->n > 1 ? t->stream[t->n - 2] : 0;
        if (all || i == n - 1) logits_of(before, tokens[i], t->logits + (all ? i : 0) * V);
    }
    *logits = t->logits;
    return 0;
}

static int draft(void *user, int32_t level, const specrt_beam *beam, const float **hidden,
                 const float **draft_input) {
    toy *t = (toy *)user;
    int32_t last[SPECRT_TREE_MAX_TOPK][2];
    memcpy(last, t->last, sizeof last);
    t->n_levels++;
    t->n_passes = level + 1;
    if (t->n_passes > t->most_passes) t->most_passes = t->n_passes;
    if (level > 0 && beam->logprobs[0] < t->least) t->least = beam->logprobs[0];
    memcpy(t->draft_input[level], beam->tokens, (size_t)beam->n * sizeof *beam->tokens);
    for (int32_t i = 0; i < beam->n; i++) {
        t->last[i][0] = level ? last[beam->parents[i]][1] : t->stream[t->n - 1];
        t->last[i][1] = beam->tokens[i];
        hidden_of(t->last[i][0], t->last[i][1], t->hidden + i * D);
    }
    *hidden = t->hidden;
    (void)draft_input;
    return 0;
}

static int verify(void *user, const specrt_draft *d, const float **logits) {
    toy *t = (toy *)user;
    if (t->fail_at > 0 && --t->fail_at == 0) return 7;
    int32_t places[SPECRT_TREE_MAX_NODES];
    for (int32_t i = 0; i < d->n; i++) {
        int32_t before = i ? d->tokens[d->parents[i]] : t->stream[t->n - 1];
        logits_of(before, d->tokens[i], t->logits + i * V);
        places[i] = 1 + (i ? places[d->parents[i]] : t->n);
        if (places[i] > t->deepest) t->deepest = places[i];
    }
    *logits = t->logits;
    return 0;
}

static int commit(void *user, const specrt_draft *d, const specrt_verdict *verdict) {
    toy *t = (toy *)user;
    for (int32_t i = 0; i < d->n; i++) {
        int32_t row = d->beam_rows[i], depth = d->depths[i];
        CHECK(row < 0 ? depth > 0 || t->n_passes == 0
                      : depth < t->n_passes && t->draft_input[depth][row] == d->tokens[i]);
    }
    t->n_passes = 0;
    for (int32_t i = 0; i < verdict->n; i++) t->stream[t->n++] = d->tokens[verdict->nodes[i]];
    return 0;
}

static int take(void *user, const int32_t *tokens, int32_t n) {
    toy *t = (toy *)user;
    CHECK(n > 0);
    for (int32_t i = 0; i < n; i++) t->given[t->n_given++] = tokens[i];
    return t->stop_after > 0 && t->n_given >= t->stop_after;
}

/* --- a session over the toy --- */

typedef struct bench {
    fixture_allocator allocator;
    specrt_head *head;
    specrt_policy *policy;
    specrt_session *session;
    specrt_sampling sampling;
    specrt_host host;
    toy *toy;
} bench;

static int32_t prompt_token(int32_t i) {
    return 13 * i % 41;
}

static void bench_make(bench *b, const char *policy, int32_t topk, float temperature,
                       const int32_t *terminator) {
    uint64_t state = 3;
    memset(b, 0, sizeof *b);
    for (int i = 0; i < V * D; i++) weights[i] = fixture_normal(&state);
    specrt_env env = fixture_desc(&b->allocator);
    specrt_head_desc head = f32_rows(weights, V, D);
    specrt_policy_desc desc = {
        .text = policy, .terminators = terminator, .n_terminators = terminator ? 1 : 0};
    specrt_session_params params = {
        .tree = {.num_steps = 4, .topk = topk, .num_draft_tokens = 12},
        .sampling = {.temperature = temperature, .seed = 9, .session = 1},
        .n_logits = V};
    REQUIRE(specrt_head_bind(NULL, &head, &env, &b->head, NULL) == SPECRT_STATUS_OK);
    b->policy = create_policy(NULL, b->head, &desc);
    b->session = create_session(b->policy, &params, NULL);
    b->sampling = params.sampling;
    b->toy = (toy *)calloc(1, sizeof *b->toy);
    b->host = (specrt_host){.user = b->toy,
                            .max_batch = 10,
                            .target_prefill = prefill,
                            .draft_step = draft,
                            .target_verify = verify,
                            .commit = commit};
}

static void bench_free(bench *b) {
    close_all(b->session, b->policy, b->head);
    free(b->toy);
}

/* generation : its number; -1: the next */
static specrt_status generate_as(bench *b, specrt_generation *g, int64_t max_tokens,
                                 int64_t generation) {
    int32_t prompt[N_PROMPT];
    for (int32_t i = 0; i < N_PROMPT; i++) prompt[i] = prompt_token(i);
    b->toy->n = b->toy->n_given = 0;
    g->user = b->toy;
    g->each = take;
    specrt_sampling sampling = b->sampling;
    sampling.generation = (uint64_t)generation;
    const specrt_request request = {.max_tokens = max_tokens,
                                    .sampling = generation < 0 ? NULL : &sampling};
    return specrt_generate(b->session, &b->host, &request, prompt, N_PROMPT, g);
}

static specrt_status generate(bench *b, specrt_generation *g, int64_t max_tokens) {
    return generate_as(b, g, max_tokens, -1);
}

static const char *error_of(const bench *b) {
    return specrt_session_last_error(b->session)->msg;
}

static void plain(float temperature, uint64_t session, uint64_t generation, int32_t *out,
                  int32_t n) {
    float logits[V];
    specrt_sampling sampling = {
        .temperature = temperature, .seed = 9, .session = session, .generation = generation};
    int32_t before = prompt_token(N_PROMPT - 2), last = prompt_token(N_PROMPT - 1);
    specrt_verifier *v = create_verifier(V, V, &sampling);
    for (int32_t i = 0; i < n; i++) {
        logits_of(before, last, logits);
        out[i] = specrt_verifier_draw(v, logits, N_PROMPT + i);
        before = last;
        last = out[i];
    }
    specrt_verifier_close(v);
}

/* --- tests --- */

TEST(same, "tokens are plain decoding's, nothing is allocated") {
    static const char *const policies[] = {"full", "window:64@min=8", "microspec-paper"};
    for (int i = 0; i < 12; i++) {
        bench b;
        specrt_generation g = {0};
        const int64_t max_tokens = 150;
        float temperature = i % 2 ? 0.8f : 0;
        int32_t expected[150];
        specrt_session_stats stats;
        bench_make(&b, policies[i / 4], i / 2 % 2 ? 1 : 3, temperature, NULL);
        b.host.max_batch = i % 3 ? 10 : N_PROMPT;
        int n_before = b.allocator.n_calls;
        CHECK_INT(generate(&b, &g, max_tokens), SPECRT_STATUS_OK);
        CHECK_INT(b.allocator.n_calls, n_before);
        CHECK_INT(g.end, SPECRT_END_LENGTH);
        CHECK_INT(g.n_tokens, 150);
        CHECK_INT(b.toy->n_given, 150);
        plain(temperature, 1, 0, expected, 150);
        CHECK(memcmp(expected, b.toy->given, sizeof expected) == 0);
        specrt_session_get_stats(b.session, &stats);
        CHECK(stats.n_emitted > stats.n_cycles); /* drafts were accepted */
        bench_free(&b);
    }
}

/* Fewer passes, and none below a probability, change no token; and the models are asked as said. */
TEST(depth, "drafts end at a depth or probability that may change") {
    for (int i = 0; i < 16; i++) {
        bench b;
        specrt_generation g = {0};
        const int64_t max_tokens = 100;
        int32_t expected[100], topk = i % 2 ? 1 : 3, num_steps = i / 2 % 2 ? 2 : 9;
        float p_min = i / 4 % 2 ? 0.2f : 0, temperature = i / 8 ? 0.8f : 0;
        bench_make(&b, "full", topk, temperature, NULL);
        b.host.num_steps = num_steps;
        b.host.p_min = p_min;
        CHECK_INT(generate(&b, &g, max_tokens), SPECRT_STATUS_OK);
        plain(temperature, 1, 0, expected, 100);
        CHECK(memcmp(expected, b.toy->given, sizeof expected) == 0);
        int32_t most = num_steps < 4 ? num_steps : 4;
        CHECK(p_min > 0 ? b.toy->most_passes > 1 && b.toy->most_passes <= most
                        : b.toy->most_passes == most);
        CHECK(p_min > 0 ? b.toy->least >= logf(0.2f) : b.toy->least < logf(0.2f));
        bench_free(&b);
    }
}

TEST(auto_draft, "auto_draft that drafts now and then, less deep or not at all, changes no token") {
    for (int i = 0; i < 12; i++) {
        const double levels[] = {0.02, 0.25, 1.2};
        double costs[5] = {1};
        bench b;
        specrt_generation g = {0};
        const int64_t max_tokens = 300;
        int32_t expected[300], topk = i % 2 ? 1 : 3;
        float temperature = i / 2 % 2 ? 0.8f : 0;
        specrt_auto_stats stats;
        specrt_auto_desc desc = {.num_steps = 4, .n_lists = 1, .costs = costs};
        specrt_session_params params = {
            .tree = {4, topk, 12},
            .sampling = {.temperature = temperature, .seed = 9, .session = 1},
            .n_logits = V};
        for (int n = 1; n <= 4; n++) costs[n] = 1 + levels[i / 4] * n;
        REQUIRE(specrt_auto_create(&desc, NULL, &params.auto_draft, NULL) == SPECRT_STATUS_OK);
        bench_make(&b, "full", topk, temperature, NULL);
        specrt_session_close(b.session);
        b.session = create_session(b.policy, &params, NULL);
        CHECK_INT(generate(&b, &g, max_tokens), SPECRT_STATUS_OK);
        plain(temperature, 1, 0, expected, 300);
        CHECK(memcmp(expected, b.toy->given, sizeof expected) == 0);
        specrt_auto_get_stats(params.auto_draft, &stats);
        CHECK(stats.n_emitted >= 299 && stats.n_passes > 0 && b.toy->n_levels == stats.n_passes);
        if (i / 4 == 2) CHECK(stats.n_plain > 0);
        bench_free(&b);
        specrt_auto_close(params.auto_draft);
    }
}

TEST(late, "a prompt is read late where the answer repays it") {
    const double costs[5] = {1, 1.02, 1.04, 1.06, 1.08};
    for (int i = 0; i < 4; i++) {
        bench b;
        specrt_generation g = {0};
        int32_t expected[100];
        specrt_auto_desc desc = {
            .num_steps = 4, .n_lists = 1, .costs = costs, .read = i % 2 ? 100 : 0.001};
        specrt_session_params params = {.tree = {4, 1, 5}, .n_logits = V};
        REQUIRE(specrt_auto_create(&desc, NULL, &params.auto_draft, NULL) == SPECRT_STATUS_OK);
        bench_make(&b, "full", 1, 0, NULL);
        specrt_session_close(b.session);
        b.session = create_session(b.policy, &params, NULL);
        b.host.reads_late = i / 2;
        CHECK_INT(generate(&b, &g, 100), SPECRT_STATUS_OK);
        plain(0, 0, 0, expected, 100);
        CHECK(memcmp(expected, b.toy->given, sizeof expected) == 0);
        CHECK((b.toy->n_levels == 0) == (i == 3));
        bench_free(&b);
        specrt_auto_close(params.auto_draft);
    }
}

TEST(ends, "terminators, limits and the application end an answer") {
    bench b;
    int32_t expected[MOST];
    specrt_generation g = {0};
    plain(0.8f, 1, 0, expected, MOST);
    int32_t end = 0; /* a token that first comes late */
    for (int32_t i = 30; i < 60 && !end; i++) {
        bool before = false;
        for (int32_t j = 0; j < i; j++) before |= expected[j] == expected[i];
        if (!before) end = i;
    }
    REQUIRE(end);
    bench_make(&b, "full", 3, 0.8f, &expected[end]);
    CHECK_INT(generate(&b, &g, 0), SPECRT_STATUS_OK);
    CHECK_INT(g.end, SPECRT_END_TERMINATOR);
    CHECK_INT(b.toy->n_given, end + 1);
    CHECK(specrt_policy_ends(b.policy, expected[end]) && !specrt_policy_ends(b.policy, V + 5));
    specrt_verdict verdict; /* an answer that has ended does not go on */
    CHECK_INT(specrt_host_cycle(b.session, &b.host, &verdict), SPECRT_STATUS_BAD_ORDER);
    CHECK_STR(error_of(&b), "host_cycle: expected specrt_session_begin() first: the generation has "
                            "ended");
    b.toy->stop_after = 5;
    CHECK_INT(generate_as(&b, &g, 0, 0), SPECRT_STATUS_OK);
    CHECK_INT(g.end, SPECRT_END_STOPPED);
    CHECK(b.toy->n_given >= 5 && b.toy->n_given <= 5 + 5);
    b.toy->stop_after = 0; /* both at once: the terminator is what ended it */
    CHECK_INT(generate_as(&b, &g, end + 1, 0), SPECRT_STATUS_OK);
    CHECK_INT(g.end, SPECRT_END_TERMINATOR);
    CHECK_INT(b.toy->n, N_PROMPT + end); /* what is cut off is in no cache, nor the last token */
    /* what ends it comes right behind, perhaps in the same verdict */
    CHECK_INT(generate_as(&b, &g, end, 0), SPECRT_STATUS_OK);
    CHECK_INT(g.end, SPECRT_END_LENGTH);
    CHECK_INT(b.toy->n_given, end);
    CHECK_INT(b.toy->n, N_PROMPT + end - 1);
    b.toy->most_passes = 0;
    b.host.p_min = 1; /* of the root alone, so that one level is drafted */
    CHECK_INT(generate_as(&b, &g, end, 0), SPECRT_STATUS_OK);
    CHECK_INT(b.toy->most_passes, 1);
    b.host.p_min = 0;
    b.toy->n_levels = 0; /* the prompt's own: nothing is drafted */
    CHECK_INT(generate_as(&b, &g, 1, 0), SPECRT_STATUS_OK);
    CHECK_INT(g.end, SPECRT_END_LENGTH);
    CHECK_INT(b.toy->n_levels, 0);
    bench_free(&b);
}

/* The answers of one session, by number, are those of plain decoding with these numbers. */
TEST(answers, "each answer of a session draws anew, or again where asked") {
    static const uint64_t numbers[] = {0, 1, 2, 1, 2, 77, 78};
    bench b;
    bench_make(&b, "window:64@min=8", 3, 0.8f, NULL);
    for (int i = 0; i < 7; i++) {
        int32_t expected[40];
        specrt_generation g = {0};
        bool counts_on = i == 0 || numbers[i] == numbers[i - 1] + 1;
        CHECK_INT(generate_as(&b, &g, 40, counts_on ? -1 : (int64_t)numbers[i]), SPECRT_STATUS_OK);
        plain(0.8f, 1, numbers[i], expected, 40);
        CHECK(memcmp(expected, b.toy->given, sizeof expected) == 0);
    }
    bench_free(&b);
}

/* --- several sequences --- */

enum { N_SEQUENCES = 3, N_ANSWER = 60 };

/* Sessions of one policy over one engine, a sequence each, drawn by numbers of their own. */
typedef struct crowd {
    bench of; /* its session and toy are the first's */
    specrt_session *sessions[N_SEQUENCES];
    toy *toys[N_SEQUENCES];        /* the engine's caches, by sequence */
    specrt_host host[N_SEQUENCES]; /* one table: they differ in user alone */
    specrt_verdict verdicts[N_SEQUENCES];
} crowd;

static void crowd_make(crowd *c, const char *policy, int32_t topk) {
    int32_t prompt[N_PROMPT];
    bench_make(&c->of, policy, topk, 0.8f, NULL);
    for (int32_t i = 0; i < N_PROMPT; i++) prompt[i] = prompt_token(i);
    for (int i = 0; i < N_SEQUENCES; i++) {
        specrt_session_params params = {
            .tree = {.num_steps = 4, .topk = topk, .num_draft_tokens = 12},
            .sampling = {.temperature = 0.8f, .seed = 9, .session = (uint64_t)(i + 1)},
            .n_logits = V};
        c->toys[i] = (toy *)calloc(1, sizeof *c->toys[i]);
        c->sessions[i] = create_session(c->of.policy, &params, NULL);
        c->host[i] = c->of.host;
        c->host[i].user = c->toys[i];
        CHECK_INT(
            specrt_host_begin(c->sessions[i], &c->host[i], NULL, prompt, N_PROMPT, &c->verdicts[i]),
            SPECRT_STATUS_OK);
    }
}

static void crowd_free(crowd *c) {
    for (int i = 0; i < N_SEQUENCES; i++) {
        specrt_session_close(c->sessions[i]);
        free(c->toys[i]);
    }
    bench_free(&c->of);
}

/* Whether any answer is still too short. */
static bool crowd_takes(crowd *c) {
    bool more = false;
    for (int i = 0; i < N_SEQUENCES; i++) {
        take(c->toys[i], c->verdicts[i].tokens, c->verdicts[i].n);
        more = more || c->toys[i]->n_given < N_ANSWER;
    }
    return more;
}

static void check_answers(const crowd *c) {
    int32_t expected[N_ANSWER];
    for (int i = 0; i < N_SEQUENCES; i++) {
        plain(0.8f, (uint64_t)(i + 1), 0, expected, N_ANSWER);
        CHECK(memcmp(expected, c->toys[i]->given, sizeof expected) == 0);
    }
    CHECK(memcmp(c->toys[0]->given, c->toys[1]->given, sizeof expected) != 0);
}

TEST(turns, "sequences take turns, cycle by cycle; the head is not copied for any") {
    crowd c;
    crowd_make(&c, "full", 3);
    const specrt_shortlist *first = specrt_session_shortlist(c.sessions[0]);
    const specrt_shortlist *last = specrt_session_shortlist(c.sessions[N_SEQUENCES - 1]);
    CHECK(first->segments[0].rows == last->segments[0].rows);
    while (crowd_takes(&c))
        for (int i = 0; i < N_SEQUENCES; i++)
            CHECK_INT(specrt_host_cycle(c.sessions[i], &c.host[i], &c.verdicts[i]),
                      SPECRT_STATUS_OK);
    check_answers(&c);
    crowd_free(&c);
}

/* One pass of the drafter over the beams of all sequences. hidden : [sum of their n, D] */
static void pass_together(crowd *c, int32_t level, const specrt_beam *beams, float *hidden) {
    for (int i = 0; i < N_SEQUENCES; i++) {
        const float *own, *draft_input = NULL;
        if (beams[i].n == 0) continue;
        draft(c->toys[i], level, &beams[i], &own, &draft_input);
        memcpy(hidden, own, (size_t)beams[i].n * D * sizeof *hidden);
        hidden += beams[i].n * D;
    }
}

/* A level of every tree by one pass. @return whether any goes on */
static bool level_together(crowd *c, int32_t level, specrt_beam *beams) {
    float hidden[N_SEQUENCES * SPECRT_TREE_MAX_TOPK * D];
    const float *rows = hidden;
    bool more = false;
    pass_together(c, level, beams, hidden);
    for (int i = 0; i < N_SEQUENCES; i++) {
        int32_t n = beams[i].n;
        if (n == 0) continue;
        CHECK_INT(specrt_session_expand(c->sessions[i], rows, NULL, n, &beams[i]),
                  SPECRT_STATUS_OK);
        rows += n * D;
        more = more || beams[i].n > 0;
    }
    return more;
}

/* All trees are grown, then all are verified, then all sessions learn: what an engine does that runs its
 * sequences in one batch. */
static void cycle_together(crowd *c) {
    static float logits[N_SEQUENCES][SPECRT_TREE_MAX_NODES * V];
    const int32_t no_parent = 0;
    const float certain = 0, *found;
    specrt_beam beams[N_SEQUENCES];
    specrt_draft drafts[N_SEQUENCES];
    for (int i = 0; i < N_SEQUENCES; i++)
        beams[i] =
            (specrt_beam){1, &c->verdicts[i].tokens[c->verdicts[i].n - 1], &no_parent, &certain};
    for (int32_t level = 0; level < 4 && level_together(c, level, beams); level++) {
    }
    for (int i = 0; i < N_SEQUENCES; i++) {
        specrt_session_finish(c->sessions[i], &drafts[i]);
        verify(c->toys[i], &drafts[i], &found);
        memcpy(logits[i], found, (size_t)drafts[i].n * V * sizeof *found);
    }
    for (int i = 0; i < N_SEQUENCES; i++) {
        const specrt_target_rows rows = {.logits = logits[i]};
        CHECK_INT(specrt_session_verify(c->sessions[i], &drafts[i], logits[i], &c->verdicts[i]),
                  SPECRT_STATUS_OK);
        commit(c->toys[i], &drafts[i], &c->verdicts[i]);
        CHECK_INT(specrt_session_observe(c->sessions[i], &drafts[i], &c->verdicts[i], &rows),
                  SPECRT_STATUS_OK);
    }
}

TEST(together, "sessions share each pass of an engine") {
    for (int i = 0; i < 4; i++) {
        crowd c;
        crowd_make(&c, i / 2 ? "window:64@min=8" : "full", i % 2 ? 1 : 3);
        while (crowd_takes(&c)) cycle_together(&c);
        check_answers(&c);
        crowd_free(&c);
    }
}

TEST(context, "a full context ends it too") {
    bench b;
    specrt_generation g = {0};
    for (int32_t room = 1; room < 12; room++) {
        bench_make(&b, "full", 3, 0, NULL);
        b.host.n_context = N_PROMPT + room;
        CHECK_INT(generate(&b, &g, 0), SPECRT_STATUS_OK);
        CHECK_INT(g.end, SPECRT_END_CONTEXT);
        CHECK_INT(g.n_tokens, room + 1); /* the last needs no position of its own */
        CHECK(b.toy->deepest <= N_PROMPT + room);
        bench_free(&b);
    }
    bench_make(&b, "full", 3, 0, NULL);
    b.host.n_context = N_PROMPT;
    CHECK_INT(generate(&b, &g, 0), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(error_of(&b), "prompt: expected 1 to 22 tokens, found 23");
    b.host.n_context = 1;
    CHECK_INT(generate(&b, &g, 0), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(error_of(&b),
              "host: n_context: expected 0 for no limit, or at least 2 for a prompt and what "
              "follows it, found 1");
    b.host.n_context = -5;
    CHECK_INT(generate(&b, &g, 0), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(error_of(&b), "n_context: expected 0 for no limit, or at least 2");
    bench_free(&b);
}

TEST(conversation, "a turn repeats the conversation, or follows the cache") {
    int32_t first[40], answers[2][40];
    for (int again = 0; again < 2; again++) {
        bench b;
        specrt_generation g = {0};
        specrt_request turn = {.begin = SPECRT_BEGIN_TURN, .max_tokens = 40};
        int32_t talk[N_PROMPT + 42];
        bench_make(&b, "window:64@min=8", 3, 0.8f, NULL);
        CHECK_INT(generate(&b, &g, 40), SPECRT_STATUS_OK);
        memcpy(first, b.toy->given, sizeof first);
        int32_t n_read = b.toy->n; /* the last token of the answer was never read */
        CHECK_INT(n_read, N_PROMPT + 39);
        memcpy(talk, b.toy->stream, (size_t)n_read * sizeof *talk);
        talk[n_read] = first[39];
        talk[n_read + 1] = 5;
        turn.position = again ? 0 : n_read + 1;
        b.toy->n = again ? 0 : n_read;
        if (!again) {
            CHECK_INT(specrt_generate(b.session, &b.host, &turn, talk, 1, &g),
                      SPECRT_STATUS_BAD_ARG);
            CHECK_STR(error_of(&b), "begin: position: expected 0 to 62, the tokens that the target "
                                    "has read (the last emitted one leads the prompt), found 63");
            turn.position = n_read;
        }
        b.toy->n_given = 0;
        CHECK_INT(specrt_generate(b.session, &b.host, &turn, talk + turn.position,
                                  n_read + 2 - turn.position, &g),
                  SPECRT_STATUS_OK);
        CHECK_INT(b.toy->n_given, 40);
        memcpy(answers[again], b.toy->given, sizeof answers[again]);
        bench_free(&b);
    }
    CHECK(memcmp(answers[0], answers[1], sizeof answers[0]) == 0);
    CHECK(memcmp(answers[0], first, sizeof first) != 0);
}

static int no_logits(void *user, const specrt_draft *d, const float **logits) {
    return (void)user, (void)d, (void)logits, 0;
}

TEST(refusals, "holes in the table, failing models, bad prompts") {
    bench b;
    specrt_generation g = {0};
    specrt_verdict first;
    bench_make(&b, "microspec", 3, 0, NULL);
    specrt_host good = b.host;
    b.host.draft_step = NULL;
    CHECK_INT(generate(&b, &g, 50), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(error_of(&b), "host: draft_step: expected a function, found NULL");
    b.host = good;
    b.host.commit = NULL;
    CHECK_INT(generate(&b, &g, 50), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(error_of(&b), "host: commit: expected a function, found NULL");
    b.host = good;
    b.host.target_verify = no_logits;
    CHECK_INT(generate(&b, &g, 50), SPECRT_STATUS_HOST);
    CHECK_STR(error_of(&b), "host: target_verify: returned 0, expected a result with it, found "
                            "NULL");
    b.host = good;
    b.toy->fail_at = 3;
    CHECK_INT(generate(&b, &g, 50), SPECRT_STATUS_HOST);
    CHECK_STR(error_of(&b), "host: target_verify: returned 7");
    CHECK(b.toy->n_given > 0);
    CHECK_INT(specrt_host_cycle(b.session, &b.host, &first), SPECRT_STATUS_BAD_ORDER);
    int32_t bad[2] = {1, V};
    b.toy->n = 0;
    CHECK_INT(specrt_host_begin(b.session, &b.host, NULL, bad, 2, &first), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(error_of(&b), "prompt: token 1: expected 0 to 199, found 200");
    CHECK_INT(b.toy->n, 0); /* the model did not see it */
    CHECK_INT(specrt_host_begin(b.session, &b.host, NULL, bad, 0, &first), SPECRT_STATUS_BAD_ARG);
    static const int64_t nowhere[] = {INT64_MIN, -1, INT64_MAX}; /* beside a context that ends */
    b.host.n_context = 100;
    for (int i = 0; i < 3; i++) {
        const specrt_request request = {.position = nowhere[i]};
        CHECK_INT(specrt_host_begin(b.session, &b.host, &request, bad, 1, &first),
                  SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(error_of(&b), "begin: position: expected 0 to ");
    }
    b.host.n_context = 0;
    CHECK_INT(generate(&b, &g, 50), SPECRT_STATUS_OK); /* a session outlives its failures */
    bench_free(&b);
}
