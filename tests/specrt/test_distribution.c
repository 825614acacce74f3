/* test_distribution.c : the joint distribution of three tokens across cycles, against the target's exact
 * probabilities. Sampled chains through the granular calls, where faults are planted and must be seen;
 * sessions of both kinds; and sessions whose policy, tree, truth and cuts change by chance. */
#include "specrt_tools.h"
#include "decode/verify.h"
#include "decode/session.h"
#include "distribution.h"
#include "opened.h"

enum { V = TOY_V, N_SEQUENCES = 60000, MAX_STREAM = 5 + SPECRT_TREE_MAX_NODES };

static const specrt_sampling samplings[] = {
    {1, 0, 0, 0, 1, 1, 0},       {0.7f, 0, 0, 0, 2, 1, 0}, {1, 4, 0, 0, 3, 1, 0},
    {1.2f, 0, 0.8f, 0, 4, 1, 0}, {1, 0, 0, 0.2f, 5, 1, 0}, {0.9f, 6, 0.9f, 0.05f, 6, 1, 0},
};
enum { N_SAMPLINGS = sizeof samplings / sizeof *samplings };

typedef struct tally {
    int seen[TOY_CELLS];
} tally;

static void count(tally *t, const int32_t *stream) {
    t->seen[(stream[2] * V + stream[3]) * V + stream[4]]++;
}

static distribution_fit fit_of(const tally *t, const specrt_sampling *s, int n) {
    double p[TOY_CELLS];
    toy_joint(1, 2, s, p);
    return distribution_fit_of(t->seen, p, TOY_CELLS, n);
}

static bool holds(const char *what, distribution_fit fit) {
    if (!distribution_holds(fit)) fprintf(stderr, "%s: chi %.1f, tv %.2f\n", what, fit.chi, fit.tv);
    return distribution_holds(fit);
}

static bool broken(const char *what, distribution_fit fit) {
    if (!distribution_broken(fit))
        fprintf(stderr, "%s: chi %.1f, tv %.2f\n", what, fit.chi, fit.tv);
    return distribution_broken(fit);
}

/* ---- sampled chains in an application's own loop -------------------------------------------- */

typedef enum fault_kind {
    NONE,
    WRONG_Q,      /* sampled at one temperature, q handed over at another */
    STALE_CACHE,  /* target rows below the root computed after an old context */
    REUSED_DRAWS, /* every cycle draws the same numbers */
    DRAFT_DRAWS,  /* drafts keyed by position, while the shortlist follows what was rejected */
    DUPLICATE,    /* a row stands in the shortlist twice, q has it once */
    CHOSEN,       /* the best token drafted, its probability handed over as q */
} fault_kind;

enum { N_DRAFT = 2 };

typedef struct own_loop {
    specrt_verifier *v;
    fault_kind fault;
    int n_ids; /* shortlist of a cycle */
    int32_t ids[V + 1];
    int32_t distribution_ids[N_DRAFT][V + 1];
    float probs[N_DRAFT][V + 1];
    specrt_draft_distribution distributions[N_DRAFT];
} own_loop;

/* Five tokens from a place that depends on what was drafted last, accepted or not. */
static void own_shortlist(own_loop *o, int32_t drafted) {
    o->n_ids = 5;
    for (int i = 0; i < 5; i++) o->ids[i] = (drafted * 3 + i) % V;
    if (o->fault == DUPLICATE) o->ids[o->n_ids++] = o->ids[1];
}

/* q is made wrong in the way of the fault; it still sums to 1, which is all that can be checked. */
static int own_distort(own_loop *o, const float *logits, int level, int chosen) {
    float *q = o->probs[level], ignored[V + 1], sum = 0;
    if (o->fault == WRONG_Q) specrt_verifier_propose(o->v, logits, o->n_ids, 2, 0, 0, q);
    if (o->fault == CHOSEN)
        for (int i = 0; i < o->n_ids; i++)
            if (q[i] > q[chosen]) chosen = i;
    if (o->fault == DUPLICATE) {
        if (chosen == o->n_ids - 1) chosen = 1;
        specrt_verifier_propose(o->v, logits, o->n_ids - 1, 1, 0, 0, ignored);
        memcpy(q, ignored, (size_t)(o->n_ids - 1) * sizeof *q);
        o->distributions[level].n--;
    }
    for (int i = 0; i < o->distributions[level].n; i++) sum += q[i];
    CHECK_NEAR((double)sum, 1, 1e-5);
    return chosen;
}

