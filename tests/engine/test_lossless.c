/* test_lossless.c : the promise, on the sample pair: whatever the drafter may propose, the output is plain
 * decoding's. Lists, clusters, graphs, indexes and sketches are made by chance, or adversarial: those know
 * none of the tokens that the target is going to say.
 *
 * Each policy gets every fourth prompt of a few, in turns. every=N takes 200 prompts of 128
 * tokens (`make test-long`), and gives each policy every N-th of them. */
#include "corpus/corpus.h"
#include "engine/infer/auto.h"
#include "over.h"
#include "base/parallel.h"
#include "opened.h"
#include "tokenizer/tokenizer.h"

#include <unistd.h>

enum { PROMPT = 64, N_TOKENS = 128, N_PROMPTS = 200, MAX_WORKERS = 8 };
enum { N_CONTEXT = PROMPT + N_TOKENS + 2 * SPECRT_TREE_MAX_STEPS };

typedef enum list_kind { ABSENT, RANDOM, ADVERSARIAL } list_kind;

typedef struct text_prompt {
    int32_t n, ids[PROMPT];
    int32_t expected[N_TOKENS]; /* what plain decoding says */
} text_prompt;

typedef struct pair {
    engine_model *target;
    engine_drafter *drafter;
    specrt_head *head;
    specrt_worker *worker;
    int32_t n_vocab, width, n_prompts, n_tokens; /* width: of the head */
    int n_workers;
    int32_t share, first; /* prompts of a run: first, first + share, ... */
    bool by_position;     /* of a block drafter */
    text_prompt prompts[N_PROMPTS];
    specrt_bundle *lists[ADVERSARIAL + 1]; /* by kind, once asked for */
    uint8_t *list_bytes[ADVERSARIAL + 1];  /* their memory */
} pair;

static const specrt_tree_params chain = {.num_steps = 3, .topk = 1, .num_draft_tokens = 4};
static const specrt_tree_params small_tree = {.num_steps = 4, .topk = 4, .num_draft_tokens = 16};
static const specrt_tree_params eagle_tree = {.num_steps = 6, .topk = 10, .num_draft_tokens = 60};

/* ---- the models and their prompts ---------------------------------------------------------- */

