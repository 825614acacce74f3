/* test_infer_block.c : block drafters against their definition in double, over contexts that grow and shrink;
 * and files that do not fit. */
#include "../model/st_build.h"
#include "engine/infer/recorder.h"
#include "tiny.h"

enum { D = 24, SIZE = 5, N_TAPS = 2, RANK = 3, CONTEXT = 9, VOCAB = 29, MASK = 28 };

static const tiny target_shape = {"qwen3", 4, D, 3, 1, 16, 40, VOCAB, .tied = true, .normed = true};
static const tiny block_shape = {"qwen3", 2, D, 4, 2, 6, 40, VOCAB, .normed = true};

static const char W1[] = "markov_head.markov_w1.weight", W2[] = "markov_head.markov_w2.weight";

static void make_block(tiny_model *m) {
    make_tiny(m, block_shape, 5);
    add_tensor(m, "fc.weight", D, N_TAPS * D, 0, 0.3);
    add_tensor(m, "hidden_norm.weight", 1, D, 1, 0.3);
    add_tensor(m, "norm.weight", 1, D, 1, 0.3);
    add_tensor(m, W1, VOCAB, RANK, 0, 1);
    add_tensor(m, W2, VOCAB, RANK, 0, 1);
    add_tensor(m, "confidence_head.proj.weight", 1, D + RANK, 0, 1);
    add_tensor(m, "confidence_head.proj.bias", 1, 1, 0, 1);
}

/* The name in the file; NULL: the tensor is not in it. */
static const char *name_in_file(const char *name, char out[96]) {
    const char *dot = strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') : NULL;
    if (!dot)
        return strchr(name, '.') && strncmp(name, "token_embd", 10) != 0 &&
                       strncmp(name, "output", 6) != 0
                   ? name
                   : NULL;
    for (int i = 0; i < N_LAYER_NAMES; i++)
        if (strcmp(dot + 1, layer_names[i][0]) == 0) {
            snprintf(out, 96, "layers.%.*s.%s", (int)(dot - name - 4), name + 4, layer_names[i][1]);
            return out;
        }
    return NULL;
}

/* `skip`: a tensor that is left out. @return the folder */
static const char *write_block(const tiny_model *m, const char *config, const char *skip) {
    static char names[64][96];
    st_tensor tensors[64];
    char text[1024];
    int n = 0;
    for (int i = 0; i < m->n_tensors; i++) {
        const tensor *t = &m->tensors[i];
        const char *name = name_in_file(t->name, names[n]);
        if (!name || (skip && strcmp(name, skip) == 0)) continue;
        bool is_matrix = t->rows > 1 || strcmp(name, "confidence_head.proj.weight") == 0;
        tensors[n++] = (st_tensor){.name = name,
                                   .dtype = "F32",
                                   .n_dims = is_matrix ? 2 : 1,
                                   .shape = {is_matrix ? t->rows : t->cols, t->cols},
                                   .data = (const uint8_t *)t->data,
                                   .bytes = (size_t)t->rows * (size_t)t->cols * 4};
    }
    put_st("model.safetensors", tensors, n);
    snprintf(
        text, sizeof text,
        "{\"architectures\": [\"Qwen3DSparkModel\"], \"head_dim\": 6, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"num_hidden_layers\": 2, \"rms_norm_eps\": 1e-5, "
        "\"rope_theta\": 10000%s}",
        config);
    if (config[0] == '{') snprintf(text, sizeof text, "%s", config); /* the whole */
    put_json("config.json", text);
    return folder();
}

static const char DSPARK[] =
    ", \"block_size\": 5, \"mask_token_id\": 28, \"target_layer_ids\": [3, 0]";