static int32_t own_propose(own_loop *o, int32_t before, int32_t last, int64_t cycle,
                           int64_t position, int level) {
    float all[V], logits[V + 1];
    toy_logits(1, before, last, all);
    for (int i = 0; i < o->n_ids; i++) logits[i] = all[o->ids[i]];
    if (o->fault == REUSED_DRAWS) cycle = 0;
    if (o->fault == DRAFT_DRAWS) cycle = position, position = level, level = 0;
    int chosen = specrt_verifier_propose(o->v, logits, o->n_ids, 1, cycle, level,
                                         o->probs[o->fault == DRAFT_DRAWS ? position : level]);
    if (o->fault == DRAFT_DRAWS) level = (int)position;
    REQUIRE(chosen >= 0);
    memcpy(o->distribution_ids[level], o->ids, sizeof o->ids);
    o->distributions[level] =
        (specrt_draft_distribution){o->n_ids, o->distribution_ids[level], o->probs[level]};
    return o->ids[own_distort(o, logits, level, chosen)];
}

static void own_sequence(own_loop *o, int32_t *stream) {
    int32_t tokens[N_DRAFT + 1] = {0}; /* the root, then the chain */
    float logits[(N_DRAFT + 1) * V];
    specrt_verdict verdict;
    int64_t cycle = 0;
    stream[0] = 1, stream[1] = 2;
    for (int32_t n = 2; n < 5; n += verdict.n, cycle++) {
        own_shortlist(o, tokens[N_DRAFT]);
        tokens[0] = stream[n - 1];
        for (int i = 0; i < N_DRAFT; i++)
            tokens[i + 1] =
                own_propose(o, i ? tokens[i - 1] : stream[n - 2], tokens[i], cycle, n + i, i);
        for (int i = 0; i <= N_DRAFT; i++) {
            bool stale = i == 0 || o->fault == STALE_CACHE;
            toy_logits(0, stale ? stream[n - 2] : tokens[i - 1], tokens[i], logits + i * V);
        }
        REQUIRE(specrt_verify_chain(o->v, tokens + 1, o->distributions, N_DRAFT, logits,
                                    o->fault == REUSED_DRAWS ? 0 : cycle,
                                    &verdict) == SPECRT_STATUS_OK);
        for (int i = 0; i < verdict.n; i++) CHECK_INT(verdict.nodes[i], i);
        memcpy(stream + n, verdict.tokens, (size_t)verdict.n * sizeof *stream);
    }
}

/* Faults are seen in many; no fault is none in few. */
static uint64_t n_sequences(fault_kind fault) {
    return test_brief() && fault == NONE ? N_SEQUENCES / 4 : N_SEQUENCES;
}

static distribution_fit own_fit(const specrt_sampling *sampling, fault_kind fault) {
    uint64_t n = n_sequences(fault);
    tally t = {{0}};
    own_loop o = {.fault = fault};
    int32_t stream[MAX_STREAM];
    o.v = create_verifier(V, V, sampling);
    for (uint64_t i = 0; i < n; i++) {
        o.v->sampling.generation = i;
        own_sequence(&o, stream);
        count(&t, stream);
    }
    specrt_verifier_close(o.v);
    return fit_of(&t, sampling, (int)n);
}

TEST(chain, "sampled chains follow the target's distribution, under every filter") {
    for (int i = 0; i < N_SAMPLINGS; i++) CHECK(holds("chain", own_fit(&samplings[i], NONE)));
}

TEST(mutants, "a wrong q, a stale cache, reused draws, a duplicate row are seen") {
    CHECK(broken("wrong q", own_fit(&samplings[0], WRONG_Q)));
    CHECK(broken("stale cache", own_fit(&samplings[0], STALE_CACHE)));
    CHECK(broken("reused draws", own_fit(&samplings[0], REUSED_DRAWS)));
    CHECK(broken("reused draft draws", own_fit(&samplings[0], DRAFT_DRAWS)));
    CHECK(broken("duplicate row", own_fit(&samplings[0], DUPLICATE)));
    CHECK(broken("chosen, not sampled", own_fit(&samplings[0], CHOSEN)));
}

/* ---- what is no distribution ------------------------------------------------------------------------- */

