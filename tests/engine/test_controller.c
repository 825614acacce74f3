/* test_controller.c : the sample pair decodes while its drafter learns: what is learnt from is what was
 * drafted, bytes repeat, and every token stays plain decoding's, whatever is learnt. */
#include "over.h"
#include "base/io.h"
#include "folder.h"
#include "opened.h"

#include <unistd.h>

static const char SMALL[] = "data/sample/draft-small.gguf"; /* an independent drafter */
static int LENGTH = 20;
enum { N_PROMPTS = 2, MOST_PROMPTS = 8, PROMPT = 12, CONTEXT = 256, MOST = 64 };

/* ThreadSanitizer looks at threads, which few cases are about. */
#ifdef __SANITIZE_THREAD__
#define NOT_OF_THREADS() SKIP("as much in one thread as in several")
#else
#define NOT_OF_THREADS() ((void)0)
#endif

static engine_model *target;
static specrt_error err;

static void open_target(void) {
    if (test_brief()) LENGTH = 12;
    if (target) return;
    if (access("data/sample/target.gguf", R_OK)) SKIP("no data/sample/target.gguf");
    REQUIRE(engine_open("data/sample/target.gguf", 2, &target, &err) == SPECRT_STATUS_OK);
}

static void make_prompt(int i, int32_t *out) {
    for (int k = 0; k < PROMPT; k++) out[k] = 300 + 731 * i + 97 * k % 4001;
}

/* ---- one run --------------------------------------------------------------------------------------- */

typedef struct run {
    engine_controller_params params;
    specrt_session_params session;
    const char *policy;
    const char *draft; /* NULL: the sample's EAGLE head */
    bool frozen;       /* no controller */
    const char *order; /* which prompt at each turn; NULL: one after the other */
    const char *load;  /* a snapshot to begin with */
    int n_prompts;
    int64_t max_tokens; /* where answers end; 0: nowhere */
    int32_t tokens[MOST_PROMPTS][MOST], n_tokens[MOST_PROMPTS];
    int64_t n_cycles, cycles[MOST_PROMPTS];
    engine_controller_stats stats;
    float *masters;
    int64_t n_masters;
    void (*watch)(void *user, const specrt_draft *draft, const specrt_verdict *verdict,
                  const float *logits);
    engine_align_bytes bytes;
} run;

static const specrt_session_params chain = {
    .tree = {.num_steps = 4, .topk = 1, .num_draft_tokens = 5}};
static const specrt_session_params tree = {
    .tree = {.num_steps = 3, .topk = 4, .num_draft_tokens = 16}};
static const engine_controller_params defaults = ENGINE_CONTROLLER_DEFAULTS;

static int turn_of(const run *r, int i) {
    return r->order ? r->order[i] - '0' : i;
}

/* @return how many were emitted: without max_tokens the last cycle goes beyond LENGTH. */
static int32_t decode(decoder *d, int i, int64_t max_tokens, int32_t *out) {
    const specrt_request request = {.max_tokens = max_tokens};
    int32_t prompt[PROMPT];
    const specrt_verdict *v;
    make_prompt(i, prompt);
    REQUIRE(decoder_begin(d, &request, prompt, PROMPT, &err) == SPECRT_STATUS_OK);
    int32_t n = 0;
    do {
        REQUIRE(decoder_next(d, &v, &err) == SPECRT_STATUS_OK && v->n > 0);
        memcpy(out + n, v->tokens, sizeof *out * (size_t)v->n);
        n += v->n;
    } while (n < LENGTH && v->end == SPECRT_END_NONE);
    return n;
}