/* Keys and values of rows of `in`, which are at positions from `first` on, behind those there are. */
static void add_keys(const tiny_model *m, int layer, double in[][MAX_WIDTH], int n, int first,
                     double keys[][MAX_WIDTH], double values[][MAX_WIDTH]) {
    const tiny *k = &m->k;
    for (int t = 0; t < n; t++) {
        double *key = keys[first + t];
        mat_vec(weights(m, layer, "attn_k.weight"), in[t], k->kv_heads * k->d_head, D, NULL, key);
        mat_vec(weights(m, layer, "attn_v.weight"), in[t], k->kv_heads * k->d_head, D, NULL,
                values[first + t]);
        for (int i = 0; i < k->kv_heads * k->d_head; i += k->d_head) {
            norm(key + i, weights(m, layer, "attn_k_norm.weight"), k->d_head, key + i);
            rotate(k, layer, NULL, key + i, first + t);
        }
    }
}

/* x += attention of one row at `position` over all n keys. */
static void oracle_attend(const tiny_model *m, int layer, const double *in, int position, int n,
                          double keys[][MAX_WIDTH], double values[][MAX_WIDTH], double *x) {
    const tiny *k = &m->k;
    double q[MAX_WIDTH], mixed[MAX_WIDTH] = {0}, out[MAX_WIDTH];
    mat_vec(weights(m, layer, "attn_q.weight"), in, k->heads * k->d_head, D, NULL, q);
    for (int h = 0; h < k->heads; h++) {
        double *head = q + h * k->d_head, weight[MAX_N], sum = 0;
        int kv = h / (k->heads / k->kv_heads) * k->d_head;
        norm(head, weights(m, layer, "attn_q_norm.weight"), k->d_head, head);
        rotate(k, layer, NULL, head, position);
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int i = 0; i < k->d_head; i++) s += head[i] * keys[j][kv + i];
            sum += weight[j] = exp(s / sqrt(k->d_head));
        }
        for (int j = 0; j < n; j++)
            for (int i = 0; i < k->d_head; i++)
                mixed[h * k->d_head + i] += weight[j] / sum * values[j][kv + i];
    }
    mat_vec(weights(m, layer, "attn_output.weight"), mixed, D, k->heads * k->d_head, NULL, out);
    for (int i = 0; i < D; i++) x[i] += out[i];
}

/* States of a block behind features [n] of the target. */
static void oracle_block(const tiny_model *m, const float *embedding, float (*features)[N_TAPS * D],
                         int n, int32_t token, double out[SIZE][MAX_WIDTH]) {
    static double context[MAX_N][MAX_WIDTH], keys[MAX_N][MAX_WIDTH], values[MAX_N][MAX_WIDTH];
    static double x[MAX_N][MAX_WIDTH], in[MAX_N][MAX_WIDTH];
    for (int t = 0; t < n; t++) {
        double row[N_TAPS * D];
        for (int i = 0; i < N_TAPS * D; i++) row[i] = (double)features[t][i];
        mat_vec(weights(m, -1, "fc.weight"), row, D, N_TAPS * D, NULL, context[t]);
        norm(context[t], weights(m, -1, "hidden_norm.weight"), D, context[t]);
    }
    for (int t = 0; t < SIZE; t++)
        for (int i = 0; i < D; i++) x[t][i] = (double)embedding[(t ? MASK : token) * D + i];
    for (int layer = 0; layer < m->k.layers; layer++) {
        for (int t = 0; t < SIZE; t++) norm(x[t], weights(m, layer, "attn_norm.weight"), D, in[t]);
        add_keys(m, layer, context, n, 0, keys, values);
        add_keys(m, layer, in, SIZE, n, keys, values);
        for (int t = 0; t < SIZE; t++)
            oracle_attend(m, layer, in[t], n + t, n + SIZE, keys, values, x[t]);
        oracle_ffn(m, layer, SIZE, x);
    }
    for (int t = 0; t < SIZE; t++) norm(x[t], weights(m, -1, "norm.weight"), D, out[t]);
}

typedef struct pair {
    tiny_model target, block;
    engine_model *e;
    engine_drafter *d;
} pair;

static void open_pair(pair *p, const char *config) {
    specrt_error err = {0};
    make_tiny(&p->target, target_shape, 99);
    make_block(&p->block);
    p->e = open_tiny(&p->target, 2);
    specrt_status status =
        engine_drafter_open(write_block(&p->block, config, NULL), p->e, &p->d, &err);
    if (status) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(status == SPECRT_STATUS_OK);
}