/* The bug to expect: q divided by the softmax over the whole vocabulary, not over the shortlist. */
TEST(refused, "what cannot be q of its token is refused") {
    float all[V], q[V], logits[2 * V] = {0};
    int32_t ids[V] = {0, 1, 2, 3, 4, 5, 6, 7}, token = 2;
    specrt_verdict verdict;
    specrt_draft_distribution distribution = {V, ids, q};
    specrt_verifier *v = create_verifier(V, V, &samplings[0]);
    toy_logits(1, 1, 2, all);
    token = specrt_verifier_propose(v, all, V, 1, 0, 0, q);
    CHECK(specrt_verify_chain(v, &token, &distribution, 1, logits, 0, &verdict) ==
          SPECRT_STATUS_OK);
    distribution.n = 5;
    token = 2;
    CHECK(specrt_verify_chain(v, &token, &distribution, 1, logits, 0, &verdict) ==
          SPECRT_STATUS_BAD_ARG);
    CHECK_INT(verdict.n, 0);
    specrt_verifier_propose(v, all, 5, 1, 0, 0, q);
    CHECK(specrt_verify_chain(v, &token, &distribution, 1, logits, 0, &verdict) ==
          SPECRT_STATUS_OK);
    token = 6; /* outside the shortlist: it cannot have been sampled */
    CHECK(specrt_verify_chain(v, &token, &distribution, 1, logits, 0, &verdict) ==
          SPECRT_STATUS_BAD_ARG);
    token = 2;
    ids[4] = V;
    CHECK(specrt_verify_chain(v, &token, &distribution, 1, logits, 0, &verdict) ==
          SPECRT_STATUS_BAD_ARG);
    ids[4] = 4;
    q[3] = -q[3], q[2] -= 2 * q[3];
    CHECK(specrt_verify_chain(v, &token, &distribution, 1, logits, 0, &verdict) ==
          SPECRT_STATUS_BAD_ARG);
    q[3] = NAN;
    CHECK(specrt_verify_chain(v, &token, &distribution, 1, logits, 0, &verdict) ==
          SPECRT_STATUS_BAD_ARG);
    distribution.n = -1;
    CHECK(specrt_verify_chain(v, &token, &distribution, 1, logits, 0, &verdict) ==
          SPECRT_STATUS_BAD_ARG);
    CHECK(specrt_verify_chain(v, &token, &distribution, -1, logits, 0, &verdict) ==
          SPECRT_STATUS_BAD_ARG);
    CHECK(specrt_verify_chain(v, &token, &distribution, SPECRT_TREE_MAX_NODES, logits, 0,
                              &verdict) == SPECRT_STATUS_BAD_ARG);
    specrt_verifier_close(v);
}

/* ---- sessions ------------------------------------------------------------------------------- */

typedef struct stage {
    uint8_t *bytes; /* of the bundle: a graph, and clusters with a router of either kind */
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_policy *policy;
    specrt_session *s;
} stage;

static void open_bundle(stage *st) {
    specrt_clusters_header before = fixture_router(SPECRT_ROUTER_DYNASPEC, V, V, 4, 2),
                           after = fixture_router(SPECRT_ROUTER_CENTROID, V, V, 4, 2);
    before.n_hidden = 5;
    size_t n[3], n_bytes;
    static const char *const tags[] = {"centroid", "cluster", "cograph"};
    uint8_t *parts[] = {fixture_clusters(after, NULL, 7, &n[0]),
                        fixture_clusters(before, NULL, 6, &n[1]),
                        fixture_graph(V, 4, NULL, 5, &n[2])};
    st->bytes = fixture_join(tags, parts, n, 3, &n_bytes);
    st->bundle = open_memory(st->bytes, n_bytes);
}

/* The head is the identity: hidden states are the drafter's logits. */
static stage open_stage(const char *text, const specrt_session_params *params) {
    static float identity[V * V];
    for (int i = 0; i < V; i++) identity[i * V + i] = 1;
    specrt_head_desc head = f32_rows(identity, V, V);
    specrt_policy_desc policy = {.text = text};
    stage st;
    open_bundle(&st);
    st.head = bind_head(NULL, &head);
    st.policy = create_policy(st.bundle, st.head, &policy);
    st.s = create_session(st.policy, params, NULL);
    return st;
}

static void close_stage(stage *st) {
    close_all(st->s, st->policy, st->head);
    specrt_bundle_close(st->bundle);
    free(st->bytes);
}

