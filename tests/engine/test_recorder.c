/* test_recorder.c : a trace has what was decoded, as passes over the whole text find it again; a prompt that
 * was recorded in memory is the same trace. */
#include "engine/infer/recorder.h"
#include "folder.h"
#include "tiny.h"

enum { V = 50, D = 32, D_DRAFT = 24, TOP = 4, DRAFT_TOP = 3, TREE_TOP = 2, MOST = 64, STEPS = 3 };
static const tiny target_shape = {"llama", 2, D, 4, 2, 8, 48, V, .tied = true};
static const tiny draft_shape = {"qwen2", 1, D_DRAFT, 2, 1, 12, 40, V, .tied = true};
static const int32_t prompts[2][12] = {{3, 1, 4}, {1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9}};
static const int32_t lengths[2] = {3, 12};

static specrt_error err;

typedef struct pair {
    engine_model *target, *alone; /* alone: the drafter as a model */
    engine_drafter *drafter;
    specrt_head *head;
    specrt_policy *policy;
    over over;
    decoder *decoder;
    specrt_tree_params tree;
    int32_t d_draft;
} pair;

/* same : the target drafts for itself, and every draft is right. */
static void open_pair(pair *p, bool same, specrt_tree_params tree) {
    tiny_model target, draft;
    specrt_head_desc head;
    specrt_session_params params = {.tree = tree};
    make_tiny(&target, target_shape, 5);
    make_tiny(&draft, same ? target_shape : draft_shape, 5);
    *p = (pair){.tree = tree, .d_draft = same ? D : D_DRAFT};
    p->target = open_tiny(&target, 2);
    p->alone = open_tiny(&draft, 1);
    const char *path = write_tiny(&draft, NULL);
    REQUIRE(engine_drafter_open(path, p->target, &p->drafter, &err) == SPECRT_STATUS_OK);
    unlink(path);
    engine_drafter_head(p->drafter, &head);
    p->head = bind_head(NULL, &head);
    p->policy = create_policy(NULL, p->head, &(specrt_policy_desc){.text = "full"});
    p->over = over_models(p->target, p->drafter, p->policy, &params, 0, 0);
    p->decoder = p->over.decoder;
    free_tiny(&target);
    free_tiny(&draft);
}

static void close_pair(pair *p) {
    over_free(&p->over);
    specrt_policy_close(p->policy);
    specrt_head_close(p->head);
    engine_drafter_close(p->drafter);
    engine_close(p->alone);
    engine_close(p->target);
}

static recorder *create(const pair *p, const char *path) {
    recorder *r;
    const recorder_params params = {.host = *decoder_host(p->decoder),
                                    .whole = specrt_session_shortlist(decoder_session(p->decoder)),
                                    .info = {.n_vocab = V,
                                             .d_target = D,
                                             .n_top = TOP,
                                             .n_draft_top = DRAFT_TOP,
                                             .n_tree_top = TREE_TOP,
                                             .tree = p->tree},
                                    .feeds_state = true,
                                    .path = path};
    REQUIRE(recorder_create(&params, &r, &err) == SPECRT_STATUS_OK);
    return r;
}

typedef struct answer {
    int32_t n, tokens[MOST];
} answer;

static int collect(void *user, const int32_t *tokens, int32_t n) {
    answer *a = (answer *)user;
    memcpy(a->tokens + a->n, tokens, (size_t)n * sizeof *tokens);
    a->n += n;
    return 0;
}

static void generate(pair *p, recorder *r, int i, answer *out) {
    const specrt_request request = {.max_tokens = 20};
    *out = (answer){0};
    decoder_reset(p->decoder);
    REQUIRE(recorder_generate(r, decoder_session(p->decoder), &request, prompts[i], lengths[i],
                              i ? "one" : "nought", collect, out, &err) == SPECRT_STATUS_OK);
    CHECK_INT(out->n, 20);
}

/* ---- what a trace must have ------------------------------------------------------------------------ */

/* Each row of a text: hidden states and logits of a model that reads it at once. */
typedef struct reading {
    float hidden[MOST][D], logits[MOST][V];
} reading;

static void read_text(const engine_model *m, const int32_t *text, int32_t n, reading *out) {
    static float hidden[MOST * D];
    int32_t d = engine_get_config(m)->d_model;
    engine_cache *c;
    REQUIRE(engine_cache_create(m, 0, &c, &err) == SPECRT_STATUS_OK);
    REQUIRE(engine_forward(c, text, n, NULL, hidden, out->logits[0]) == SPECRT_STATUS_OK);
    for (int32_t i = 0; i < n; i++)
        memcpy(out->hidden[i], hidden + i * d, (size_t)d * sizeof *hidden);
    engine_cache_close(c);
}