static void close_pair(pair *p) {
    engine_drafter_close(p->d);
    engine_close(p->e);
    free_tiny(&p->target);
    free_tiny(&p->block);
    clear_folder();
}

static void random_features(float (*features)[N_TAPS * D], int n) {
    for (int i = 0; i < n * N_TAPS * D; i++)
        features[i / (N_TAPS * D)][i % (N_TAPS * D)] = (float)random_real();
}

/* A block behind n tokens; row `first` of the definition is the first that drafts. */
static void check_states(const pair *p, engine_cache *c, float (*features)[N_TAPS * D], int n,
                         int first) {
    static double expected[SIZE][MAX_WIDTH];
    const float *embedding = weights(&p->target, -1, "token_embd.weight");
    float states[SIZE][D], one[D];
    int before = test_failures, n_drafts = SIZE - first;
    CHECK_INT(engine_cache_length(c), n);
    REQUIRE(engine_block_draft(p->d, c, 7, n_drafts, states[0]) == SPECRT_STATUS_OK);
    oracle_block(&p->block, embedding, features, n, 7, expected);
    for (int t = 0; t < n_drafts; t++)
        for (int i = 0; i < D; i++) CHECK_NEAR((double)states[t][i], expected[first + t][i], 1e-4);
    REQUIRE(engine_block_draft(p->d, c, 7, 1, one) == SPECRT_STATUS_OK);
    CHECK(memcmp(one, states[0], sizeof one) == 0); /* whatever is asked for, and once more */
    CHECK_INT(engine_cache_length(c), n);
    if (test_failures > before) fprintf(stderr, "behind %d tokens\n", n);
}

/* Contexts grow by one row or several, with and without a block between, and shrink. */
static void check_contexts(const char *config, int first) {
    static float features[CONTEXT + 3][N_TAPS * D];
    pair p;
    engine_cache *c, *whole;
    specrt_error err;
    float states[2][SIZE][D];
    open_pair(&p, config);
    random_features(features, CONTEXT + 3);
    REQUIRE(engine_drafter_cache(p.d, 0, &c, &err) == SPECRT_STATUS_OK);
    REQUIRE(engine_drafter_cache(p.d, 0, &whole, &err) == SPECRT_STATUS_OK);
    check_states(&p, c, features, 0, first);
    for (int n = 0, more = 1; n < CONTEXT; n += more++) {
        REQUIRE(engine_block_read(p.d, c, features[n], more) == SPECRT_STATUS_OK);
        if (more != 2) check_states(&p, c, features, n + more, first);
    }
    engine_cache_truncate(c, 4);
    random_features(features + 4, CONTEXT - 4);
    check_states(&p, c, features, 4, first);
    REQUIRE(engine_block_read(p.d, c, features[4], CONTEXT - 4) == SPECRT_STATUS_OK);
    check_states(&p, c, features, CONTEXT, first);
    REQUIRE(engine_block_read(p.d, whole, features[0], CONTEXT) == SPECRT_STATUS_OK);
    REQUIRE(engine_block_draft(p.d, c, 3, 1, states[0][0]) == SPECRT_STATUS_OK);
    REQUIRE(engine_block_draft(p.d, whole, 3, 1, states[1][0]) == SPECRT_STATUS_OK);
    CHECK(memcmp(states[0][0], states[1][0], sizeof states[0][0]) == 0);
    engine_cache_close(c);
    engine_cache_close(whole);
    close_pair(&p);
}

TEST(definition, "states of a block equal their definition, whatever came before") {
    char behind[128];
    snprintf(behind, sizeof behind, "%s, \"sample_from_anchor\": false", DSPARK);
    check_contexts(DSPARK, 0);
    check_contexts(behind, 1);
    check_contexts(
        "{\"speculators_model_type\": \"dspark\", \"block_size\": 5, \"mask_token_id\": 28, "
        "\"aux_hidden_state_layer_ids\": [4, 1], \"transformer_layer_config\": {"
        "\"head_dim\": 6, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"num_hidden_layers\": 2, \"rms_norm_eps\": 1e-5, "
        "\"rope_parameters\": {\"rope_theta\": 10000}}}",
        1);
}