/* What else may happen in a sequence, by chance that knows nothing of tokens. */
typedef struct weather {
    bool stale, twice; /* faults: an old context below the root; one position for all draws */
    bool wild;
    uint64_t state;
} weather;

static int32_t whim(weather *w, int32_t n) {
    return (int32_t)((fixture_random(&w->state) >> 33) % (uint64_t)n);
}

static void draft_stage(specrt_session *s, int32_t before, int32_t root, weather *w,
                        specrt_draft *draft) {
    int32_t last[SPECRT_TREE_MAX_TOPK] = {root}, draft_input[SPECRT_TREE_MAX_TOPK] = {before};
    float hidden[SPECRT_TREE_MAX_TOPK * V], read[SPECRT_TREE_MAX_TOPK * V];
    specrt_beam beam;
    int32_t n_passes = w->wild ? whim(w, 5) : SPECRT_TREE_MAX_STEPS;
    specrt_session_get_beam(s, &beam);
    while (beam.n > 0 && n_passes-- > 0) {
        int32_t parents[SPECRT_TREE_MAX_TOPK];
        for (int32_t i = 0; i < beam.n; i++) toy_logits(1, draft_input[i], last[i], hidden + i * V);
        for (int32_t i = 0; i < beam.n; i++)
            toy_logits(2, draft_input[i], draft_input[i], read + i * V);
        memcpy(parents, last, sizeof parents);
        REQUIRE(specrt_session_expand(s, hidden, read, beam.n, &beam) == SPECRT_STATUS_OK);
        for (int32_t i = 0; i < beam.n; i++) {
            draft_input[i] = parents[beam.parents[i]];
            last[i] = beam.tokens[i];
        }
    }
    specrt_session_finish(s, draft);
}

/* Wild sessions are told nonsense of the target, and a limit may cut what a cycle emits. */
static void observe_stage(specrt_session *s, const specrt_draft *draft, specrt_verdict *verdict,
                          const float *logits, weather *w) {
    int32_t ids[SPECRT_TREE_MAX_NODES * 2];
    specrt_target_rows rows = {.logits = logits};
    if (w->wild && whim(w, 2)) {
        rows = (specrt_target_rows){.ids = ids, .k = 2};
        for (int i = 0; i < draft->n * 2; i++) ids[i] = whim(w, V);
    }
    int32_t limit = w->wild ? 1 + whim(w, 4) : SPECRT_TREE_MAX_NODES;
    if (verdict->n > limit) verdict->n = limit;
    REQUIRE(specrt_session_observe(s, draft, verdict, w->wild && !whim(w, 4) ? NULL : &rows) ==
            SPECRT_STATUS_OK);
}

static void session_sequence(specrt_session *s, weather *w, int32_t *stream) {
    static float logits[SPECRT_TREE_MAX_NODES * V];
    specrt_draft draft;
    specrt_verdict verdict;
    specrt_session_begin(s, NULL);
    stream[0] = 1, stream[1] = 2;
    REQUIRE(specrt_session_prefill(s, stream, 1, NULL) == SPECRT_STATUS_OK);
    REQUIRE(specrt_session_start(s, stream[1]) == SPECRT_STATUS_OK);
    for (int32_t n = 2; n < 5; n += verdict.n) {
        draft_stage(s, stream[n - 2], stream[n - 1], w, &draft);
        for (int32_t i = 0; i < draft.n; i++) {
            bool root = i == 0 || w->stale;
            toy_logits(0, root ? stream[n - 2] : draft.tokens[draft.parents[i]], draft.tokens[i],
                       logits + i * V);
        }
        if (w->twice) s->position = 2;
        REQUIRE(specrt_session_verify(s, &draft, logits, &verdict) == SPECRT_STATUS_OK);
        observe_stage(s, &draft, &verdict, logits, w);
        memcpy(stream + n, verdict.tokens, (size_t)verdict.n * sizeof *stream);
    }
}

enum { N_SESSION = N_SEQUENCES / 3 };

static distribution_fit session_fit(const char *text, const specrt_session_params *params,
                                    weather w) {
    tally t = {{0}};
    int32_t stream[MAX_STREAM];
    stage st = open_stage(text, params);
    for (uint64_t i = 0; i < N_SESSION; i++) {
        st.s->generation = i;
        session_sequence(st.s, &w, stream);
        count(&t, stream);
    }
    close_stage(&st);
    return fit_of(&t, &params->sampling, N_SESSION);
}

static const specrt_tree_params chain = {3, 1, 4}, tree = {3, 3, 12};