/* The committed prompts, domains mixed; after the last come their first halves. */
static void read_prompts(pair *p, const char *target) {
    const char *const folder = "data/prompts";
    corpus_options options = {.field = "prompt"};
    corpus_batch batch = {0};
    corpus *prompts;
    tokenizer *tok;
    tok_worker *worker;
    id_list ids = {0};
    size_t starts[1024] = {0};
    int n = 0;
    bool end = false;
    specrt_error err;
    REQUIRE(sl_tokenizer_open(target, &tok, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_tok_worker_create(tok, &worker, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_corpus_open(&folder, 1, &options, &prompts, &err) == SPECRT_STATUS_OK);
    while (sl_corpus_next(prompts, &batch, &end, &err) == SPECRT_STATUS_OK && !end)
        for (int64_t i = 0; i < batch.n_docs && n < 1023; i++, starts[++n] = ids.n)
            REQUIRE(sl_tok_encode(worker, batch.docs[i].text, batch.docs[i].n_bytes, &ids) == 0);
    REQUIRE(end && n >= 100 && n % 37 != 0);
    for (int i = 0; i < p->n_prompts; i++) {
        size_t first = starts[i * 37 % n], length = starts[i * 37 % n + 1] - first;
        if (i >= n) length = (length + 1) / 2;
        p->prompts[i].n = length < PROMPT ? (int32_t)length : PROMPT;
        memcpy(p->prompts[i].ids, ids.ids + first, (size_t)p->prompts[i].n * sizeof *ids.ids);
    }
    free(ids.ids);
    sl_corpus_batch_free(&batch);
    sl_corpus_close(prompts);
    sl_tok_worker_free(worker);
    sl_tokenizer_close(tok);
}

static void size_up(pair *p) {
    int cores = sl_parallel_cores();
    p->n_workers = cores < MAX_WORKERS ? cores : MAX_WORKERS;
    const char *wanted = test_setting("every");
    bool many = wanted && atoi(wanted) > 0;
    p->share = 1;
    p->n_prompts = many ? N_PROMPTS : test_brief() ? 2 : 8;
    p->n_tokens = many ? N_TOKENS : test_quick() ? 8 : test_brief() ? 12 : 32;
}

static const char sample[] = "data/sample/target.gguf", eagle[] = "data/sample/draft.safetensors",
                  mtp[] = "data/sample/mtp.safetensors", dspark[] = "data/sample/block",
                  small[] = "data/sample/draft-small.gguf";

static void open_pair(pair *p, const char *draft) {
    specrt_head_desc head;
    specrt_error err;
    size_up(p);
    REQUIRE(engine_open(sample, 1, &p->target, &err) == SPECRT_STATUS_OK);
    REQUIRE(engine_drafter_open(draft, p->target, &p->drafter, &err) == SPECRT_STATUS_OK);
    engine_drafter_head(p->drafter, &head);
    p->head = bind_head(NULL, &head);
    REQUIRE(specrt_worker_create(NULL, &p->worker, &err) == SPECRT_STATUS_OK);
    p->width = (int32_t)head.n_cols;
    p->n_vocab = engine_get_config(p->target)->n_vocab;
    read_prompts(p, sample);
}

static void close_pair(pair *p) {
    for (int kind = 0; kind <= ADVERSARIAL; kind++) {
        specrt_bundle_close(p->lists[kind]);
        free(p->list_bytes[kind]);
    }
    specrt_worker_close(p->worker);
    specrt_head_close(p->head);
    engine_drafter_close(p->drafter);
    engine_close(p->target);
    free(p);
}

/* Every prompt, each worker with a sequence of its own over the same models and policy.
 *   policy : NULL: plain decoding, which sets what is expected */
typedef struct run {
    pair *p;
    bool plain;
    specrt_sampling sampling;
    over decoders[MAX_WORKERS];
    int32_t n_same[N_PROMPTS]; /* leading tokens that are as expected; -1: decoding failed */
    specrt_session_stats stats[N_PROMPTS];
} run;

static bool decode(decoder *d, const specrt_request *request, const text_prompt *prompt,
                   int32_t *out) {
    const specrt_verdict *v;
    if (decoder_begin(d, request, prompt->ids, prompt->n, NULL)) return false;
    do {
        if (decoder_next(d, &v, NULL)) return false;
        memcpy(out, v->tokens, (size_t)v->n * sizeof *out);
        out += v->n;
    } while (v->end == SPECRT_END_NONE);
    return v->end == SPECRT_END_LENGTH;
}

static void run_prompt(void *arg, int64_t block, int worker) {
    run *r = (run *)arg;
    int64_t i = r->p->first + block * r->p->share;
    text_prompt *prompt = &r->p->prompts[i];
    decoder *d = r->decoders[worker].decoder;
    int32_t found[N_TOKENS], n_tokens = r->p->n_tokens, same = 0;
    specrt_sampling sampling = r->sampling;
    sampling.session = (uint64_t)i + 1;
    const specrt_request request = {.max_tokens = n_tokens, .sampling = &sampling};
    if (!decode(d, &request, prompt, r->plain ? prompt->expected : found)) {
        r->n_same[i] = -1;
        return;
    }
    if (!r->plain) {
        while (same < n_tokens && found[same] == prompt->expected[same]) same++;
        specrt_session_get_stats(decoder_session(d), &r->stats[i]);
    }
    r->n_same[i] = r->plain ? n_tokens : same;
}

/* What auto chooses by, where a trial has auto_draft: at these costs depths and lists change, and drafting
 * stops and starts. One for each worker. */
static void make_auto(const specrt_policy *policy, const specrt_session_params *params,
                      specrt_auto **out) {
    specrt_costs costs = {.error = 0};
    specrt_curve_add(&costs.target, 1, 1);
    specrt_curve_add(&costs.target, 16, 3);
    specrt_curve_add(&costs.draft, 1, 0.1);
    specrt_curve_add(&costs.draft, 8, 0.2);
    specrt_curve_add(&costs.head_first, 1000, 0.05);
    specrt_curve_add(&costs.head_first, 32000, 0.3);
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++) costs.head_next[w] = costs.head_first;
    REQUIRE(auto_create(&costs, &params->tree, policy, out, NULL) == SPECRT_STATUS_OK);
}

/* autos : NULL: whole drafts. @return the accept length over all prompts; 0 when plain. */
static double run_prompts(pair *p, const specrt_policy *policy, const specrt_session_params *whole,
                          specrt_auto **autos) {
    run *r = (run *)calloc(1, sizeof *r);
    specrt_session_params own = *whole, *params = &own;
    int64_t n_cycles = 0, n_emitted = 0;
    r->p = p;
    r->plain = !policy;
    own.n_logits = p->n_vocab;
    own.sampling.session = 1;
    r->sampling = own.sampling;
    for (int i = 0; i < p->n_workers; i++) {
        if (autos) make_auto(policy, params, &autos[i]);
        if (autos) own.auto_draft = autos[i];
        r->decoders[i] =
            over_models(p->target, policy ? p->drafter : NULL, policy, params, 0, N_CONTEXT);
        r->decoders[i].sequence->by_position = p->by_position;
    }
    sl_parallel_for(p->n_workers, (p->n_prompts - p->first + p->share - 1) / p->share, run_prompt,
                    r);
    for (int32_t i = p->first; i < p->n_prompts; i += p->share) {
        if (r->n_same[i] != p->n_tokens)
            fprintf(stderr, "%s: prompt %d: %d tokens are right\n",
                    policy ? specrt_policy_get_info(policy)->text : "plain", i, (int)r->n_same[i]);
        CHECK_INT(r->n_same[i], p->n_tokens);
        n_cycles += r->stats[i].n_cycles;
        n_emitted += r->stats[i].n_emitted;
    }
    for (int i = 0; i < p->n_workers; i++) over_free(&r->decoders[i]);
    free(r);
    return n_cycles ? (double)n_emitted / (double)n_cycles : 0;
}

/* ---- lists --------------------------------------------------------------------------------- */

/* Ranks by chance; with `spoken`, its tokens come last of all. */
static uint8_t *shuffled_ranks(int32_t n_vocab, const uint8_t *spoken, size_t *n_bytes) {
    uint64_t state = 12345;
    uint8_t *bytes = fixture_ranks(n_vocab, 0, n_vocab / 4, n_bytes);
    int32_t *ids = (int32_t *)(void *)(bytes + sizeof(specrt_ranks_header) + 8 * (size_t)n_vocab);
    int32_t n = 0, n_last = 0;
    for (int32_t id = 0; id < n_vocab; id++)
        if (spoken && spoken[id])
            ids[n_vocab - 1 - n_last++] = id;
        else
            ids[n++] = id;
    for (int32_t i = n - 1; i > 0; i--) {
        int32_t j = (int32_t)(fixture_random(&state) % (uint64_t)(i + 1)), id = ids[i];
        ids[i] = ids[j];
        ids[j] = id;
    }
    return bytes;
}

/* ---- a bundle of every section ------------------------------------------------------------------ */

enum { N_CLUSTERS = 64, N_SECTIONS = 7 };

static uint8_t *clusters_of(const pair *p, specrt_router_kind router, const uint8_t *never,
                            size_t *n) {
    specrt_clusters_header h = fixture_router((int32_t)router, p->n_vocab, p->width, N_CLUSTERS, 4);
    if (router == SPECRT_ROUTER_DYNASPEC) h.n_hidden = 16;
    if (router == SPECRT_ROUTER_CORAL) h.n_hidden = p->width;
    return fixture_clusters(h, never, 3 + (uint64_t)router, n);
}

/* All that a policy may ask of a bundle, made by chance; adversarial ones know no spoken token. */
static void make_list(pair *p, list_kind kind) {
    const uint32_t head = SPECRT_SECTION_DEPENDS_HEAD, tok = SPECRT_SECTION_DEPENDS_TOKENIZER;
    uint8_t *spoken = (uint8_t *)calloc(1, (size_t)p->n_vocab), *made[N_SECTIONS];
    const uint8_t *never = kind == ADVERSARIAL ? spoken : NULL;
    size_t sizes[N_SECTIONS], n;
    for (int i = 0; i < p->n_prompts; i++)
        for (int32_t j = 0; j < p->n_tokens; j++) spoken[p->prompts[i].expected[j]] = 1;
    made[0] = clusters_of(p, SPECRT_ROUTER_CENTROID, never, &sizes[0]);
    made[1] = clusters_of(p, SPECRT_ROUTER_DYNASPEC, never, &sizes[1]);
    made[2] = fixture_graph(p->n_vocab, 40, never, 8, &sizes[2]);
    made[3] = clusters_of(p, SPECRT_ROUTER_CORAL, never, &sizes[3]);
    made[4] = fixture_index(p->n_vocab, p->width, never, 9, &sizes[4]);
    made[5] = shuffled_ranks(p->n_vocab, never, &sizes[5]);
    made[6] = fixture_sketch(p->n_vocab, p->width, 64, 10, &sizes[6]);
    const fixture_section sections[N_SECTIONS] = {
        {"centroid", 1, head, made[0], sizes[0], sizes[0]},
        {"cluster", 1, head, made[1], sizes[1], sizes[1]},
        {"cograph", 1, tok, made[2], sizes[2], sizes[2]},
        {"group", 1, head, made[3], sizes[3], sizes[3]},
        {"hnsw", 1, head, made[4], sizes[4], sizes[4]},
        {"ranks", 1, tok, made[5], sizes[5], sizes[5]},
        {"sketch", 3, head, made[6], sizes[6], sizes[6]},
    };
    p->list_bytes[kind] = fixture_bundle(sections, N_SECTIONS, &n);
    free(spoken);
    for (int i = 0; i < N_SECTIONS; i++) free(made[i]);
    p->lists[kind] = open_memory(p->list_bytes[kind], n);
}

/* @return the pair's own; NULL of ABSENT. Plain decoding has said what is spoken. */
static specrt_bundle *list_of(pair *p, list_kind kind) {
    if (kind != ABSENT && !p->lists[kind]) make_list(p, kind);
    return p->lists[kind];
}

/* ---- the promise --------------------------------------------------------------------------- */

typedef struct trial {
    const char *policy;
    list_kind list;
    const specrt_tree_params *tree;
} trial;

/* @return the accept length. */
static double check_trial(pair *p, const trial *t, const specrt_sampling *sampling,
                          bool auto_draft) {
    specrt_session_params params = {.tree = *t->tree,
                                    .sampling = *sampling,
                                    .submit = specrt_worker_submit,
                                    .submit_user = p->worker};
    specrt_bundle *bundle = list_of(p, t->list);
    specrt_policy *policy;
    specrt_policy_desc desc = {.text = t->policy, .target = p->head};
    specrt_error err = {0};
    if (specrt_policy_create(bundle, p->head, &desc, &policy, &err))
        fprintf(stderr, "%s\n", err.msg);
    REQUIRE(err.status == SPECRT_STATUS_OK);
    const char *wanted = test_setting("every");
    p->share = wanted && atoi(wanted) > 0 ? atoi(wanted) : 4;
    /* A turn without a prompt would check nothing. */
    if (p->share > p->n_prompts) p->share = p->n_prompts;
    specrt_auto *autos[MAX_WORKERS] = {NULL};
    double accept_length = run_prompts(p, policy, &params, auto_draft ? autos : NULL);
    for (int i = 0; i < p->n_workers; i++) {
        specrt_auto_stats stats = {0};
        if (autos[i]) specrt_auto_get_stats(autos[i], &stats);
        if (stats.n_cycles > 500) CHECK(stats.n_passes > 0 && stats.n_plain > 0);
        specrt_auto_close(autos[i]);
    }
    p->first = (p->first + 1) % p->share;
    specrt_policy_close(policy);
    return accept_length;
}

TEST(greedy, "every policy emits plain decoding's tokens") {
    static const trial trials[] = {
        {"full", ABSENT, &eagle_tree},
        {"full", ABSENT, &chain},
        {"microspec", ABSENT, &small_tree},
        {"microspec-paper", ABSENT, &small_tree},
        {"window:512@kpre=3@positions=tree@only=ext", ABSENT, &small_tree},
        {"window:16@min=8", ABSENT, &chain},
        {"window:64@min=16@rows=indexed", ABSENT, &small_tree},
        {"frspec", RANDOM, &small_tree},
        {"static:1000+window:512@kpre=3", RANDOM, &small_tree},
        {"static:8000/2000/500+window:256", RANDOM, &small_tree},
        {"static:1000", ADVERSARIAL, &small_tree},
        {"static:10", ADVERSARIAL, &chain},
        {"static:64+window:256@min=16", ADVERSARIAL, &small_tree},
        {"cluster:6", RANDOM, &small_tree},
        {"cluster:5@always=0", ADVERSARIAL, &chain},
        {"group:4@beam=per_row+window:256@min=16", RANDOM, &small_tree},
        {"cluster:3@beam=per_row+static:64", RANDOM, &small_tree},
        {"centroid:8@cap=600@always=0", ADVERSARIAL, &chain},
        {"static:500+centroid@schedule=flat", RANDOM, &chain},
        {"successor:64", ADVERSARIAL, &chain},
        {"static:500+window:256@min=0+successor:300", RANDOM, &small_tree},
        {"sketch:64", RANDOM, &small_tree},
        {"window:64@min=0+sketch:32", RANDOM, &chain},
        {"static:1000+retrieve:64", RANDOM, &small_tree},
        {"static:200+retrieve:64@sem=hnsw_w", ADVERSARIAL, &chain},
        {"static:200+retrieve:64@prompt=best", RANDOM, &chain},
        {"static:200+retrieve:128@sem=hnsw_h@mode=async", RANDOM, &small_tree},
        {"evospec-paper", RANDOM, &chain},
        {"dynaspec-paper", RANDOM, &small_tree},
        {"coral-paper", RANDOM, &small_tree},
        {"static:256+window:256@min=0+retrieve:32+cluster:3+group:2+centroid:2+successor:64+sketch:"
         "32",
         RANDOM, &small_tree},
    };
    const specrt_sampling greedy = {0};
    pair *p = (pair *)calloc(1, sizeof *p);
    open_pair(p, eagle);
    run_prompts(p, NULL, &(specrt_session_params){.sampling = greedy}, NULL);
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        const trial *t = &trials[i];
#ifdef __SANITIZE_THREAD__ /* the others start no thread */
        if (!strstr(t->policy, "retrieve")) continue;
#endif
        double accept_length = check_trial(p, t, &greedy, false);
        printf("%-50s accept length %.2f\n", t->policy, accept_length);
        if (strcmp(t->policy, "full") == 0) CHECK(accept_length > 1.3);
        if (t->list == ADVERSARIAL && !strchr(t->policy, '+')) CHECK_NEAR(accept_length, 1, 0);
    }
    close_pair(p);
}