TEST(says, "what the file says, and the features that it names") {
    static float taps[4][N_TAPS * D];
    static const int32_t tokens[] = {3, 1, 4, 1};
    int32_t layers[ENGINE_MAX_TAPS];
    float normed[4][D];
    pair p;
    engine_cache *c;
    specrt_error err;
    open_pair(&p, DSPARK);
    engine_block b = engine_drafter_block(p.d);
    CHECK_INT(b.size, SIZE);
    CHECK_INT(b.first, 0);
    CHECK_INT(b.mask, MASK);
    CHECK_INT(b.markov.from.n_rows, VOCAB);
    CHECK_INT(b.markov.to.n_cols, RANK);
    CHECK(memcmp(b.markov.to.rows, weights(&p.block, -1, W2), sizeof(float) * VOCAB * RANK) == 0);
    CHECK(b.confidence_bias == *weights(&p.block, -1, "confidence_head.proj.bias"));
    CHECK(memcmp(b.confidence, weights(&p.block, -1, "confidence_head.proj.weight"),
                 sizeof(float) * (D + RANK)) == 0);
    CHECK_INT(engine_drafter_features(p.d, layers), N_TAPS);
    CHECK(layers[0] == 4 && layers[1] == 1); /* outputs 3, the last layer's, and 0 */
    REQUIRE(engine_cache_create(p.e, 0, &c, &err) == SPECRT_STATUS_OK);
    engine_tap(c, layers, N_TAPS, taps[0]);
    REQUIRE(engine_forward(c, tokens, 4, NULL, normed[0], NULL) == SPECRT_STATUS_OK);
    for (int t = 0; t < 4; t++) {
        double x[D], y[D];
        for (int i = 0; i < D; i++) x[i] = (double)taps[t][i];
        norm(x, weights(&p.target, -1, "output_norm.weight"), D, y);
        for (int i = 0; i < D; i++) CHECK_NEAR((double)normed[t][i], y[i], 1e-5);
    }
    engine_cache_close(c);
    close_pair(&p);
}

/* A text as it is decoded, whose drafts are checked cycle by cycle. */
typedef struct reference {
    const pair *p;
    int32_t n, text[ENGINE_MAX_BATCH]; /* the last is the root of the next draft */
    int32_t n_checked;
} reference;

/* States of a block behind all but the last token, read at once. */
static void block_behind(const reference *r, float states[SIZE][D]) {
    static float taps[ENGINE_MAX_BATCH][N_TAPS * D];
    int32_t layers[ENGINE_MAX_TAPS];
    engine_cache *target, *draft;
    specrt_error err;
    REQUIRE(engine_cache_create(r->p->e, 0, &target, &err) == SPECRT_STATUS_OK);
    REQUIRE(engine_drafter_cache(r->p->d, 0, &draft, &err) == SPECRT_STATUS_OK);
    engine_tap(target, layers, engine_drafter_features(r->p->d, layers), taps[0]);
    REQUIRE(engine_forward(target, r->text, r->n - 1, NULL, NULL, NULL) == SPECRT_STATUS_OK);
    REQUIRE(engine_block_read(r->p->d, draft, taps[0], r->n - 1) == SPECRT_STATUS_OK);
    REQUIRE(engine_block_draft(r->p->d, draft, r->text[r->n - 1], SIZE, states[0]) ==
            SPECRT_STATUS_OK);
    engine_cache_close(target);
    engine_cache_close(draft);
}

/* DSpark's choice of a position: the greatest of head . state + w2 . w1[previous]. */
static int32_t choose(const pair *p, const float *state, int32_t previous) {
    const float *head = weights(&p->target, -1, "token_embd.weight");
    const float *w1 = weights(&p->block, -1, W1), *w2 = weights(&p->block, -1, W2);
    double best = -INFINITY;
    int32_t token = -1;
    for (int32_t v = 0; v < VOCAB; v++) {
        double logit = 0;
        for (int i = 0; i < D; i++) logit += (double)head[v * D + i] * (double)state[i];
        for (int i = 0; i < RANK; i++)
            logit += (double)w2[v * RANK + i] * (double)w1[previous * RANK + i];
        if (logit > best) best = logit, token = v;
    }
    return token;
}

