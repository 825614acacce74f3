/* test_splits.c : tokens of an engine that rounds a pass of several tokens other than passes of one. */
#include "tools/specrt-eval/compare/compare.h"
#include "specrt_tools.h"
#include "tokenizer/tokenizer_impl.h"
#include "test.h"

enum { V = 4, N_STEPS = 2, N_ANSWER = 8 };

/* After token t comes t + 1; where a pass has several tokens, 0 comes after 2, 0.25 before 3. */
typedef struct toy {
    backend engine;
    sequence text;
    int n_resets;
    bool own;
    float logits[8 * V], states[V];
} toy;

static const float *say(toy *t, const int32_t *tokens, int32_t n, bool several) {
    memset(t->logits, 0, sizeof t->logits);
    for (int32_t i = 0; i < n; i++) {
        t->logits[i * V + (tokens[i] + 1) % V] = 1;
        if (tokens[i] == 2) t->logits[i * V] = several ? 1.25f : 0.75f;
    }
    return t->logits;
}

static int prefill(void *user, const int32_t *tokens, int32_t n, int all, const float **logits) {
    return *logits = say((toy *)user, all ? tokens : tokens + n - 1, all ? n : 1, false), 0;
}

static int draft(void *user, int32_t level, const specrt_beam *beam, const float **hidden,
                 const float **input) {
    toy *t = (toy *)user;
    (void)level, (void)input;
    *hidden = t->states;
    return say(t, beam->tokens, 1, false) == NULL;
}

static int verify(void *user, const specrt_draft *draft, const float **logits) {
    return *logits = say((toy *)user, draft->tokens, draft->n, draft->n > 1), 0;
}

static int commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    (void)user, (void)draft, (void)verdict;
    return 0;
}

static void reset(sequence *s) {
    ((toy *)s->host.user)->n_resets++;
}
static const float *own_logits(sequence *s) {
    return ((toy *)s->host.user)->logits;
}
static void use_own(sequence *s, bool use) {
    ((toy *)s->host.user)->own = use;
}
static const char *fault(const sequence *s) {
    (void)s;
    return "";
}

static const backend_ops ops = {
    .reset = reset, .own_logits = own_logits, .use_own = use_own, .fault = fault};

typedef struct scene {
    toy t;
    comparison c;
    compare_way ways[2];
    sequence *sequences[1];
    id_list prompt;
    int32_t ids[1];
} scene;

/* Plain decoding, and chains of the engine's own. */
static void open_scene(scene *s) {
    static tokenizer tok = {.n_vocab = V};
    memset(s, 0, sizeof *s);
    s->t.engine = (backend){.ops = &ops, .info = {.engine = "toy", .n_logits = V, .has_own = true}};
    s->t.text = (sequence){.of = &s->t.engine,
                           .host = {.user = &s->t,
                                    .n_context = 64,
                                    .max_batch = 8,
                                    .target_prefill = prefill,
                                    .draft_step = draft,
                                    .target_verify = verify,
                                    .commit = commit}};
    s->sequences[0] = &s->t.text;
    s->prompt = (id_list){s->ids, 1, 1};
    s->c = (comparison){.ways = s->ways, .n_ways = 2};
    s->c.models = (eval_models){
        .engine = &s->t.engine, .info = &s->t.engine.info, .sequences = s->sequences, .tok = &tok};
    for (int i = 0; i < 2; i++) {
        compare_way *k = &s->ways[i];
        const decoder_desc desc = {.kind = i ? DECODER_OWN : DECODER_PLAIN,
                                   .sequence = &s->t.text,
                                   .params = {.tree = {.num_steps = N_STEPS, .topk = 1}}};
        const specrt_verdict *v;
        snprintf(k->name, sizeof k->name, "%s", i ? "own" : "plain");
        REQUIRE(!decoder_create(&desc, &k->decoder, NULL));
        REQUIRE(!decoder_begin(k->decoder, NULL, s->ids, 1, NULL));
        while (k->result.tokens.n < N_ANSWER && !decoder_next(k->decoder, &v, NULL))
            REQUIRE(!ids_append(&k->result.tokens, v->tokens, v->n));
    }
}

static void close_scene(scene *s) {
    for (int i = 0; i < 2; i++) {
        decoder_free(s->ways[i].decoder);
        free(s->ways[i].result.tokens.ids);
    }
    free(s->c.splits);
}

static specrt_status check(scene *s) {
    return compare_check(&s->c, &s->ways[1], &s->prompt, "qa", NULL);
}

TEST(repeated, "the target says it again, fed the same passes") {
    scene s;
    open_scene(&s);
    REQUIRE(!check(&s));
    REQUIRE(s.c.n_splits == 1);
    CHECK(!s.c.diverged && s.c.splits[0].repeated);
    CHECK_INT(s.c.splits[0].token, 2); /* 1, 2, then 3 or 0 */
    CHECK_NEAR(s.c.splits[0].margin, 0.25, 1e-6);
    CHECK_INT(s.ways[1].n_same, 0);
    CHECK_HAS(compare_outcome(&s.c), "the target's own");
    close_scene(&s);
}

TEST(not_repeated, "a token that the target does not say is an error") {
    for (size_t place = 0; place < N_ANSWER; place++) {
        scene s;
        open_scene(&s);
        id_list *found = &s.ways[1].result.tokens, *plain = &s.ways[PLAIN].result.tokens;
        memcpy(plain->ids, found->ids, N_ANSWER * sizeof *found->ids);
        plain->n = found->n;
        found->ids[place] = (found->ids[place] + 1) % V;
        REQUIRE(!check(&s));
        CHECK(s.c.diverged && s.c.n_splits == 1 && !s.c.splits[0].repeated);
        CHECK_INT(s.c.splits[0].token, (int)place);
        CHECK_HAS(s.c.divergence, "own: prompt 1 (qa), token");
        close_scene(&s);
    }
}

TEST(same, "equal tokens are not looked into") {
    scene s;
    open_scene(&s);
    id_list *found = &s.ways[1].result.tokens, *plain = &s.ways[PLAIN].result.tokens;
    memcpy(plain->ids, found->ids, N_ANSWER * sizeof *found->ids);
    plain->n = found->n = N_ANSWER;
    s.t.n_resets = 0;
    REQUIRE(!check(&s));
    CHECK_INT(s.ways[1].n_same, 1);
    CHECK_INT(s.t.n_resets, 0);
    CHECK_STR(compare_outcome(&s.c), "all equal");
    close_scene(&s);
}