/* The same of a kind of drafter, greedy and sampled; the first trial is of the whole vocabulary. */
static void check_drafter(const char *draft, bool by_position, bool autos, const trial *trials,
                          size_t n) {
    const specrt_sampling samplings[] = {{0}, {.temperature = 0.7f, .top_p = 0.95f, .seed = 11}};
    pair *p = (pair *)calloc(1, sizeof *p);
    open_pair(p, draft);
    p->by_position = by_position;
    p->n_prompts = (p->n_prompts + 1) / 2;
    for (int k = 0; k < 2; k++) {
        p->share = 1; /* plain decoding answers all of them again */
        p->first = 0;
        run_prompts(p, NULL, &(specrt_session_params){.sampling = samplings[k]}, NULL);
        for (size_t i = 0; i < n; i++) {
            /* Quickly: a policy greedy, the next sampled; by position the other way round. */
            if (test_quick() && !autos && (i + (size_t)k + by_position) % 2) continue;
            double accept_length = check_trial(p, &trials[i], &samplings[k], autos);
            if (k == 0 && i == 0) CHECK(autos || accept_length > 1.3);
        }
    }
    close_pair(p);
}

/* An MTP module's states go into what policies choose rows by, and into its next step. */
TEST(mtp, "so it does with an MTP module, greedy and sampled") {
    static const trial trials[] = {
        {"full", ABSENT, &eagle_tree},
        {"microspec", ABSENT, &small_tree},
        {"static:10", ADVERSARIAL, &chain},
        {"cluster:3@beam=per_row+static:64", RANDOM, &small_tree},
        {"static:200+retrieve:128@sem=hnsw_h@mode=async", RANDOM, &small_tree},
        {"window:64@min=0+successor:64+sketch:32", RANDOM, &eagle_tree},
        {"coral-paper", RANDOM, &small_tree},
    };
    check_drafter(mtp, false, false, trials, sizeof trials / sizeof *trials);
}