static void check_draft(void *user, const specrt_draft *draft, const specrt_verdict *verdict,
                        const float *logits) {
    reference *r = (reference *)user;
    float states[SIZE][D];
    int32_t previous = draft->tokens[0];
    (void)logits;
    CHECK_INT(previous, r->text[r->n - 1]);
    block_behind(r, states);
    for (int32_t i = 1; i < draft->n; i++, r->n_checked++) {
        previous = choose(r->p, states[i - 1], previous);
        CHECK_INT(draft->tokens[i], previous);
    }
    memcpy(r->text + r->n, verdict->tokens, (size_t)verdict->n * sizeof *r->text);
    r->n += verdict->n;
}

enum { N_PROMPT = 8, N_TOKENS = 40 };
static const int32_t prompt[N_PROMPT] = {3, 1, 4, 1, 5, 9, 2, 6};

/* A chain of whole blocks from the whole vocabulary. */
typedef struct session {
    pair p;
    specrt_head_desc head_desc;
    specrt_head *head;
    specrt_policy *policy;
    over over;
} session;

static void open_session(session *s) {
    const specrt_session_params params = {
        .tree = {.num_steps = SIZE, .topk = 1, .num_draft_tokens = SIZE + 1}};
    open_pair(&s->p, DSPARK);
    engine_drafter_head(s->p.d, &s->head_desc);
    s->head = bind_head(NULL, &s->head_desc);
    s->policy = create_policy(NULL, s->head, &(specrt_policy_desc){.text = "full"});
    s->over = over_models(s->p.e, s->p.d, s->policy, &params, 0, 0);
}

static void close_session(session *s) {
    over_free(&s->over);
    specrt_policy_close(s->policy);
    specrt_head_close(s->head);
    close_pair(&s->p);
}

/* With the whole vocabulary a session drafts what the definition does, whatever was read in between. */
TEST(drafts, "drafts of the whole vocabulary are the definition's, and lossless") {
    const specrt_request request = {.max_tokens = N_TOKENS};
    session s;
    specrt_error err = {0};
    const specrt_verdict *v;
    open_session(&s);
    reference r = {.p = &s.p, .n = N_PROMPT + 1};
    memcpy(r.text, prompt, sizeof prompt);
    decoder_watch(s.over.decoder, check_draft, &r);
    REQUIRE(decoder_begin(s.over.decoder, &request, prompt, N_PROMPT, &err) == SPECRT_STATUS_OK);
    REQUIRE(decoder_next(s.over.decoder, &v, &err) == SPECRT_STATUS_OK);
    r.text[N_PROMPT] = v->tokens[0];
    while (v->end == SPECRT_END_NONE)
        REQUIRE(decoder_next(s.over.decoder, &v, &err) == SPECRT_STATUS_OK);
    CHECK(r.n_checked > 2 * N_TOKENS);
    check_lossless(s.p.e, s.p.d);
    close_session(&s);
}

/* That the target emits behind the prompt. */
static int32_t first_token(const pair *p) {
    float logits[N_PROMPT * VOCAB];
    int32_t best;
    engine_cache *c;
    specrt_error err;
    REQUIRE(engine_cache_create(p->e, 0, &c, &err) == SPECRT_STATUS_OK);
    REQUIRE(engine_forward(c, prompt, N_PROMPT, NULL, NULL, logits) == SPECRT_STATUS_OK);
    engine_cache_close(c);
    return specrt_logits_topk(logits + (N_PROMPT - 1) * VOCAB, VOCAB, 1, &best) == 1 ? best : -1;
}

static int pass_over(void *user, const int32_t *tokens, int32_t n) {
    (void)user, (void)tokens, (void)n;
    return 0;
}

