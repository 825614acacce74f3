/* test_decoder.c : decoders over one sequence, late readers, an engine's own drafts and cycles, the clock. An
 * engine that is counted, or changed, stands for others. */
#include "specrt_tools.h"
#include "engine/backend/costs.h"
#include "tiny.h"

enum { V = 50, D = 32, LENGTH = 40, N_PROMPT = 100, CONTEXT = 256 };
static const tiny target_shape = {"llama", 2, D, 4, 2, 8, 48, V, .tied = true};
static const tiny draft_shape = {"qwen2", 1, 24, 2, 1, 12, 40, V, .tied = true};

static specrt_error err;

/* A pair, and an engine over it whose callbacks are counted. */
typedef struct pair {
    engine_model *target;
    engine_drafter *drafter;
    specrt_head *head;
    specrt_policy *policy;
    backend *engine;
    sequence *sequence;
    specrt_host inner;
    int n_drafts, n_passes; /* of the target */
    int fails;              /* passes of the drafter from now to one that fails; 0: none does */
} pair;

static int count_draft(void *user, int32_t level, const specrt_beam *beam, const float **hidden,
                       const float **draft_input) {
    pair *p = (pair *)user;
    p->n_drafts++;
    if (p->fails && --p->fails == 0) return SPECRT_STATUS_HOST;
    return p->inner.draft_step(p->inner.user, level, beam, hidden, draft_input);
}

static int count_verify(void *user, const specrt_draft *draft, const float **logits) {
    pair *p = (pair *)user;
    p->n_passes++;
    return p->inner.target_verify(p->inner.user, draft, logits);
}

static int pass_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                        const float **logits) {
    pair *p = (pair *)user;
    return p->inner.target_prefill(p->inner.user, tokens, n, all, logits);
}

static int pass_commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    pair *p = (pair *)user;
    return p->inner.commit(p->inner.user, draft, verdict);
}

static int pass_hidden(void *user, const float **hidden, int32_t *width) {
    pair *p = (pair *)user;
    return p->inner.target_hidden(p->inner.user, hidden, width);
}

static sequence *add_sequence(pair *p) {
    sequence *s;
    REQUIRE(sequence_create(p->engine, &s, &err) == SPECRT_STATUS_OK);
    return s;
}

/* drafter : NULL: the target drafts for itself, and every draft is right */
static void open_pair(pair *p, const tiny *drafter) {
    tiny_model target, draft;
    specrt_head_desc head;
    *p = (pair){.n_drafts = 0};
    make_tiny(&target, target_shape, 5);
    make_tiny(&draft, drafter ? *drafter : target_shape, 5);
    p->target = open_tiny(&target, 1);
    const char *path = write_tiny(&draft, NULL);
    REQUIRE(engine_drafter_open(path, p->target, &p->drafter, &err) == SPECRT_STATUS_OK);
    unlink(path);
    free_tiny(&target);
    free_tiny(&draft);
    engine_drafter_head(p->drafter, &head);
    p->head = bind_head(NULL, &head);
    p->policy = create_policy(NULL, p->head, &(specrt_policy_desc){.text = "full"});
    REQUIRE(own_over(p->target, p->drafter, CONTEXT, &p->engine, &err) == SPECRT_STATUS_OK);
    p->sequence = add_sequence(p);
    p->inner = p->sequence->host;
    p->sequence->host = (specrt_host){.user = p,
                                      .n_context = p->inner.n_context,
                                      .max_batch = p->inner.max_batch,
                                      .target_prefill = pass_prefill,
                                      .draft_step = count_draft,
                                      .target_verify = count_verify,
                                      .commit = pass_commit,
                                      .target_hidden = pass_hidden};
}

static void close_pair(pair *p) {
    sequence_free(p->sequence);
    backend_close(p->engine);
    specrt_policy_close(p->policy);
    specrt_head_close(p->head);
    engine_drafter_close(p->drafter);
    engine_close(p->target);
}

static decoder *add_decoder(const pair *p, sequence *s, decoder_desc desc) {
    decoder *d;
    desc.sequence = s;
    if (desc.kind == DECODER_SESSION) desc.policy = p->policy;
    if (desc.params.tree.topk == 0)
        desc.params.tree = (specrt_tree_params){.num_steps = 3, .topk = 1, .num_draft_tokens = 4};
    specrt_status status = decoder_create(&desc, &d, &err);
    if (status != SPECRT_STATUS_OK) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(status == SPECRT_STATUS_OK);
    return d;
}

