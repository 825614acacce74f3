/* bench_draft.c : the time of drafting a cycle, that is the drafter's layer, head products, ranking, tree
 * and learning, under the full vocabulary, a static quarter of it and MicroSpec. On the sample pair and on
 * weights/pair128k of $SPECRT_DATA, if it is there, by specrt-eval compare; then on an EAGLE-2 head of
 * Llama-3-8B's shape with random weights, for time only. One thread.
 *   bench_draft [shape]   the latter alone */
#include "engine/infer/engine_impl.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../tests/fixture.h"
#include "base/measure.h"

enum { N_POLICIES = 3 };

typedef struct row {
    const char *policy;
    double n_rows, accept_length; /* accept_length: 0 where no text is written */
    double layer, head, update;   /* ms a cycle */
} row;

__attribute__((noreturn)) static void fail(const char *what) {
    fprintf(stderr, "bench_draft: %s\n", what);
    exit(1);
}

static double total(const row *r) {
    return r->layer + r->head + r->update;
}

/* Rows in the order full, static, microspec. */
static void print_rows(const char *name, const char *tree, const row *rows) {
    for (int i = 0; i < N_POLICIES; i++) {
        const row *r = &rows[i];
        printf("%-10s %-8s %-24s %7.0f %8.2f %8.2f %7.3f %8.2f %6.1f%% ", name, tree, r->policy,
               r->n_rows, r->layer, r->head, r->update, total(r),
               100 * (total(r) / total(&rows[0]) - 1));
        if (i > 1)
            printf("%6.1f%% ", 100 * (total(r) / total(&rows[1]) - 1));
        else
            printf("%7s ", "");
        if (r->accept_length > 0)
            printf("%6.2f %6.1f%%", r->accept_length,
                   100 * (r->accept_length / rows[0].accept_length - 1));
        putchar('\n');
    }
    fflush(stdout);
}

/* ---- real pairs ------------------------------------------------------------------------------ */

static char bin[1024], folder[64] = "/tmp/bench-draft-XXXXXX";

static double number(json_object *o, const char *key) {
    json_object *value;
    return json_object_object_get_ex(o, key, &value) ? json_object_get_double(value) : 0;
}

static const char *text(json_object *o, const char *key) {
    json_object *value;
    return json_object_object_get_ex(o, key, &value) ? json_object_get_string(value) : "";
}

static json_object *output_of(const char *command) {
    FILE *pipe = popen(command, "r");
    json_object *o = NULL;
    json_tokener *parser = json_tokener_new();
    char line[65536];
    while (pipe && fgets(line, sizeof line, pipe))
        o = json_tokener_parse_ex(parser, line, (int)strlen(line));
    json_tokener_free(parser);
    if (!pipe || pclose(pipe) != 0 || !o) fail(command);
    return o;
}

static void run_pair(const char *name, const char *data, int32_t n_static, const char *tree,
                     const char *options) {
    char command[4096], quarter[32];
    row rows[N_POLICIES] = {{0}};
    json_object *list, *out;
    snprintf(quarter, sizeof quarter, "static:%d", (int)n_static);
    snprintf(command, sizeof command,
             "'%s/specrt-eval' compare --target '%s/target.gguf' --draft '%s/draft.safetensors' "
             "--bundle %s/%s.specb --policy %s,microspec %s --prompts data/prompts/*.jsonl "
             "--limit 2 --threads 1 --json",
             bin, data, data, folder, name, quarter, options);
    out = output_of(command);
    json_object_object_get_ex(out, "rows", &list);
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        json_object *o = json_object_array_get_idx(list, i);
        const char *policy = text(o, "policy");
        int at = strcmp(policy, "full") == 0        ? 0
                 : strcmp(policy, quarter) == 0     ? 1
                 : strcmp(policy, "microspec") == 0 ? 2
                                                    : -1;
        if (at < 0 || strcmp(text(o, "domain"), "all") != 0) continue;
        rows[at] = (row){at == 1 ? quarter
                         : at    ? "microspec"
                                 : "full",
                         number(o, "active_rows"),
                         number(o, "accept_length"),
                         number(o, "draft_ms"),
                         number(o, "head_ms"),
                         number(o, "update_ms")};
    }
    print_rows(name, tree, rows);
    json_object_put(out);
}