/* Rows of a cycle are of positions of its block, ranked behind the tokens that were emitted. */
static void check_cycle(reference *r, const specrt_trace_record *cycle) {
    float states[SIZE][D], found[D];
    int32_t previous = r->text[r->n - 1];
    block_behind(r, states);
    for (int32_t i = 0; i < cycle->n && i < SIZE; previous = cycle->tokens[i++]) {
        CHECK_INT(cycle->draft_ids[i], choose(r->p, states[i], previous));
        REQUIRE(specrt_row_decode(SPECRT_DTYPE_F16, cycle->draft_hidden + i * D, D, found) == 0);
        for (int j = 0; j < D; j++) CHECK_NEAR((double)found[j], (double)states[i][j], 2e-3);
        r->n_checked++;
    }
    memcpy(r->text + r->n, cycle->tokens, (size_t)cycle->n * sizeof *r->text);
    r->n += cycle->n;
}

TEST(recorded, "a trace has the states of blocks, and ranks with the Markov head") {
    const specrt_request request = {.max_tokens = N_TOKENS};
    const char *path = in_folder("trace");
    session s;
    recorder *rec;
    specrt_trace_reader *reader;
    specrt_trace_record record;
    specrt_error err = {0};
    open_session(&s);
    specrt_session *running = decoder_session(s.over.decoder);
    const recorder_params params = {.host = *decoder_host(s.over.decoder),
                                    .whole = specrt_session_shortlist(running),
                                    .markov = s.head_desc.markov,
                                    .info = {.n_vocab = VOCAB, .d_target = D, .n_draft_top = 1},
                                    .path = path};
    REQUIRE(recorder_create(&params, &rec, &err) == SPECRT_STATUS_OK);
    decoder_reset(s.over.decoder);
    REQUIRE(recorder_generate(rec, running, &request, prompt, N_PROMPT, "", pass_over, NULL,
                              &err) == SPECRT_STATUS_OK);
    REQUIRE(recorder_commit(rec, &err) == SPECRT_STATUS_OK);
    recorder_free(rec);
    REQUIRE(specrt_trace_open(path, NULL, &reader, &err) == SPECRT_STATUS_OK);
    REQUIRE(specrt_trace_read(reader, &record, &err) == SPECRT_STATUS_OK);
    reference r = {.p = &s.p, .n = N_PROMPT + 1};
    memcpy(r.text, prompt, sizeof prompt);
    r.text[N_PROMPT] = first_token(&s.p);
    for (;;) {
        REQUIRE(specrt_trace_read(reader, &record, &err) == SPECRT_STATUS_OK);
        if (record.kind != SPECRT_TRACE_CYCLE) break;
        check_cycle(&r, &record);
    }
    CHECK(r.n_checked >= N_TOKENS - SIZE);
    specrt_trace_close(reader);
    close_session(&s);
}