/* The k greatest logits, greatest first. */
static void check_best(const float *logits, const int32_t *ids, const float *values, int k) {
    bool taken[V] = {false};
    for (int j = 0; j < k; j++) {
        int best = -1;
        for (int v = 0; v < V; v++)
            if (!taken[v] && (best < 0 || logits[v] > logits[best])) best = v;
        taken[best] = true;
        CHECK_INT(ids[j], best);
        if (values) CHECK_NEAR((double)values[j], (double)logits[best], 1e-4);
    }
}

static void check_hidden(const uint16_t *half, const float *expected, int32_t d) {
    float found[D];
    REQUIRE(specrt_row_decode(SPECRT_DTYPE_F16, half, d, found) == SPECRT_STATUS_OK);
    for (int32_t i = 0; i < d; i++)
        CHECK_NEAR((double)found[i], (double)expected[i], 1e-3 * (1 + fabs((double)expected[i])));
}

static void check_sum(float found, const float *logits) {
    double sum = 0;
    for (int v = 0; v < V; v++) sum += exp((double)logits[v]);
    CHECK_NEAR((double)found, log(sum), 1e-4);
}

/* Row i of a cycle is at the text's last token but those that the row and later ones emit. */
static void check_rows(const pair *p, const specrt_trace_record *cycle, int32_t at,
                       const reading *target, const reading *draft) {
    for (int32_t i = 0; i < cycle->n; i++, at++) {
        bool known = cycle->draft_ids[i * DRAFT_TOP] >= 0;
        check_best(target->logits[at], cycle->top_ids + i * TOP, cycle->top_logits + i * TOP, TOP);
        check_sum(cycle->top_logsumexp[i], target->logits[at]);
        check_hidden(cycle->target_hidden + i * D, target->hidden[at], D);
        if (p->tree.topk == 1 || i == 0) CHECK(known == (i < STEPS));
        if (known) {
            check_best(draft->logits[at], cycle->draft_ids + i * DRAFT_TOP,
                       cycle->draft_logits + i * DRAFT_TOP, DRAFT_TOP);
            check_sum(cycle->draft_logsumexp[i], draft->logits[at]);
            check_hidden(cycle->draft_hidden + i * p->d_draft, draft->hidden[at], p->d_draft);
            continue;
        }
        for (int k = 0; k < DRAFT_TOP; k++) {
            CHECK_INT(cycle->draft_ids[i * DRAFT_TOP + k], -1);
            CHECK(cycle->draft_logits[i * DRAFT_TOP + k] == -INFINITY);
        }
        CHECK(cycle->draft_logsumexp[i] == -INFINITY);
        for (int k = 0; k < p->d_draft; k++)
            CHECK((cycle->draft_hidden[i * p->d_draft + k] & 0x7fff) > 0x7c00); /* no number */
    }
}

/* The target's best after each path of the tree. */
static void check_tree(const pair *p, const specrt_trace_record *cycle, const int32_t *text,
                       int32_t n) {
    static reading read;
    for (int32_t node = 0; node < cycle->n_nodes; node++) {
        int32_t path[MOST], depth = 0, at = node;
        for (; at > 0; at = cycle->tree_parents[at]) depth++;
        memcpy(path, text, (size_t)n * sizeof *path);
        at = node;
        for (int32_t i = depth; i > 0; i--, at = cycle->tree_parents[at])
            path[n + i - 1] = cycle->tree_tokens[at];
        read_text(p->target, path, n + depth, &read);
        check_best(read.logits[n + depth - 1], cycle->tree_top_ids + node * TREE_TOP, NULL,
                   TREE_TOP);
    }
}

/* One sequence of a trace, from its prompt to the next one or the end. @return its cycles. */
static int check_sequence(const pair *p, specrt_trace_reader *reader, int i, const answer *a,
                          specrt_trace_record *record) {
    static reading target, draft;
    int32_t text[MOST], n = lengths[i], at = n, n_cycles = 0;
    memcpy(text, prompts[i], (size_t)n * sizeof *text);
    memcpy(text + n, a->tokens, (size_t)a->n * sizeof *text);
    read_text(p->target, text, n + a->n, &target);
    read_text(p->alone, text, n + a->n, &draft);
    CHECK_INT(record->kind, SPECRT_TRACE_SEQUENCE);
    CHECK_STR(record->domain, i ? "one" : "nought");
    CHECK(record->n == n && memcmp(record->tokens, text, (size_t)n * sizeof *text) == 0);
    for (int32_t k = 0; k < n; k++)
        check_best(target.logits[k], record->top_ids + k * TOP, NULL, TOP);
    check_hidden(record->prompt_hidden, target.hidden[n - 1], D);
    REQUIRE(specrt_trace_read(reader, record, &err) == SPECRT_STATUS_OK);
    for (; record->kind == SPECRT_TRACE_CYCLE; n_cycles++) {
        at += record->n;
        for (int32_t k = 0; k < record->n && at - record->n + k < n + a->n - 1; k++)
            CHECK_INT(record->tokens[k], text[at - record->n + k + 1]);
        if (at < n + a->n) check_rows(p, record, at - record->n, &target, &draft);
        check_tree(p, record, text, at - record->n + 1);
        REQUIRE(specrt_trace_read(reader, record, &err) == SPECRT_STATUS_OK);
    }
    return n_cycles;
}