static void begin(decoder *d, const specrt_request *request) {
    int32_t prompt[N_PROMPT];
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = (7 * i * i + 3 * i) % V;
    REQUIRE(decoder_begin(d, request, prompt, N_PROMPT, &err) == SPECRT_STATUS_OK);
}

static void decode(decoder *d, const specrt_sampling *sampling, int32_t *out) {
    const specrt_request request = {.max_tokens = LENGTH, .sampling = sampling};
    const specrt_verdict *v;
    begin(d, &request);
    int32_t n = 0;
    do {
        REQUIRE(decoder_next(d, &v, &err) == SPECRT_STATUS_OK && v->n > 0);
        memcpy(out + n, v->tokens, (size_t)v->n * sizeof *out);
        n += v->n;
    } while (v->end == SPECRT_END_NONE);
    CHECK_INT(n, LENGTH);
}

static void check_same(const int32_t *a, const int32_t *b) {
    for (int i = 0; i < LENGTH; i++) CHECK_INT(a[i], b[i]);
}

/* ---- sharing --------------------------------------------------------------------------------------- */

static int64_t cycles_of(const decoder *d) {
    specrt_session_stats stats;
    specrt_session_get_stats(decoder_session(d), &stats);
    return stats.n_cycles;
}

TEST(share, "decoders over one sequence, in turns") {
    const decoder_desc kinds[] = {
        {.kind = DECODER_PLAIN},
        {.kind = DECODER_SESSION},
        {.kind = DECODER_SESSION,
         .params.tree = {.num_steps = 3, .topk = 3, .num_draft_tokens = 9}},
    };
    pair p;
    open_pair(&p, &draft_shape);
    decoder *shared[3], *alone[3];
    sequence *own[3];
    for (int i = 0; i < 3; i++) {
        own[i] = add_sequence(&p);
        shared[i] = add_decoder(&p, p.sequence, kinds[i]);
        alone[i] = add_decoder(&p, own[i], kinds[i]);
    }
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < 3; i++) {
            int32_t expected[LENGTH], found[LENGTH];
            const specrt_sampling sampling = {.temperature = turn ? 1 : 0, .session = 3};
            decode(alone[i], &sampling, expected);
            decode(shared[i], &sampling, found);
            check_same(found, expected);
            if (i) CHECK_INT(cycles_of(shared[i]), cycles_of(alone[i]));
        }
    for (int i = 0; i < 3; i++) {
        decoder_free(shared[i]);
        decoder_free(alone[i]);
        sequence_free(own[i]);
    }
    close_pair(&p);
}

/* ---- costs ---------------------------------------------------------------------------------------- */

TEST(measured, "passes are measured between two texts, which are the same") {
    static specrt_costs costs;
    const specrt_tree_params tree = {.num_steps = 6, .topk = 10, .num_draft_tokens = 60};
    int32_t expected[LENGTH], found[LENGTH];
    pair p;
    open_pair(&p, &draft_shape);
    decoder *d = add_decoder(&p, p.sequence, (decoder_desc){.kind = DECODER_SESSION});
    decode(d, NULL, expected);
    CHECK_INT(sequence_costs(p.sequence, p.head, &tree, 0, 0.1, &costs, &err), SPECRT_STATUS_OK);
    CHECK(costs.target.sizes[costs.target.n - 1] == 60 && costs.draft.n >= 5);
    CHECK(costs.head_first.n == 1 && costs.head_next[2].sizes[0] == V);
    CHECK(costs.prompt.n >= 2 && costs.prompt_all.n >= 2 && costs.draft_prompt.n >= 2);
    CHECK(!p.sequence->reads_late);
    decode(d, NULL, found);
    check_same(found, expected);
    p.fails = 3;
    CHECK_INT(sequence_costs(p.sequence, p.head, &tree, 0, 0.1, &costs, &err), SPECRT_STATUS_HOST);
    CHECK_HAS(err.msg, "costs: expected passes of both models, found that one failed with ");
    decoder_free(d);
    close_pair(&p);
}