TEST(sessions, "so do sessions: chains, trees and sampled chains") {
    const weather calm = {.state = 1};
    for (int i = 0; i < N_SAMPLINGS; i++) {
        specrt_session_params top = {
            .n_logits = V, .tree = i % 2 ? tree : chain, .sampling = samplings[i]};
        specrt_session_params sampled = {
            .n_logits = V, .tree = chain, .sampling = samplings[i], .draft = SPECRT_DRAFT_SAMPLED};
        if (i % 2) sampled.draft_temperature = 0.5f;
        CHECK(holds("top-k", session_fit("window:4@min=3", &top, calm)));
        CHECK(holds("sampled", session_fit("window:4@min=3", &sampled, calm)));
    }
}

/* Drafts that auto_draft ends, by what was accepted before and how likely the drafted tokens are. */
TEST(auto_draft, "so they do where auto_draft ends drafts") {
    const weather calm = {.state = 1};
    const double costs[] = {1, 1.25, 1.5, 1.75, 2};
    const specrt_auto_desc desc = {.num_steps = 4, .n_lists = 1, .costs = costs};
    for (int i = 0; i < N_SAMPLINGS; i++) {
        specrt_auto_stats stats;
        specrt_session_params params = {.n_logits = V, .tree = {4, 1, 5}, .sampling = samplings[i]};
        if (i % 3) params.draft = SPECRT_DRAFT_SAMPLED;
        REQUIRE(specrt_auto_create(&desc, NULL, &params.auto_draft, NULL) == SPECRT_STATUS_OK);
        CHECK(holds("auto_draft", session_fit("window:4@min=3", &params, calm)));
        specrt_auto_get_stats(params.auto_draft, &stats);
        CHECK(stats.n_passes > 0 && stats.n_passes < 3 * stats.n_cycles);
        specrt_auto_close(params.auto_draft);
    }
}

/* Lists that change with every token drafted: by a router that reads what the pass was fed or gave, by
 * the graph, beside each other and beside a window that holds some of the same tokens. */
TEST(routed, "so they do where every drafted token changes the list") {
    static const char *const texts[] = {
        "cluster:1@cap=3@always=0",
        "centroid:2@cap=4@always=0",
        "successor:3",
        "window:3@min=1+successor:2",
        "window:2@min=1+centroid:1@cap=3@always=0+successor:2",
        "retrieve:3+cluster:1@cap=2@always=0",
    };
    const weather calm = {.state = 1};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        specrt_session_params top = {
            .n_logits = V, .tree = i % 2 ? tree : chain, .sampling = samplings[i]};
        specrt_session_params sampled = {
            .n_logits = V, .tree = chain, .sampling = samplings[i], .draft = SPECRT_DRAFT_SAMPLED};
        top.tree.topk = top.tree.topk < 2 ? top.tree.topk : 2;
        if (!test_quick() || i % 2) CHECK(holds(texts[i], session_fit(texts[i], &top, calm)));
        if (test_quick() && i % 2) continue;
        CHECK(holds(texts[i], session_fit(texts[i], &sampled, calm)));
    }
}

/* The first two tokens of two answers to one prompt by one session, against a target that says each of
 * them independently. again: the second answer is told to be the first one's sequence. */
static distribution_fit answers_fit(const specrt_session_params *params, bool again) {
    enum { CELLS = V * V * V * V, N = N_SESSION };
    static int seen[CELLS];
    static double p[CELLS];
    double one[V * V] = {0}, joint[TOY_CELLS];
    int32_t stream[2][MAX_STREAM];
    weather calm = {.state = 1};
    stage st = open_stage("window:4@min=3", params);
    memset(seen, 0, sizeof seen);
    toy_joint(1, 2, &params->sampling, joint);
    for (int i = 0; i < TOY_CELLS; i++) one[i / V] += joint[i];
    for (int i = 0; i < CELLS; i++) p[i] = one[i / (V * V)] * one[i % (V * V)];
    for (int i = 0; i < N; i++) {
        session_sequence(st.s, &calm, stream[0]);
        if (again) st.s->generation--; /* as if each begin took the same number */
        session_sequence(st.s, &calm, stream[1]);
        seen[((stream[0][2] * V + stream[0][3]) * V + stream[1][2]) * V + stream[1][3]]++;
    }
    close_stage(&st);
    return distribution_fit_of(seen, p, CELLS, N);
}