/* A pair's ranks are those of the sample text. */
static void bench_pair(const char *name, const char *data, int32_t n_static) {
    char command[4096];
    snprintf(command, sizeof command, "%s/target.gguf", data);
    if (access(command, R_OK) != 0) {
        printf("skipped: no %s\n", command);
        return;
    }
    snprintf(command, sizeof command,
             "'%s/vocabtrim-calibrate' --tokenizer '%s/target.gguf' --corpus data/corpus/*/ -q -o "
             "%s/%s.specb >/dev/null",
             bin, data, folder, name);
    if (system(command) != 0) fail(command);
    run_pair(name, data, n_static, "chain 3", "--topk 1 --num-steps 3 --max-tokens 48");
    run_pair(name, data, n_static, "6/10/60", "--max-tokens 24");
    snprintf(command, sizeof command, "%s/%s.specb", folder, name);
    unlink(command);
}

static void bench_pairs(const char *self) {
    const char *slash = strrchr(self, '/'), *data = getenv("SPECRT_DATA");
    char path[1024];
    snprintf(bin, sizeof bin, "%.*s/../bin", slash ? (int)(slash - self) : 1, slash ? self : ".");
    if (!mkdtemp(folder)) fail(folder);
    bench_pair("sample", "data/sample", 8192);
    snprintf(path, sizeof path, "%s/weights/pair128k", data && *data ? data : "../shared/data");
    bench_pair("pair128k", path, 32064);
    rmdir(folder);
}

/* ---- a large shape ---------------------------------------------------------------------------- */

enum {
    N_VOCAB = 128256,
    N_STATIC = N_VOCAB / 4,
    D_MODEL = 4096,
    N_PROMPT = 64,
    N_CYCLES = 3,
    REPEATS = 3,
    N_LOGITS = SPECRT_TREE_MAX_NODES /* rows that stand for the target's */
};

typedef struct shape {
    engine_model m;
    engine_layer layer;
    engine_matrix fc;
    float *logits;   /* [N_LOGITS, N_VOCAB] */
    float *features; /* [ENGINE_MAX_BATCH, D_MODEL] that stand for the target's */
} shape;

/* One sequence, as in engine/infer/decode.c. */
typedef struct drafting {
    const shape *s;
    engine_cache *cache;
    specrt_session *session;
    specrt_verdict verdict;
    float *hidden, *draft_input; /* [ENGINE_MAX_BATCH, D_MODEL] */
    int32_t before, n_open;
    double since, layer, head, update;
} drafting;

static uint64_t random_state = 11;

/* f16, of random sign and 2^-8 to 2^-7, so that a product neither explodes nor vanishes. */
static engine_matrix random_matrix(int32_t n_rows, int32_t n_cols) {
    size_t n = (size_t)n_rows * (size_t)n_cols;
    uint16_t *w = (uint16_t *)malloc(n * sizeof *w);
    if (!w) fail("out of memory");
    for (size_t i = 0; i < n; i += 4) {
        uint64_t bits = fixture_random(&random_state);
        for (size_t j = 0; j < 4 && i + j < n; j++, bits >>= 16)
            w[i + j] = (uint16_t)((bits & 0x83ff) | 0x1c00);
    }
    return (engine_matrix){.segment = {.rows = w,
                                       .dtype = SPECRT_DTYPE_F16,
                                       .n_rows = n_rows,
                                       .row_stride = 2 * (size_t)n_cols},
                           .n_cols = n_cols,
                           .owned = w};
}

static float *random_floats(size_t n) {
    float *x = (float *)malloc(n * sizeof *x);
    if (!x) fail("out of memory");
    for (size_t i = 0; i < n; i++) x[i] = fixture_normal(&random_state);
    return x;
}