static void read_masters(run *r, engine_controller *c) {
    const char *path = in_folder("saved");
    file_view file;
    REQUIRE(engine_controller_save(c, path, true, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_file_map(path, &file, &err) == SPECRT_STATUS_OK);
    r->n_masters = (int64_t)file.n;
    r->masters = (float *)realloc(r->masters, file.n);
    memcpy(r->masters, file.bytes, file.n);
    sl_file_unmap(&file);
    clear_folder();
}

/* Phases follow one another: none takes less than no time. */
static void check_times(const decoder_times *t) {
    CHECK(t->prefill > 0 && t->target > 0 && t->draft > 0 && t->head > 0);
    CHECK(t->verify >= 0 && t->update >= 0 && t->align >= 0 && t->watch >= 0);
}

static void decode_all(run *r, engine_drafter *drafter, specrt_head *head, specrt_policy *policy) {
    engine_controller *c = NULL;
    over o = over_models(target, drafter, policy, &r->session, 0, CONTEXT);
    decoder *d = o.decoder;
    if (!r->frozen) {
        specrt_status status = engine_controller_create(
            drafter, head, engine_get_config(target)->n_vocab, CONTEXT, &r->params, &c, &err);
        if (status) fprintf(stderr, "%s\n", err.msg);
        REQUIRE(status == SPECRT_STATUS_OK);
        if (r->load) REQUIRE(engine_controller_load(c, r->load, &err) == SPECRT_STATUS_OK);
        own_align(o.sequence, c, decoder_session(d), r->session.draft == SPECRT_DRAFT_SAMPLED);
    }
    if (r->watch) decoder_watch(d, r->watch, r);
    r->n_cycles = 0;
    for (int i = 0; i < r->n_prompts; i++) {
        specrt_session_stats stats;
        r->n_tokens[i] = decode(d, turn_of(r, i), r->max_tokens, r->tokens[i]);
        specrt_session_get_stats(decoder_session(d), &stats);
        r->cycles[i] = stats.n_cycles;
        r->n_cycles += stats.n_cycles;
        check_times(decoder_get_times(d));
    }
    if (c) {
        engine_controller_finish(c);
        engine_controller_get_stats(c, &r->stats);
        r->bytes = engine_controller_get_bytes(c);
        read_masters(r, c);
    }
    over_free(&o);
    engine_controller_free(c);
}

static void run_all(run *r) {
    engine_drafter *drafter;
    specrt_head_desc desc;
    specrt_policy *policy;
    open_target();
    if (!r->policy) r->policy = "full";
    if (r->order) r->n_prompts = (int)strlen(r->order);
    if (!r->n_prompts) r->n_prompts = N_PROMPTS;
    const char *draft = r->draft ? r->draft : "data/sample/draft.safetensors";
    REQUIRE(engine_drafter_open(draft, target, &drafter, &err) == 0);
    engine_drafter_head(drafter, &desc);
    specrt_head *head = bind_head(NULL, &desc);
    policy = create_policy(NULL, head, &(specrt_policy_desc){.text = r->policy});
    decode_all(r, drafter, head, policy);
    specrt_policy_close(policy);
    specrt_head_close(head);
    engine_drafter_close(drafter);
}

/* Every token is the one that plain decoding gives, which depends on the prompt alone where it is greedy. */
static void check_lossless(const run *r) {
    static int32_t kept[MOST_PROMPTS][MOST], n_kept[MOST_PROMPTS];
    over plain = over_models(target, NULL, NULL, &r->session, 0, CONTEXT);
    bool sampled = r->session.sampling.temperature > 0;
    for (int i = 0; i < r->n_prompts; i++) {
        int32_t prompt = turn_of(r, i), *expected = kept[prompt], *n = &n_kept[prompt];
        if (sampled || *n < LENGTH) *n = decode(plain.decoder, prompt, 0, expected);
        CHECK(memcmp(expected, r->tokens[i], sizeof(int32_t) * (size_t)LENGTH) == 0);
        if (sampled) *n = 0;
    }
    over_free(&plain);
}

static engine_controller_params learning(int32_t n_batch, float rate) {
    engine_controller_params p = defaults;
    p.gate.n_batch = n_batch;
    p.align.rank = 8, p.align.alpha = 8;
    p.align.rate = rate;
    return p;
}

/* ---- what is learnt from --------------------------------------------------------------------------- */

static int32_t refused[MOST], n_refused, n_before, n_draft_input; /* rows, of the last sequence */
static int32_t n_cut; /* paths that end before a drafted token that was right */

/* Row i of a sequence reads token i + 1; a cycle's root is the token at PROMPT + what was emitted before. */
static void note_refused(void *user, const specrt_draft *draft, const specrt_verdict *verdict,
                         const float *logits) {
    bool child = false, right = false;
    int32_t last = verdict->n - 1;
    (void)user, (void)logits;
    for (int32_t i = 1; i < draft->n; i++) {
        child |= draft->parents[i] == verdict->nodes[last];
        right |=
            draft->parents[i] == verdict->nodes[last] && draft->tokens[i] == verdict->tokens[last];
    }
    n_draft_input = PROMPT + n_before - 1;
    n_cut += right;
    if (child && !right) refused[n_refused++] = n_draft_input + verdict->n - 2;
    n_before += verdict->n;
}

/* With a rate of 0, no curriculum and an open gate, the loss at the steps is the divergence that the gate saw
 * when the positions were drafted: rows, paths and sequences are found again. In the first run a position is
 * a batch; in the second all positions of all sequences are one. */
static void run_places(const specrt_session_params *session, const char *policy,
                       const char *draft) {
    run one = {.session = *session,
               .policy = policy,
               .draft = draft,
               .n_prompts = 3,
               .params = learning(1, 0)},
        all;
    one.params.gate.beta = 0;
    one.params.gate.epsilon = 0;
    one.watch = note_refused;
    n_refused = 0;
    run_all(&one);
    check_lossless(&one);
    CHECK_INT(one.stats.n_learnt, one.stats.n_kept);
    CHECK_INT(one.stats.n_kept, one.stats.n_positions - one.stats.n_missing);
    if (session->tree.topk == 1) CHECK_INT(one.stats.n_rejected, n_refused);
    CHECK(one.stats.n_kept > (test_brief() ? 5 : 20));
    CHECK(one.stats.divergence > 1);
    CHECK_NEAR(one.stats.loss, one.stats.divergence, 2e-3 * one.stats.divergence);
    all = one;
    all.masters = NULL;
    all.params.gate.n_batch = (int32_t)one.stats.n_kept;
    run_all(&all);
    CHECK_INT(all.stats.n_steps, 1);
    CHECK_NEAR(all.stats.loss, all.stats.divergence, 2e-3 * all.stats.divergence);
    CHECK(one.n_cycles == all.n_cycles);
    free(one.masters);
    free(all.masters);
}

TEST(places, "what is gone through again is what was drafted") {
    NOT_OF_THREADS();
    run_places(&chain, "full", NULL);
    if (!test_brief()) run_places(&tree, "full", NULL);
    run_places(&tree, "window:64@kpre=3@min=16", NULL);
    if (!test_quick()) run_places(&tree, "window:64@kpre=3@min=16", SMALL);
}

TEST(end, "an answer's end refuses no draft, though its path may end before one that was right") {
    NOT_OF_THREADS();
    for (int osd = 0; osd < 2; osd++) {
        run r = {.session = chain, .max_tokens = 2, .n_prompts = MOST_PROMPTS};
        r.params = learning(1, 0);
        if (osd) r.params.align.mode = ENGINE_ALIGN_FULL;
        r.watch = note_refused;
        n_refused = n_cut = 0;
        run_all(&r);
        CHECK(n_cut > 0);
        CHECK_INT(r.stats.n_rejected, n_refused);
        free(r.masters);
    }
}

/* ---- what comes of it ------------------------------------------------------------------------------ */

/* A rate of 0 drafts as the frozen drafter does; another one drafts otherwise, twice alike, on any number
 * of threads, and loses no token. */
TEST(repeats, "the same bytes on every run and for any threads") {
    LEFT_TO_ALL();
    run frozen = {.session = tree, .frozen = true}, still = {.session = tree};
    run first = {.session = tree}, again;
    still.params = learning(6, 0);
    first.params = learning(6, 0.02f);
    run_all(&frozen);
    run_all(&still);
    run_all(&first);
    check_lossless(&first);
    CHECK(frozen.n_cycles == still.n_cycles);
    CHECK(first.stats.n_steps > (test_brief() ? 0 : 2));
    again = first;
    again.masters = NULL;
    run_all(&again);
    CHECK(first.n_cycles == again.n_cycles && first.n_masters == again.n_masters);
    CHECK(memcmp(first.masters, again.masters, (size_t)first.n_masters) == 0);
    engine_close(target);
    REQUIRE(engine_open("data/sample/target.gguf", 5, &target, &err) == SPECRT_STATUS_OK);
    run_all(&again);
    CHECK(memcmp(first.masters, again.masters, (size_t)first.n_masters) == 0);
    engine_close(target);
    target = NULL;
    CHECK(memcmp(first.masters, still.masters, (size_t)first.n_masters) != 0);
    free(first.masters), free(again.masters), free(still.masters);
}

TEST(learns, "fewer cycles than the frozen drafter, by LoRA and by OSD") {
    run frozen = {.session = chain, .frozen = true, .n_prompts = 1};
    run lora = {.session = chain, .order = "000"}, osd = lora;
    if (test_brief()) SKIP("learning takes its time: make test-all");
    int length = LENGTH;
    LENGTH = 28;
    lora.params = learning(8, 0.01f);
    osd.params = defaults;
    osd.params.align.mode = ENGINE_ALIGN_FULL;
    osd.params.align.rate = 2e-4f;
    osd.params.interval = 1;
    run_all(&frozen);
    run_all(&lora);
    run_all(&osd);
    check_lossless(&lora);
    check_lossless(&osd);
    CHECK(lora.n_cycles < lora.n_prompts * frozen.n_cycles);
    CHECK(osd.n_cycles < osd.n_prompts * frozen.n_cycles);
    CHECK(lora.stats.n_steps > 3);
    CHECK_INT(osd.stats.n_steps, osd.n_prompts - 1);
    CHECK(osd.bytes.parameters > 10 * lora.bytes.parameters);
    LENGTH = length;
    free(lora.masters), free(osd.masters);
}

TEST(independent, "an independent drafter learns without loss") {
    run frozen = {.session = chain, .frozen = true, .n_prompts = 1, .draft = SMALL};
    run lora = {.session = chain, .order = "000", .draft = SMALL}, again;
    if (test_brief()) SKIP("learning takes its time: make test-all");
    int length = LENGTH;
    LENGTH = 28;
    lora.params = learning(8, 0.01f);
    run_all(&frozen);
    run_all(&lora);
    check_lossless(&lora);
    CHECK(lora.n_cycles < lora.n_prompts * frozen.n_cycles);
    CHECK(lora.stats.n_steps > 3);
    again = lora;
    again.masters = NULL;
    run_all(&again);
    CHECK(lora.n_masters == again.n_masters);
    CHECK(memcmp(lora.masters, again.masters, (size_t)lora.n_masters) == 0);
    again.params.guard = 1;
    again.params.async = true;
    run_all(&again);
    check_lossless(&again);
    CHECK_INT(again.stats.n_looks, again.n_prompts - 1);
    again.params = learning(4, 1e9f);
    again.params.align.clip = 0;
    run_all(&again);
    check_lossless(&again);
    LENGTH = length;
    free(lora.masters), free(again.masters);
}

TEST(ruin, "rates that ruin the drafter, gradients that are not finite: tokens stay") {
    static const float rates[] = {1e9f, 1e4f};
    NOT_OF_THREADS();
    for (int i = 0; i < 4; i++) {
        if (test_brief() && i % 3) continue; /* a rate for each kind of training */
        run r = {.session = tree, .params = learning(4, rates[i / 2])};
        if (i % 2) {
            r.params.align.mode = ENGINE_ALIGN_FULL;
            r.params.interval = 1;
        }
        r.params.align.clip = 0;
        run_all(&r);
        check_lossless(&r);
        CHECK(r.stats.n_steps > 0);
        free(r.masters);
    }
}

TEST(sampled, "sampled targets and sampled drafts") {
    run r = {.session = tree, .params = learning(4, 0.05f)};
    NOT_OF_THREADS();
    r.session.sampling.temperature = 0.8f;
    r.session.sampling.session = 1;
    run_all(&r);
    check_lossless(&r);
    CHECK(r.stats.n_steps > (test_brief() ? 0 : 2));
    r.session = chain;
    r.session.sampling.temperature = 0.8f;
    r.session.sampling.session = 1;
    r.session.draft = SPECRT_DRAFT_SAMPLED;
    run_all(&r); /* of another draw than plain decoding */
    CHECK(r.stats.n_steps > 0);
    free(r.masters);
}

TEST(async, "steps on a thread of their own come in when they are ready") {
    for (int mode = 0; mode < (test_quick() ? 1 : 2); mode++) {
        run r = {.session = tree, .params = learning(4, 0.02f)};
        r.params.async = true;
        r.params.threads = 2;
        r.params.interval = 1;
        if (mode) r.params.align.mode = ENGINE_ALIGN_FULL;
        run_all(&r);
        check_lossless(&r);
        CHECK(r.stats.n_steps > 0);
        free(r.masters);
    }
}

/* ---- OSD -------------------------------------------------------------------------------------------- */

static double cross_entropy(const float *p, const float *q, int32_t n) {
    double zp = 0, zq = 0, sum = 0;
    for (int32_t v = 0; v < n; v++) zp += exp((double)p[v]), zq += exp((double)q[v]);
    for (int32_t v = 0; v < n; v++) sum += exp((double)p[v]) / zp * (log(zq) - (double)q[v]);
    return sum;
}

/* One sequence's loss by passes of the two models over the whole text. */
static double oracle_loss(const run *r, int *n_counted) {
    enum { D = 256 };
    static float feature[ENGINE_MAX_BATCH][D], hidden[ENGINE_MAX_BATCH][D],
        draft_input[ENGINE_MAX_BATCH][D];
    int32_t tokens[PROMPT + MOST], n = PROMPT + r->n_tokens[0],
                                   V = engine_get_config(target)->n_vocab;
    engine_drafter *drafter;
    engine_cache *c, *draft;
    float *p = (float *)malloc(2 * sizeof *p * (size_t)V), *q = p + V;
    double sum = 0;
    make_prompt(0, tokens);
    memcpy(tokens + PROMPT, r->tokens[0], sizeof(int32_t) * (size_t)r->n_tokens[0]);
    REQUIRE(engine_drafter_open("data/sample/draft.safetensors", target, &drafter, &err) == 0);
    REQUIRE(engine_cache_create(target, CONTEXT, &c, &err) == 0);
    REQUIRE(engine_drafter_cache(drafter, CONTEXT, &draft, &err) == 0);
    REQUIRE(engine_forward(c, tokens, n, NULL, feature[0], NULL) == 0);
    REQUIRE(engine_draft(drafter, draft, tokens + 1, feature[0], D, n - 1, NULL, hidden[0],
                         draft_input[0]) == 0);
    *n_counted = 0;
    for (int i = 0; i < n_refused; i++) {
        if (refused[i] >= n_draft_input) continue; /* the drafter had not read it yet */
        engine_score(target, feature[refused[i] + 1], 1, p);
        engine_score(target, draft_input[refused[i]], 1, q);
        sum += cross_entropy(p, q, V);
        (*n_counted)++;
    }
    free(p);
    engine_cache_close(c);
    engine_cache_close(draft);
    engine_drafter_close(drafter);
    return sum / *n_counted;
}

/* The first sequence's positions, learnt when the second begins. */
TEST(osd_positions, "OSD's loss is the two models' over the text, where drafts were refused") {
    run r = {.session = chain, .n_prompts = 1, .watch = note_refused, .params = defaults};
    int n_counted;
    n_refused = n_before = 0;
    r.params.align.mode = ENGINE_ALIGN_FULL;
    r.params.align.rate = 0;
    r.params.interval = 1;
    open_target();
    n_before = 1; /* the first token comes with the prompt */
    run_all(&r);
    int n_first = n_refused, draft_input_first = n_draft_input;
    r.n_prompts = 2;
    n_refused = n_before = 0;
    n_before = 1;
    run_all(&r);
    n_refused = n_first, n_draft_input = draft_input_first;
    double expected = oracle_loss(&r, &n_counted);
    CHECK(n_counted > (test_brief() ? 0 : 2));
    CHECK_INT(r.stats.n_steps, 1);
    CHECK_INT(r.stats.n_learnt, n_counted);
    CHECK_NEAR(r.stats.loss / n_counted, expected, 1e-3 * expected);
    free(r.masters);
}

/* ---- the guard ------------------------------------------------------------------------------------- */

TEST(guard_ruin, "rates that ruin the drafter: under a guard it drafts as the frozen one does") {
    run frozen = {.session = chain, .frozen = true}, r = {.session = chain};
    NOT_OF_THREADS();
    run_all(&frozen);
    for (int mode = 0; mode < (test_brief() ? 1 : 2); mode++) {
        r.params = learning(4, 1e9f);
        r.params.guard = 1;
        r.params.align.clip = 0;
        r.params.interval = 1;
        if (mode) r.params.align.mode = ENGINE_ALIGN_FULL;
        run_all(&r);
        check_lossless(&r);
        CHECK(r.stats.n_steps > 0);
        CHECK_INT(r.stats.n_looks, r.n_prompts - 1);
        for (int i = 0; i < r.n_prompts; i++) CHECK(r.cycles[i] == frozen.cycles[i]);
    }
    free(r.masters);
}

/* What is good is drafted with, from the third time on: learnt in the first, on trial in the second. */
TEST(guard_learns, "a guard drafts with what is good") {
    run frozen = {.session = chain, .frozen = true, .n_prompts = 1};
    run lora = {.session = chain, .order = "0000"}, again;
    if (test_brief()) SKIP("learning takes its time: make test-all");
    int length = LENGTH;
    LENGTH = 28;
    lora.params = learning(8, 0.01f);
    lora.params.guard = 1;
    run_all(&frozen);
    run_all(&lora);
    check_lossless(&lora);
    CHECK(lora.cycles[0] == frozen.cycles[0] && lora.cycles[1] == frozen.cycles[0]);
    CHECK(lora.cycles[3] < frozen.cycles[0]);
    CHECK(lora.stats.n_taken >= 1);
    CHECK_INT(lora.stats.n_returns, 0);
    again = lora;
    again.masters = NULL;
    run_all(&again);
    CHECK(memcmp(lora.cycles, again.cycles, sizeof lora.cycles) == 0);
    CHECK(memcmp(lora.masters, again.masters, (size_t)lora.n_masters) == 0);
    again.params.async = true; /* what is on trial then depends on when steps end */
    run_all(&again);
    check_lossless(&again);
    LENGTH = length;
    free(lora.masters), free(again.masters);
}

/* Weights that were good, and are no more: after one look drafts are the frozen drafter's; after eight,
 * learning begins again from there. */
TEST(guard_returns, "a guard goes back to the frozen drafter") {
    LEFT_TO_ALL();
    char path[] = "/tmp/specrt-ruined-XXXXXX"; /* the folder is cleared by each run */
    run frozen = {.session = chain, .frozen = true, .order = test_brief() ? "01" : "01201201"};
    run ruined = {.session = chain, .params = learning(4, 100)}, r = {.session = chain};
    NOT_OF_THREADS();
    ruined.n_prompts = 2;
    run_all(&ruined);
    REQUIRE(mkdtemp(path) && rmdir(path) == 0);
    REQUIRE(!sl_out_bytes(path, true, ruined.masters, (size_t)ruined.n_masters, &err));
    run_all(&frozen);
    r.order = frozen.order;
    r.load = path;
    r.params = learning(4, 0);
    r.params.guard = 1;
    run loaded = r;
    loaded.order = "0"; /* before any look they are what drafts, and is saved */
    run_all(&loaded);
    CHECK(loaded.n_masters == ruined.n_masters &&
          memcmp(loaded.masters, ruined.masters, (size_t)ruined.n_masters) == 0);
    run_all(&r);
    check_lossless(&r);
    CHECK(r.cycles[0] > frozen.cycles[0]);
    for (int i = 1; i < r.n_prompts; i++) CHECK(r.cycles[i] == frozen.cycles[i]);
    CHECK_INT(r.stats.n_returns, 1);
    CHECK_INT(r.stats.n_restarts, 0);
    unlink(path);
    free(ruined.masters), free(loaded.masters), free(r.masters);
}

/* ---- refusals --------------------------------------------------------------------------------------- */

TEST(refused, "settings out of range") {
    engine_drafter *drafter;
    specrt_head_desc desc;
    engine_controller *c;
    engine_controller_params p = defaults;
    open_target();
    REQUIRE(engine_drafter_open("data/sample/draft.safetensors", target, &drafter, &err) == 0);
    engine_drafter_head(drafter, &desc);
    specrt_head *head = bind_head(NULL, &desc);
    p.gate.n_batch = 0;
    CHECK_INT(engine_controller_create(drafter, head, 32768, 64, &p, &c, &err),
              SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "n_batch: expected 1 to 4096, found 0");
    p = defaults, p.interval = 0;
    CHECK_INT(engine_controller_create(drafter, head, 32768, 64, &p, &c, &err),
              SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "interval");
    p = defaults, p.guard = -1;
    CHECK_INT(engine_controller_create(drafter, head, 32768, 64, &p, &c, &err),
              SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "guard: expected 0");
    CHECK(c == NULL);
    engine_controller_free(NULL);
    specrt_head_close(head);
    engine_drafter_close(drafter);
    engine_close(target);
    target = NULL;
}