static void check_trace(const pair *p, const char *path, const answer answers[2],
                        const recorder_figures *figures) {
    specrt_trace_reader *reader;
    specrt_trace_record record;
    int n_cycles = 0;
    REQUIRE(specrt_trace_open(path, NULL, &reader, &err) == SPECRT_STATUS_OK);
    CHECK_INT(specrt_trace_get_info(reader)->d_draft, p->d_draft);
    REQUIRE(specrt_trace_read(reader, &record, &err) == SPECRT_STATUS_OK);
    for (int i = 0; i < 2; i++) n_cycles += check_sequence(p, reader, i, &answers[i], &record);
    CHECK(record.kind == SPECRT_TRACE_END && !specrt_trace_is_cut(reader));
    CHECK_INT(figures->n_prompts, 2);
    CHECK_INT(figures->n_tokens, 40);
    CHECK_INT(figures->stats.n_cycles, n_cycles);
    specrt_trace_close(reader);
}

/* ---- tests ----------------------------------------------------------------------------------------- */

static void check_same_files(const char *a, const char *b) {
    file_view x, y;
    REQUIRE(sl_file_map(a, &x, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_file_map(b, &y, &err) == SPECRT_STATUS_OK);
    CHECK(x.n == y.n && memcmp(x.bytes, y.bytes, x.n) == 0);
    sl_file_unmap(&x);
    sl_file_unmap(&y);
}

static void check_recording(bool same, specrt_tree_params tree) {
    const char *path = in_folder("direct"), *joined = in_folder("joined");
    specrt_session_stats sum = {0}, stats;
    answer answers[2], again;
    pair p;
    open_pair(&p, same, tree);
    recorder *r = create(&p, path), *parts = create(&p, NULL), *all = create(&p, joined);
    for (int i = 0; i < 2; i++) {
        generate(&p, r, i, &answers[i]);
        specrt_session_get_stats(decoder_session(p.decoder), &stats);
        sum.n_emitted += stats.n_emitted, sum.n_covered += stats.n_covered;
        sum.n_rows += stats.n_rows;
        generate(&p, parts, i, &again);
        CHECK(memcmp(&again, &answers[i], sizeof again) == 0);
        recorder_part part = recorder_detach(parts);
        REQUIRE(recorder_append(all, &part, &err) == SPECRT_STATUS_OK);
        recorder_part_free(&part);
    }
    recorder_figures figures = recorder_get_figures(r), others = recorder_get_figures(all);
    CHECK(memcmp(&figures, &others, sizeof figures) == 0);
    CHECK_INT(figures.stats.n_emitted, sum.n_emitted);
    CHECK_INT(figures.stats.n_covered, sum.n_covered);
    CHECK_INT(figures.stats.n_rows, sum.n_rows);
    REQUIRE(recorder_commit(r, &err) == SPECRT_STATUS_OK);
    REQUIRE(recorder_commit(all, &err) == SPECRT_STATUS_OK);
    recorder_free(r), recorder_free(parts), recorder_free(all);
    check_trace(&p, path, answers, &figures);
    check_same_files(path, joined);
    CHECK(same == (figures.stats.n_cycles < 20));
    close_pair(&p);
    CHECK_INT(clear_folder(), 2);
}

TEST(chain, "rows of chains are what passes over the whole text give") {
    check_recording(true, (specrt_tree_params){STEPS, 1, STEPS + 1});
    check_recording(false, (specrt_tree_params){STEPS, 1, STEPS + 1});
}

TEST(tree, "so are those of trees, and of every node") {
    check_recording(true, (specrt_tree_params){STEPS, 3, 8});
    check_recording(false, (specrt_tree_params){STEPS, 2, 6});
}

TEST(refused, "a prompt that is refused leaves nothing; what cannot be written is named") {
    static int32_t long_prompt[300];
    pair p;
    open_pair(&p, true, (specrt_tree_params){STEPS, 1, STEPS + 1});
    recorder *r = create(&p, NULL);
    CHECK(recorder_generate(r, decoder_session(p.decoder), NULL, long_prompt, 300, "", NULL, NULL,
                            &err) == SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "prompt: expected 1 to");
    CHECK_INT(recorder_get_figures(r).n_prompts, 0);
    recorder *full = create(&p, "/dev/full");
    answer a;
    generate(&p, r, 0, &a);
    recorder_part part = recorder_detach(r);
    (void)recorder_append(full, &part, &err);
    CHECK_INT(recorder_commit(full, &err), SPECRT_STATUS_IO);
    CHECK_HAS(err.msg, "/dev/full: cannot write");
    recorder_part_free(&part);
    recorder_free(full), recorder_free(r), recorder_free(NULL);
    close_pair(&p);
}