/* Llama-3-8B: 32 heads and 8 of keys of 128 columns. */
static void make_shape(shape *s) {
    static float ones[D_MODEL];
    specrt_error err;
    specrt_head_desc head;
    engine_model *m = &s->m;
    for (int i = 0; i < D_MODEL; i++) ones[i] = 1;
    *s = (shape){.m = {.config = {.n_layers = 1,
                                  .d_model = D_MODEL,
                                  .n_heads = 32,
                                  .n_kv_heads = 8,
                                  .d_head = 128,
                                  .d_ffn = 14336,
                                  .n_vocab = N_VOCAB,
                                  .n_context = 1024,
                                  .rms_epsilon = 1e-5f,
                                  .rope_base = 500000},
                       .d_input = 2 * D_MODEL}};
    s->fc = random_matrix(D_MODEL, 2 * D_MODEL);
    s->layer = (engine_layer){.ffn_norm = ones,
                              .q = random_matrix(D_MODEL, D_MODEL),
                              .k = random_matrix(1024, D_MODEL),
                              .v = random_matrix(1024, D_MODEL),
                              .o = random_matrix(D_MODEL, D_MODEL),
                              .gate = random_matrix(14336, D_MODEL),
                              .up = random_matrix(14336, D_MODEL),
                              .down = random_matrix(D_MODEL, 14336)};
    m->layers = &s->layer;
    m->head = m->embedding = random_matrix(N_VOCAB, D_MODEL);
    m->pool = sl_parallel_pool_create(1);
    engine_llama_layer(&m->config);
    m->rope_frequency = engine_rope_frequencies(128, m->config.rope_base, 1, NULL);
    engine_head(m, &head);
    if (!m->pool || !m->rope_frequency ||
        specrt_head_bind(NULL, &head, NULL, &m->compute_owner, &err))
        fail("out of memory");
    m->serial_owner = m->compute_owner;
    s->logits = random_floats((size_t)N_LOGITS * N_VOCAB);
    s->features = random_floats((size_t)ENGINE_MAX_BATCH * D_MODEL);
}

static void free_shape(shape *s) {
    engine_layer *l = &s->layer;
    engine_matrix *owned[] = {&s->fc,   &l->q,  &l->k,    &l->v,     &l->o,
                              &l->gate, &l->up, &l->down, &s->m.head};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]->owned);
    specrt_head_close(s->m.compute_owner);
    sl_parallel_pool_free(s->m.pool);
    free(s->m.rope_frequency);
    free(s->logits);
    free(s->features);
}

/* What engine_draft does for EAGLE-2. */
static void pass(drafting *d, const int32_t *tokens, const float *features, int32_t n,
                 const int32_t *parents) {
    const shape *s = d->s;
    engine_cache *c = d->cache;
    size_t bytes = D_MODEL * sizeof(float);
    if (engine_begin(c, n, parents) != SPECRT_STATUS_OK) fail("a pass of the drafter");
    engine_embed(&s->m, tokens, n, c->normed);
    for (int32_t i = 0; i < n; i++) {
        memcpy(c->input + 2 * i * D_MODEL, c->normed + i * D_MODEL, bytes);
        memcpy(c->input + (2 * i + 1) * D_MODEL, features + i * D_MODEL, bytes);
    }
    engine_product(&s->m, &s->fc, c->input, n, c->x);
    engine_layer_forward(c, 0, c->x);
    memcpy(d->hidden, c->x, (size_t)n * bytes);
}

static void extend(drafting *d, const int32_t *tokens, int32_t n) {
    int32_t nodes[ENGINE_MAX_BATCH];
    for (int32_t i = 0; i < n; i++) nodes[i] = i;
    engine_cache_truncate(d->cache, engine_cache_length(d->cache));
    pass(d, tokens, d->s->features, n, NULL);
    engine_keep(d->cache, nodes, n);
}

static int target_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                          const float **logits) {
    drafting *d = (drafting *)user;
    (void)all;
    extend(d, tokens, n);
    *logits = d->s->logits;
    return 0;
}

static int draft_step(void *user, int32_t level, const specrt_beam *beam, const float **hidden,
                      const float **draft_input) {
    drafting *d = (drafting *)user;
    int32_t parents[ENGINE_MAX_BATCH];
    size_t bytes = D_MODEL * sizeof(float);
    (void)draft_input;
    d->head += sl_measure_tick(&d->since);
    if (level == 0) {
        int32_t n = d->verdict.n;
        extend(d, d->verdict.tokens, n);
        memmove(d->hidden, d->hidden + (n - 1) * D_MODEL, bytes);
        d->before = -1;
        d->n_open = 0;
    } else {
        for (int32_t i = 0; i < beam->n; i++) {
            memcpy(d->draft_input + i * D_MODEL, d->hidden + beam->parents[i] * D_MODEL, bytes);
            parents[i] = d->before < 0 ? -1 : d->before + beam->parents[i];
        }
        d->before = d->n_open;
        d->n_open += beam->n;
        pass(d, beam->tokens, d->draft_input, beam->n, parents);
    }
    *hidden = d->hidden;
    d->layer += sl_measure_tick(&d->since);
    return 0;
}

static int target_verify(void *user, const specrt_draft *draft, const float **logits) {
    drafting *d = (drafting *)user;
    (void)draft;
    d->head += sl_measure_tick(&d->since);
    *logits = d->s->logits;
    return 0;
}