TEST(answers, "answers of one session to one prompt are independent") {
    specrt_session_params top = {.n_logits = V, .tree = tree, .sampling = samplings[0]};
    specrt_session_params sampled = {
        .n_logits = V, .tree = chain, .sampling = samplings[5], .draft = SPECRT_DRAFT_SAMPLED};
    CHECK(holds("top-k answers", answers_fit(&top, false)));
    CHECK(holds("sampled answers", answers_fit(&sampled, false)));
    CHECK(broken("one answer twice", answers_fit(&top, true)));
    CHECK(broken("one sampled answer twice", answers_fit(&sampled, true)));
}

TEST(session_mutants, "a stale context or a draw made twice is seen there too") {
    const weather stale = {.stale = true, .state = 1}, twice = {.twice = true, .state = 1};
    specrt_session_params top = {.n_logits = V, .tree = tree, .sampling = samplings[0]};
    specrt_session_params sampled = {
        .n_logits = V, .sampling = samplings[0], .tree = chain, .draft = SPECRT_DRAFT_SAMPLED};
    CHECK(broken("stale tree", session_fit("window:4", &top, stale)));
    CHECK(broken("stale chain", session_fit("window:4", &sampled, stale)));
    top.tree = chain;
    CHECK(broken("drawn twice", session_fit("window:4", &top, twice)));
}

/* Every sequence takes its policy, tree and kind of draft by chance, and so does every cycle the number
 * of passes, what it is told and where it is cut. */
TEST(wild, "whatever the policy, tree, truth and cuts") {
    static const char *const texts[] = {"full", "window:3@min=1", "window:5@mode=stream@min=2",
                                        "window:4@positions=tree@emitted=off@min=1"};
    enum { N_TEXTS = sizeof texts / sizeof *texts, N_STAGES = 4 * N_TEXTS };
    stage stages[N_STAGES];
    for (int k = 0; k < 2; k++) {
        const specrt_sampling *sampling = &samplings[k ? N_SAMPLINGS - 1 : 0];
        weather w = {.wild = true, .state = 99};
        tally all = {{0}}, sampled = {{0}};
        int n_sampled = 0;
        for (int i = 0; i < N_STAGES; i++) {
            specrt_session_params params = {
                .n_logits = V, .sampling = *sampling, .tree = {4, 1 + i % 2, 5}};
            if (i % 4 == 0) params.draft = SPECRT_DRAFT_SAMPLED;
            if (i % 8 == 0) params.draft_temperature = 2;
            stages[i] = open_stage(texts[i / 4], &params);
        }
        for (uint64_t i = 0; i < N_SEQUENCES; i++) {
            int32_t stream[MAX_STREAM], at = whim(&w, N_STAGES);
            stages[at].s->generation = i;
            session_sequence(stages[at].s, &w, stream);
            count(&all, stream);
            if (at % 4) continue;
            count(&sampled, stream);
            n_sampled++;
        }
        CHECK(holds("wild", fit_of(&all, sampling, N_SEQUENCES)));
        CHECK(holds("wild, sampled", fit_of(&sampled, sampling, n_sampled)));
        for (int i = 0; i < N_STAGES; i++) close_stage(&stages[i]);
    }
}

/* ---- kinds of draft ------------------------------------------------------------------------- */

TEST(kinds, "combinations that would not be what they say are refused") {
    const struct {
        specrt_session_params params;
        const char *what;
    } bad[] = {
        {{.draft = SPECRT_DRAFT_SAMPLED}, "greedy"},
        {{.draft = SPECRT_DRAFT_SAMPLED,
          .sampling = {.temperature = 1, .session = 1},
          .tree = {.topk = 2}},
         "topk 1"},
        {{.sampling = {.temperature = 1, .session = 1}, .draft_temperature = 1},
         "top-k drafts are not sampled"},
        {{.draft = SPECRT_DRAFT_SAMPLED,
          .sampling = {.temperature = 1, .session = 1},
          .draft_temperature = -1},
         "draft_temperature"},
        {{.draft = SPECRT_DRAFT_SAMPLED,
          .sampling = {.temperature = 1, .session = 1},
          .draft_temperature = NAN},
         "draft_temperature"},
        {{.draft = SPECRT_DRAFT_SAMPLED,
          .sampling = {.temperature = 1, .session = 1},
          .draft_temperature = 100.1f},
         "draft_temperature"},
        {{.draft = (specrt_draft_kind)2, .sampling = {.temperature = 1, .session = 1}},
         "sampled (1)"},
    };
    specrt_session_params good = {.n_logits = V,
                                  .draft = SPECRT_DRAFT_SAMPLED,
                                  .sampling = {.temperature = 1, .session = 1},
                                  .draft_temperature = 100};
    stage st = open_stage("full", &good);
    const specrt_tree_params *p = specrt_tree_get_params(st.s->tree);
    CHECK(p->topk == 1 && p->num_steps == 6 && p->num_draft_tokens == 7);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        specrt_session *s;
        specrt_error err;
        specrt_session_params params = bad[i].params;
        params.n_logits = V;
        CHECK(specrt_session_create(st.policy, &params, NULL, &s, &err) == SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(err.msg, bad[i].what);
        CHECK(s == NULL);
    }
    close_stage(&st);
}