/* ---- late readers ---------------------------------------------------------------------------------- */

TEST(late, "the tokens and cycles are those of a drafter that reads at once") {
    int32_t expected[LENGTH], found[LENGTH];
    pair p;
    open_pair(&p, NULL);
    decoder *early = add_decoder(&p, p.sequence, (decoder_desc){.kind = DECODER_SESSION});
    decoder *late =
        add_decoder(&p, p.sequence, (decoder_desc){.kind = DECODER_SESSION, .reads_late = true});
    decode(early, NULL, expected);
    decode(late, NULL, found);
    check_same(found, expected);
    CHECK_INT(cycles_of(late), cycles_of(early));
    CHECK_INT(cycles_of(late), (LENGTH - 1 + 3) / 4); /* every draft is right */
    decoder_free(early);
    decoder_free(late);
    close_pair(&p);
}

TEST(waits, "auto reads no prompt that no draft repays") {
    const double costs[4] = {1, 1.02, 1.04, 1.06};
    const specrt_auto_desc dear = {.num_steps = 3, .n_lists = 1, .costs = costs, .read = 1000};
    int32_t expected[LENGTH], found[LENGTH];
    pair p;
    open_pair(&p, NULL);
    decoder *plain = add_decoder(&p, p.sequence, (decoder_desc){.kind = DECODER_PLAIN});
    decode(plain, NULL, expected);
    for (int is_late = 0; is_late < 2; is_late++) {
        decoder_desc desc = {.kind = DECODER_SESSION, .reads_late = is_late != 0};
        REQUIRE(specrt_auto_create(&dear, NULL, &desc.params.auto_draft, &err) == SPECRT_STATUS_OK);
        decoder *d = add_decoder(&p, p.sequence, desc);
        p.n_drafts = 0;
        decode(d, NULL, found);
        check_same(found, expected);
        CHECK((p.n_drafts == 0) == (is_late != 0));
        decoder_free(d);
        specrt_auto_close(desc.params.auto_draft);
    }
    decoder_free(plain);
    close_pair(&p);
}

/* Nothing is read for a text without drafts, and a draft after 80 of its tokens is right all the same. */
TEST(unread, "no pass of the drafter before the first draft") {
    pair p;
    open_pair(&p, NULL);
    for (int is_late = 0; is_late < 2; is_late++) {
        const specrt_verdict *v;
        specrt_host host;
        specrt_verdict out;
        decoder *d = add_decoder(
            &p, p.sequence, (decoder_desc){.kind = DECODER_SESSION, .reads_late = is_late != 0});
        begin(d, NULL);
        REQUIRE(decoder_next(d, &v, &err) == SPECRT_STATUS_OK);
        host = *decoder_host(d);
        host.p_min = 2; /* no path is so probable */
        p.n_drafts = 0;
        for (int i = 0; i < 80; i++)
            REQUIRE(specrt_host_cycle(decoder_session(d), &host, &out) == SPECRT_STATUS_OK);
        CHECK_INT(p.n_drafts, 0);
        host.p_min = 0;
        REQUIRE(specrt_host_cycle(decoder_session(d), &host, &out) == SPECRT_STATUS_OK);
        CHECK_INT(p.n_drafts, 3);
        CHECK_INT(out.n, 4);
        decoder_free(d);
    }
    close_pair(&p);
}