static const specrt_tree_params block_chain = {.num_steps = 7, .topk = 1, .num_draft_tokens = 8};

/* A block drafter's lists are of all positions or of each. */
TEST(block, "so it does with a block drafter, one list and a list for each position") {
    static const trial trials[] = {
        {"full", ABSENT, &eagle_tree},
        {"full", ABSENT, &block_chain},
        {"microspec", ABSENT, &small_tree},
        {"static:10", ADVERSARIAL, &block_chain},
        {"static:500+window:256@min=0+successor:300", RANDOM, &block_chain},
        {"window:64@min=0+successor:64+sketch:32", RANDOM, &small_tree},
        {"cluster:3+static:64", RANDOM, &block_chain},
    };
    for (int i = 0; i < 2; i++)
        check_drafter(dspark, i == 1, false, trials, sizeof trials / sizeof *trials);
}

TEST(sampled, "so it does with sampling, draw for draw") {
    static const trial trials[] = {
        {"full", ABSENT, &small_tree},
        {"microspec", ABSENT, &small_tree},
        {"static:1000", ADVERSARIAL, &small_tree},
        {"static:8000/2000/500", RANDOM, &small_tree},
        {"cluster:6+successor:64", RANDOM, &small_tree},
        {"static:200+retrieve:64@sem=hnsw_h+sketch:32", RANDOM, &chain},
        {"centroid:8@always=0+successor:64", ADVERSARIAL, &small_tree},
    };
    const specrt_sampling warm = {.temperature = 0.7f, .top_p = 0.95f, .seed = 11};
    pair *p = (pair *)calloc(1, sizeof *p);
    open_pair(p, eagle);
    p->n_prompts = (p->n_prompts + 3) / 4;
    run_prompts(p, NULL, &(specrt_session_params){.sampling = warm}, NULL);
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
        check_trial(p, &trials[i], &warm, false);
    close_pair(p);
}