/* A sampled draft is verified as it was sampled: not as a tree, not with tokens put in its place. */
TEST(edited, "a sampled draft is verified as it was sampled") {
    specrt_session_params params = {.n_logits = V,
                                    .draft = SPECRT_DRAFT_SAMPLED,
                                    .sampling = {.temperature = 1, .session = 1},
                                    .tree = {.num_steps = 2}};
    weather w = {.state = 1};
    stage st = open_stage("window:3@min=3", &params);
    float logits[4 * V] = {0};
    int32_t parents[3] = {-1, 0, 0}, tokens[4] = {2, 0, 0, 0};
    specrt_draft draft, edited;
    specrt_verdict verdict;
    const int32_t prompt = 1;
    REQUIRE(specrt_session_begin(st.s, NULL) == SPECRT_STATUS_OK);
    REQUIRE(specrt_session_prefill(st.s, &prompt, 1, NULL) == SPECRT_STATUS_OK);
    REQUIRE(specrt_session_start(st.s, 2) == SPECRT_STATUS_OK);
    draft_stage(st.s, 1, 2, &w, &draft);
    REQUIRE(draft.n == 3);
    CHECK(specrt_session_verify(st.s, &draft, logits, &verdict) == SPECRT_STATUS_OK);
    edited = draft;
    edited.parents = parents;
    CHECK(specrt_session_verify(st.s, &edited, logits, &verdict) == SPECRT_STATUS_BAD_ARG);
    edited = draft;
    edited.n = 4;
    CHECK(specrt_session_verify(st.s, &edited, logits, &verdict) == SPECRT_STATUS_BAD_ARG);
    edited = draft;
    edited.tokens = tokens;
    memcpy(tokens, draft.tokens, 2 * sizeof *tokens);
    for (tokens[2] = 0; tokens[2] < V; tokens[2]++) /* the others were not drawn from its q */
        CHECK(specrt_session_verify(st.s, &edited, logits, &verdict) ==
              (tokens[2] == draft.tokens[2] ? SPECRT_STATUS_OK : SPECRT_STATUS_BAD_ARG));
    edited.n = 1;
    CHECK(specrt_session_verify(st.s, &edited, logits, &verdict) == SPECRT_STATUS_OK);
    CHECK_INT(verdict.n, 1);
    close_stage(&st);
}

TEST(no_allocation, "sampling a draft allocates nothing") {
    specrt_session_params params = {
        .n_logits = V, .draft = SPECRT_DRAFT_SAMPLED, .sampling = samplings[5], .tree = chain};
    fixture_allocator a = {0, 0, 0};
    specrt_env env = fixture_desc(&a);
    weather w = {.wild = true, .state = 5};
    int32_t stream[MAX_STREAM];
    stage st = open_stage("window:4", &params);
    specrt_session *s = create_session(st.policy, &params, &env);
    int n_calls = a.n_calls;
    CHECK(n_calls > 0);
    for (int i = 0; i < 50; i++) session_sequence(s, &w, stream);
    CHECK_INT(a.n_calls, n_calls);
    specrt_session_close(s);
    CHECK_INT(a.n_live, 0);
    for (int n = 0; n < n_calls; n++) { /* out of memory at every point */
        fixture_allocator scarce = {.fail_at = n + 1};
        specrt_env short_env = fixture_desc(&scarce);
        CHECK(specrt_session_create(st.policy, &params, &short_env, &s, NULL) ==
              SPECRT_STATUS_NO_MEMORY);
        CHECK_INT(scarce.n_live, 0);
    }
    close_stage(&st);
}