TEST(misuse, "calls that are refused, of this kind and of another") {
    static float features[ENGINE_MAX_BATCH][N_TAPS * D], states[SIZE][D];
    pair p;
    engine_cache *c;
    specrt_error err;
    const int32_t token = 3;
    open_pair(&p, DSPARK);
    REQUIRE(engine_drafter_cache(p.d, 16, &c, &err) == SPECRT_STATUS_OK);
    CHECK_INT(engine_block_draft(p.d, c, 3, SIZE + 1, states[0]), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(engine_block_draft(p.d, c, 3, 0, states[0]), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(engine_block_draft(p.d, c, VOCAB, 1, states[0]), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(engine_block_draft(p.d, c, -1, 1, states[0]), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(engine_draft(p.d, c, &token, features[0], D, 1, NULL, states[0], states[0]),
              SPECRT_STATUS_BAD_ARG);
    CHECK_INT(engine_block_read(p.d, c, features[0], 0), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(engine_block_read(p.d, c, features[0], 17), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(engine_cache_length(c), 0);
    random_features(features, 14);
    CHECK_INT(engine_block_read(p.d, c, features[0], 14), SPECRT_STATUS_OK);
    CHECK_INT(engine_block_draft(p.d, c, 3, 3, states[0]), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(engine_block_draft(p.d, c, 3, 2, states[0]), SPECRT_STATUS_OK); /* positions 14, 15 */
    engine_cache_close(c);
    close_pair(&p);
}

TEST(bad_files, "files that do not fit are refused by name") {
    static const struct {
        const char *config, *skip, *why;
        specrt_status status;
    } rows[] = {
        {", \"mask_token_id\": 28, \"target_layer_ids\": [3, 0]", NULL,
         "config.json: block_size: expected 2 to 64 positions, found 0", SPECRT_STATUS_BAD_INPUT},
        {", \"block_size\": 5, \"mask_token_id\": 29, \"target_layer_ids\": [3, 0]", NULL,
         "mask_token_id: expected a token of the target, found 29", SPECRT_STATUS_BAD_INPUT},
        {", \"block_size\": 5, \"mask_token_id\": 28, \"target_layer_ids\": [4, 0]", NULL,
         "target_layer_ids: expected the target's layers 0 to 3, found 4", SPECRT_STATUS_BAD_INPUT},
        {", \"block_size\": 5, \"mask_token_id\": 28, \"target_layer_ids\": [-1, 0]", NULL,
         "target_layer_ids: expected the target's layers 0 to 3, found -1",
         SPECRT_STATUS_BAD_INPUT},
        {", \"block_size\": 5, \"mask_token_id\": 28, \"target_layer_ids\": [0, \"x\"]", NULL,
         "target_layer_ids: expected the target's layers 0 to 3, found -1",
         SPECRT_STATUS_BAD_INPUT},
        {", \"block_size\": 5, \"mask_token_id\": 28", NULL,
         "target_layer_ids: expected 1 to 8 layers, found 0", SPECRT_STATUS_BAD_INPUT},
        {", \"block_size\": 5, \"mask_token_id\": 28, \"target_layer_ids\": [0, 1, 3]", NULL,
         "fc.weight: expected [24, 72], found [24, 48]", SPECRT_STATUS_BAD_INPUT},
        {", \"num_hidden_layers\": 3", NULL, "layers.2.self_attn.q_proj.weight: missing",
         SPECRT_STATUS_BAD_INPUT},
        {", \"num_hidden_layers\": 0", NULL, "num_hidden_layers: expected 1 to 1024, found 0",
         SPECRT_STATUS_BAD_INPUT},
        {", \"num_hidden_layers\": 4294967298", NULL,
         "num_hidden_layers: expected 1 to 1024, found 2147483647", SPECRT_STATUS_BAD_INPUT},
        {", \"vocab_size\": 30", NULL, "vocab_size: expected the target's 29, found 30",
         SPECRT_STATUS_BAD_INPUT},
        {", \"markov_head_type\": \"gated\"", NULL, "expected vanilla, found gated",
         SPECRT_STATUS_UNSUPPORTED},
        {", \"use_sliding_window\": true", NULL, "use_sliding_window", SPECRT_STATUS_UNSUPPORTED},
        {", \"dflash_config\": {\"causal\": true}", NULL, "is_causal", SPECRT_STATUS_UNSUPPORTED},
        {"", W2, "markov_w2.weight: missing; expected [29, 3]", SPECRT_STATUS_BAD_INPUT},
        {"", "hidden_norm.weight", "hidden_norm.weight: missing", SPECRT_STATUS_BAD_INPUT},
        {"", "norm.weight", "norm.weight: missing", SPECRT_STATUS_BAD_INPUT},
        {"", "layers.1.mlp.up_proj.weight", "layers.1.mlp.up_proj.weight: missing",
         SPECRT_STATUS_BAD_INPUT},
    };
    tiny_model target, block;
    make_tiny(&target, target_shape, 99);
    make_block(&block);
    engine_model *e = open_tiny(&target, 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        engine_drafter *d;
        specrt_error err = {0};
        char config[512];
        bool own =
            strstr(rows[i].config, "target_layer_ids") || strstr(rows[i].config, "block_size");
        snprintf(config, sizeof config, "%s%s", own ? "" : DSPARK, rows[i].config);
        CHECK_INT(engine_drafter_open(write_block(&block, config, rows[i].skip), e, &d, &err),
                  rows[i].status);
        CHECK_HAS(err.msg, rows[i].why);
    }
    clear_folder();
    engine_close(e);
    free_tiny(&target);
    free_tiny(&block);
}