TEST(autos, "so it does where auto_draft chooses") {
    static const trial trials[] = {
        {"full", ABSENT, &chain},
        {"static:2048", RANDOM, &chain},
        {"static:2048+window:256@min=0", RANDOM, &small_tree},
        {"static:2000", ADVERSARIAL, &chain},
    };
    check_drafter(eagle, false, true, trials, sizeof trials / sizeof *trials);
}

TEST(independent, "a model of its own drafts too, and the target for itself") {
    static const char *const drafters[] = {small, sample};
    static const trial trials[] = {{"full", ABSENT, &chain},
                                   {"full", ABSENT, &small_tree},
                                   {"microspec", ABSENT, &small_tree}};
    const specrt_sampling greedy = {0};
    for (int k = 0; k < 2; k++) {
        pair *p = (pair *)calloc(1, sizeof *p);
        open_pair(p, drafters[k]);
        CHECK(engine_drafter_is_model(p->drafter));
        p->n_prompts = (p->n_prompts + 3) / 4;
        run_prompts(p, NULL, &(specrt_session_params){.sampling = greedy}, NULL);
        for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
            double accept_length = check_trial(p, &trials[i], &greedy, false);
            int n_cycles = (p->n_tokens - 1 + chain.num_steps) / (chain.num_steps + 1);
            if (k == 1 && i == 0) CHECK_NEAR(accept_length, (p->n_tokens - 1.0) / n_cycles, 0);
        }
        close_pair(p);
    }
}