/* Where it never reads, a drafter that cannot is no fault; where it reads late, it is one then. */
TEST(faults, "a damaged drafter is one where it reads") {
    const specrt_verdict *v;
    pair p;
    tiny_model draft;
    open_pair(&p, &draft_shape);
    engine_drafter *damaged;
    backend *engine;
    sequence *s;
    make_tiny(&draft, draft_shape, 5);
    for (int i = 0; i < draft.n_tensors; i++)
        if (strcmp(draft.tensors[i].name, "blk.0.ffn_down.weight") == 0)
            draft.tensors[i].data[0] = NAN;
    const char *path = write_tiny(&draft, NULL);
    REQUIRE(engine_drafter_open(path, p.target, &damaged, &err) == SPECRT_STATUS_OK);
    unlink(path);
    free_tiny(&draft);
    REQUIRE(own_over(p.target, damaged, CONTEXT, &engine, &err) == SPECRT_STATUS_OK);
    REQUIRE(sequence_create(engine, &s, &err) == SPECRT_STATUS_OK);
    int32_t tokens[LENGTH];
    decoder *plain = add_decoder(&p, s, (decoder_desc){.kind = DECODER_PLAIN});
    decode(plain, NULL, tokens);
    CHECK(sequence_fault(s)[0] == '\0');
    for (int is_late = 0; is_late < 2; is_late++) {
        const int32_t prompt[] = {3, 1, 4};
        decoder *d =
            add_decoder(&p, s, (decoder_desc){.kind = DECODER_SESSION, .reads_late = is_late != 0});
        err = (specrt_error){0};
        specrt_status status = decoder_begin(d, NULL, prompt, 3, &err);
        CHECK_INT(status, is_late ? SPECRT_STATUS_OK : SPECRT_STATUS_BAD_INPUT);
        for (int i = 0; is_late && i < 2 && status == SPECRT_STATUS_OK; i++)
            status = decoder_next(d, &v, &err);
        CHECK_INT(status, SPECRT_STATUS_BAD_INPUT);
        CHECK(strstr(err.msg, "drafter: its answer to the prompt is not finite") != NULL);
        decoder_free(d);
    }
    decode(plain, NULL, tokens); /* over the same sequence */
    decoder_free(plain);
    sequence_free(s);
    backend_close(engine);
    engine_drafter_close(damaged);
    close_pair(&p);
}

/* ---- other engines --------------------------------------------------------------------------------- */

TEST(cycles, "cycles are kept where a token's logits depend on what else the target read") {
    const decoder_cycle *cycles;
    int32_t tokens[LENGTH], n_tokens = 0;
    pair p;
    open_pair(&p, &draft_shape);
    decoder *d = add_decoder(&p, p.sequence, (decoder_desc){.kind = DECODER_SESSION});
    decode(d, NULL, tokens);
    CHECK_INT(decoder_cycles(d, &cycles), 0);
    p.engine->info.is_exact = false;
    p.n_passes = 0;
    decode(d, NULL, tokens);
    int32_t n = decoder_cycles(d, &cycles);
    CHECK_INT(n, p.n_passes);
    for (int32_t i = 0; i < n; i++) {
        const decoder_cycle *c = &cycles[i];
        int32_t accepted = 0;
        CHECK_INT(c->tokens[0], tokens[n_tokens]);
        CHECK_INT(c->parents[0], -1);
        for (int32_t k = 1; k < c->n; k++) {
            CHECK_INT(c->depths[k], c->depths[c->parents[k]] + 1);
            CHECK(c->masks[k] == (c->masks[c->parents[k]] | (uint64_t)1 << k));
            if (accepted == k - 1 && n_tokens + k < LENGTH && c->tokens[k] == tokens[n_tokens + k])
                accepted = k;
        }
        n_tokens += accepted + 1;
    }
    CHECK_INT(n_tokens, LENGTH - 1);
    decode(d, NULL, tokens);
    CHECK_INT(decoder_cycles(d, &cycles), n); /* of the last text alone */
    decoder_free(d);
    close_pair(&p);
}

static void use_own(sequence *s, bool use) {
    (void)s, (void)use;
}

/* The target's tokens, one after the other: those after what was verified are drafted next. */
static struct {
    int32_t tokens[LENGTH + 8];
    int at;
    float logits[V];
} script;

static const float *own_logits(sequence *s) {
    (void)s;
    for (int i = 0; i < V; i++) script.logits[i] = i == script.tokens[script.at] ? 1 : 0;
    script.at++;
    return script.logits;
}

static int follow(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    script.at += verdict->n - draft->n;
    script.at++;
    return pass_commit(user, draft, verdict);
}

/* Chains of an engine's own tokens give plain decoding's, also where every draft is right or wrong, and drawn
 * ones. */