static int commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    drafting *d = (drafting *)user;
    (void)draft, (void)verdict;
    sl_measure_tick(&d->since);
    return 0;
}

/* The best of some runs of a few cycles each. */
static void run_shape(drafting *d, row *out) {
    const specrt_host host = {.user = d,
                              .n_context = 1024,
                              .max_batch = ENGINE_MAX_BATCH,
                              .target_prefill = target_prefill,
                              .draft_step = draft_step,
                              .target_verify = target_verify,
                              .commit = commit};
    int32_t prompt[N_PROMPT];
    specrt_session_stats stats;
    specrt_error err;
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = (int32_t)((fixture_random(&random_state) >> 33) % N_VOCAB);
    engine_cache_truncate(d->cache, 0);
    d->verdict.n = 1;
    if (specrt_host_begin(d->session, &host, SPECRT_BEGIN_NEW, prompt, N_PROMPT,
                          &d->verdict.tokens[0], &err))
        fail(err.msg);
    d->layer = d->head = d->update = 0;
    for (int i = 0; i < N_CYCLES; i++) {
        d->since = sl_measure_seconds();
        if (specrt_host_cycle(d->session, &host, &d->verdict, &err)) fail(err.msg);
        d->update += sl_measure_tick(&d->since);
    }
    specrt_session_get_stats(d->session, &stats);
    row one = {.policy = out->policy,
               .n_rows = (double)stats.n_rows / N_CYCLES,
               .layer = 1e3 * d->layer / N_CYCLES,
               .head = 1e3 * d->head / N_CYCLES,
               .update = 1e3 * d->update / N_CYCLES};
    if (out->layer == 0 || total(&one) < total(out)) *out = one;
}

static void bench_tree(const shape *s, const specrt_bundle *ranks, const char *tree,
                       const specrt_session_params *params) {
    char quarter[32];
    row rows[N_POLICIES] = {{.policy = "full"}, {.policy = quarter}, {.policy = "microspec"}};
    drafting d[N_POLICIES] = {{0}};
    specrt_policy *policies[N_POLICIES];
    specrt_error err;
    snprintf(quarter, sizeof quarter, "static:%d", N_STATIC);
    for (int i = 0; i < N_POLICIES; i++) {
        specrt_policy_desc desc = {.text = rows[i].policy};
        d[i].s = s;
        d[i].hidden = random_floats((size_t)ENGINE_MAX_BATCH * D_MODEL);
        d[i].draft_input = random_floats((size_t)ENGINE_MAX_BATCH * D_MODEL);
        if (specrt_policy_create(ranks, s->m.compute_owner, &desc, &policies[i], &err) ||
            specrt_session_create(policies[i], params, NULL, &d[i].session, &err) ||
            engine_cache_create(&s->m, 0, &d[i].cache, &err))
            fail(err.msg);
    }
    for (int repeat = 0; repeat < REPEATS; repeat++)
        for (int i = 0; i < N_POLICIES; i++) run_shape(&d[i], &rows[i]);
    print_rows("d = 4096", tree, rows);
    for (int i = 0; i < N_POLICIES; i++) {
        specrt_session_close(d[i].session);
        specrt_policy_close(policies[i]);
        engine_cache_close(d[i].cache);
        free(d[i].hidden);
        free(d[i].draft_input);
    }
}

static void bench_shape(void) {
    const specrt_session_params chain = {.tree = {3, 1, 4}}, tree = {.tree = {6, 10, 60}};
    shape s;
    specrt_bundle *ranks;
    specrt_error err;
    size_t n;
    uint8_t *bytes = fixture_ranks_bundle(N_VOCAB, 1, N_STATIC, &n);
    make_shape(&s);
    if (specrt_bundle_open_memory(bytes, n, "ranks", NULL, &ranks, &err)) fail(err.msg);
    bench_tree(&s, ranks, "chain 3", &chain);
    bench_tree(&s, ranks, "6/10/60", &tree);
    specrt_bundle_close(ranks);
    free(bytes);
    free_shape(&s);
}

int main(int argc, char **argv) {
    printf("%-10s %-8s %-24s %7s %8s %8s %7s %8s %7s %7s %6s %7s\n", "pair", "tree", "policy",
           "rows", "layer", "head", "update", "ms", "full", "static", "accept", "full");
    if (argc < 2 || strcmp(argv[1], "shape") != 0) bench_pairs(argv[0]);
    bench_shape();
    return 0;
}