/* @return how many tokens there are until the context is full. */
static int32_t count_tokens(const pair *p, const specrt_policy *policy, int32_t n_context) {
    specrt_session_params params = {.tree = small_tree};
    const text_prompt *prompt = &p->prompts[0];
    const specrt_verdict *v;
    int32_t total = 0;
    over o = over_models(p->target, policy ? p->drafter : NULL, policy, &params, 0, n_context);
    decoder *d = o.decoder;
    CHECK_INT(decoder_begin(d, NULL, prompt->ids, 0, NULL), SPECRT_STATUS_BAD_ARG);
    REQUIRE(!decoder_begin(d, NULL, prompt->ids, prompt->n, NULL));
    do {
        REQUIRE(decoder_next(d, &v, NULL) == SPECRT_STATUS_OK);
        total += v->n;
    } while (v->end == SPECRT_END_NONE);
    CHECK_INT(v->end, SPECRT_END_CONTEXT);
    over_free(&o);
    return total;
}

/* The context ends generation cleanly, at the same token as plain decoding does. */
static void check_context_limit(const char *draft) {
    pair *p = (pair *)calloc(1, sizeof *p);
    int32_t more = test_brief() ? 10 : 40;
    open_pair(p, draft);
    const specrt_policy_desc desc = {.text = "microspec"};
    specrt_policy *policy = create_policy(NULL, p->head, &desc);
    CHECK_INT(count_tokens(p, NULL, p->prompts[0].n + more), more + 1);
    CHECK_INT(count_tokens(p, policy, p->prompts[0].n + more), more + 1);
    specrt_policy_close(policy);
    close_pair(p);
}

TEST(context_limit, "a full context ends generation") {
    check_context_limit(eagle);
    check_context_limit(dspark);
}