TEST(own, "chains of the engine's own tokens") {
    static backend_ops ops;
    const specrt_sampling hot = {.temperature = 1, .session = 5};
    pair p;
    decoder *d;
    open_pair(&p, &draft_shape);
    decoder *plain = add_decoder(&p, p.sequence, (decoder_desc){.kind = DECODER_PLAIN});
    decoder_desc own = {.kind = DECODER_OWN, .sequence = p.sequence};
    CHECK_INT(decoder_create(&own, &d, &err), SPECRT_STATUS_UNSUPPORTED);
    CHECK(strstr(err.msg, "specrt: expected an engine with drafts of its own") != NULL);
    const backend_ops *inner = p.engine->ops;
    ops = *inner;
    ops.use_own = use_own;
    ops.own_logits = own_logits;
    CHECK(own_target(p.engine) == p.target);
    p.engine->ops = &ops;
    CHECK(own_target(p.engine) == NULL); /* it is another engine now */
    p.engine->info.has_own = true;
    p.sequence->host.commit = follow;
    d = add_decoder(&p, p.sequence, own);
    for (int i = 0; i < 3; i++) { /* right; wrong; right and drawn */
        int32_t expected[LENGTH], found[LENGTH];
        const specrt_sampling *sampling = i == 2 ? &hot : NULL;
        memset(script.tokens, 0, sizeof script.tokens);
        p.sequence->host.commit = pass_commit;
        script.at = 0;
        decode(plain, sampling, expected);
        p.sequence->host.commit = follow;
        memcpy(script.tokens, expected, sizeof expected);
        for (int k = 0; i == 1 && k < LENGTH; k++) script.tokens[k] = (expected[k] + 1) % V;
        script.at = 1;
        p.n_passes = 0;
        decode(d, sampling, found);
        check_same(found, expected);
        CHECK_INT(p.n_passes, i == 1 ? LENGTH - 1 : (LENGTH - 1 + 3) / 4);
    }
    p.engine->ops = inner;
    decoder_free(plain);
    decoder_free(d);
    close_pair(&p);
}

/* ---- the clock ------------------------------------------------------------------------------------- */

TEST(clock, "a controller follows the clock") {
    const specrt_tree_params tree = {.num_steps = 3, .topk = 1, .num_draft_tokens = 4};
    specrt_costs costs = {.error = 0};
    specrt_clock clock;
    specrt_auto *chooser;
    int32_t expected[LENGTH], found[LENGTH];
    pair p;
    open_pair(&p, &draft_shape);
    specrt_curve_add(&costs.target, 1, 1e-3);
    specrt_curve_add(&costs.target, 16, 1e-2);
    specrt_curve_add(&costs.draft, 1, 1);
    specrt_clock_init(&clock, &costs, &tree, 1e-5);
    REQUIRE(specrt_clock_auto(&clock, 0, &chooser, &err) == SPECRT_STATUS_OK);
    decoder *plain = add_decoder(&p, p.sequence, (decoder_desc){.kind = DECODER_PLAIN});
    decoder_desc desc = {.kind = DECODER_SESSION, .clock = &clock};
    desc.params.tree = tree;
    desc.params.auto_draft = chooser;
    decoder *d = add_decoder(&p, p.sequence, desc);
    CHECK(decoder_clock(plain) == NULL);
    REQUIRE(decoder_clock(d) != NULL);
    decode(plain, NULL, expected);
    p.n_drafts = 0;
    decode(d, NULL, found);
    check_same(found, expected);
    CHECK(p.n_drafts < LENGTH / 2);
    CHECK(decoder_clock(d)->slow != clock.slow); /* it has learnt; what it began as has not */
    decoder_free(plain);
    decoder_free(d);
    specrt_auto_close(chooser);
    close_pair(&p);
}

/* ---- errors ---------------------------------------------------------------------------------------- */

TEST(failed, "a pass that fails ends the call; the next text is decoded") {
    const specrt_verdict *v;
    int32_t expected[LENGTH], found[LENGTH];
    pair p;
    open_pair(&p, &draft_shape);
    decoder *d = add_decoder(&p, p.sequence, (decoder_desc){.kind = DECODER_SESSION});
    decode(d, NULL, expected);
    begin(d, NULL);
    p.fails = 2;
    REQUIRE(decoder_next(d, &v, &err) == SPECRT_STATUS_OK);
    CHECK_INT(decoder_next(d, &v, &err), SPECRT_STATUS_HOST);
    CHECK(strstr(err.msg, "draft_step") != NULL);
    decode(d, NULL, found);
    check_same(found, expected);
    decoder_free(d);
    close_pair(&p);
}
