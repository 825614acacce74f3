/* specrt_llama_pairs.c : drafters that read a state of the target beside each token, by llama.cpp's public
 * API alone: EAGLE-3 heads and MTP layers. Its staging API hands over the target's states and the drafter's
 * own; here cb_eval reads the same nodes, and a pass of the drafter ends before the LM head.
 *
 * Needs batches whose tokens come with a state (llama_batch_ext_set_embd_token(), llama.cpp 0.5.0-dev):
 * compile with SPECRT_LLAMA_STATES where llama.h has them. Else such a drafter is refused by name. */
#include "specrt_llama_impl.h"

#ifdef SPECRT_LLAMA_STATES

#include <stdlib.h>
#include <string.h>
#include "ggml-backend.h"

struct specrt_llama_pairs {
    specrt_llama_pairs_kind kind;
    struct llama_batch_ext *batch;
    float *features; /* [n_batch, d_pair] that the encoder made last; NULL: there is no encoder */
    float *own; /* [n_batch, d_pair] the drafter's states, of its last pass, for the next level */
    float *draft_input; /* [n_batch, d_pair] what that pass was fed */
    float *zeros;       /* [d_pair] */
    specrt_head
        *projection; /* from `hidden` to `own`, where the graph computes that after its head */
    int32_t *places; /* [d_pair] */
    int64_t n_features, n_own;
};

/* ---- nodes --------------------------------------------------------------------------------------- */

/* An encoder's pass ends at its feature, a drafter's at what its head multiplies, unless that is to be
 * computed. */
static bool at_node(struct ggml_tensor *t, bool ask, void *user) {
    specrt_llama *s = (specrt_llama *)user;
    struct specrt_llama_pairs *e = s->pairs;
    bool is_feature = e->features && strcmp(t->name, "fc_out") == 0;
    bool is_own = strcmp(t->name, e->kind.own) == 0;
    bool is_hidden = !s->uses_head && strcmp(t->name, e->kind.hidden) == 0;
    if (ask && strcmp(t->name, "result_output") == 0) s->reached_head = true;
    if (ask) return is_feature || is_own || is_hidden;
    if (is_feature) specrt_llama_copy_rows(s, t, e->features, e->kind.d_pair, &e->n_features);
    if (is_hidden) specrt_llama_copy_rows(s, t, s->hidden, s->d, &s->n_hidden);
    return is_own && specrt_llama_copy_rows(s, t, e->own, e->kind.d_pair, &e->n_own) && !is_hidden;
}

/* ---- passes -------------------------------------------------------------------------------------- */

static int process(specrt_llama *s, enum llama_process_type type) {
    int64_t began = llama_time_us();
    s->pairs->n_features = s->pairs->n_own = s->n_hidden = 0;
    s->reached_head = false;
    int code = llama_process(s->draft, type, s->pairs->batch);
    return specrt_llama_passed(s, began, "llama_process", code);
}

/* Its states of a pass that ended before llama.cpp computes them. */
static int project(specrt_llama *s) {
    struct specrt_llama_pairs *e = s->pairs;
    const specrt_head_desc *by = &s->head->projection;
    const specrt_segment rows = {.rows = by->rows,
                                 .row_stride = specrt_row_bytes(by->dtype, by->n_cols),
                                 .ids = e->places,
                                 .dtype = by->dtype,
                                 .n_rows = (int32_t)by->n_rows};
    const specrt_shortlist all = {.compute = specrt_head_compute(e->projection),
                                  .segments = &rows,
                                  .n_segments = 1,
                                  .n_rows = rows.n_rows,
                                  .n_cols = by->n_cols};
    e->n_own = s->n_hidden;
    if (specrt_shortlist_logits(&all, s->hidden, (int32_t)s->n_hidden, e->own) == SPECRT_STATUS_OK)
        return 0;
    return specrt_llama_fail(s, "drafter: nextn.post_projection: no product of its rows");
}

/* The drafter's pass over n pairs in the batch, of which so many are outputs. */
static int decode(specrt_llama *s, int32_t n, int32_t n_outputs) {
    const struct specrt_llama_pairs *e = s->pairs;
    int32_t n_hidden = e->kind.keeps_all ? n : n_outputs;
    if (process(s, LLAMA_PROCESS_TYPE_DECODE) || specrt_llama_headless(s)) return 1;
    if (e->projection && !s->uses_head && project(s)) return 1;
    if (e->n_own >= n_hidden && (s->uses_head || s->n_hidden == n_hidden)) return 0;
    return specrt_llama_fail(s, "drafter: its graph has no %s and %s of %d rows", e->kind.own,
                             e->kind.hidden, (int)n_hidden);
}

/* What the first n positions that wait are paired with: an encoder's features of them, or their states. */
static int encode(specrt_llama *s, int32_t n) {
    struct specrt_llama_pairs *e = s->pairs;
    if (!e->features) return 0;
    llama_batch_ext_clear(e->batch);
    for (int32_t i = 0; i < n; i++) {
        size_t width = (size_t)s->taps.width;
        struct llama_embd row = {s->taps.waiting + (size_t)i * width, 1, width};
        llama_pos position = s->n_read + i;
        int32_t at = llama_batch_ext_add_embd(e->batch, 0, row);
        llama_batch_ext_set_pos(e->batch, at, &position);
        llama_batch_ext_set_output_embd(e->batch, at, true);
    }
    if (process(s, LLAMA_PROCESS_TYPE_ENCODE)) return 1;
    return e->n_features == n
               ? 0
               : specrt_llama_fail(s, "drafter: its encoder has no fc_out of %d rows", (int)n);
}

static const float *feature_of(const specrt_llama *s, int32_t i) {
    const struct specrt_llama_pairs *e = s->pairs;
    return (e->features ? e->features : s->taps.waiting) + (size_t)i * (size_t)e->kind.d_pair;
}

static void add_pair(specrt_llama *s, int32_t token, const float *feature, llama_pos position,
                     int32_t sequence, bool output) {
    struct specrt_llama_pairs *e = s->pairs;
    struct llama_embd row = {feature, 1, (size_t)e->kind.d_pair};
    int32_t at = llama_batch_ext_add_token(e->batch, sequence, token);
    llama_batch_ext_set_embd_token(e->batch, at, row);
    llama_batch_ext_set_pos(e->batch, at, &position);
    llama_batch_ext_set_output_logits(e->batch, at, output);
}

/* The pairs of the first n positions that wait; the token behind the last of the sequence is `root`, whose
 * pair is the output. Where the first token has a pair, too, its state is zero. */
static int read_pairs(specrt_llama *s, int32_t n, int32_t root, bool output) {
    struct specrt_llama_pairs *e = s->pairs;
    int32_t shift = e->kind.shift, first = s->n_read == 0 ? shift : 0;
    if (encode(s, n)) return 1;
    llama_batch_ext_clear(e->batch);
    if (e->kind.shares) first = 0;
    if (first) add_pair(s, s->tokens[0], e->zeros, 0, 0, false);
    for (int32_t i = 0; i < n; i++) {
        int32_t next = s->n_read + i + 1;
        add_pair(s, next < s->n_past ? s->tokens[next] : root, feature_of(s, i), next - 1 + shift,
                 0, output && (e->kind.keeps_all || i == n - 1));
    }
    return decode(s, first + n, output ? 1 : 0);
}

/* Cells of pairs that are read again, or of a draft. */
static void forget_unread(specrt_llama *s) {
    int32_t shift = s->pairs->kind.shift;
    llama_memory_seq_rm(llama_get_memory(s->draft), 0, s->n_read > 0 ? s->n_read + shift : 0, -1);
}

static int read_ahead(specrt_llama *s, int32_t rest) {
    if (s->n_past - s->n_read <= rest) return 0;
    if (s->pairs->kind.shares) return specrt_llama_taps_drop(s, s->n_past - s->n_read - 1), 0;
    forget_unread(s);
    int32_t most = s->n_batch - s->pairs->kind.shift;
    while (s->n_past - s->n_read > 1) {
        int32_t left = s->n_past - s->n_read - 1, n = left < most ? left : most;
        if (read_pairs(s, n, -1, false)) return 1;
        specrt_llama_taps_drop(s, n);
    }
    return 0;
}

static void advance(specrt_llama *s) {
    specrt_llama_taps_drop(s, s->n_past - s->n_read);
}

static void keep_last(float *rows, int64_t n, int32_t d) {
    if (n > 1) memcpy(rows, rows + (size_t)(n - 1) * (size_t)d, (size_t)d * sizeof *rows);
}

/* The last row of a pass is the one that a draft goes on from. Where a graph keeps all rows, llama.cpp gives
 * with the head the logits of the first row, whichever was asked for. */
static int draft_root(specrt_llama *s, int32_t root) {
    struct specrt_llama_pairs *e = s->pairs;
    int32_t d = e->kind.d_pair;
    if (s->n_past == 0) return specrt_llama_fail(s, "draft: expected a prompt before it");
    bool one = e->kind.shares || (s->uses_head && e->kind.keeps_all);
    if (read_ahead(s, one ? 1 : s->n_batch - e->kind.shift)) return 1;
    forget_unread(s);
    int32_t n = s->n_past - s->n_read;
    if (read_pairs(s, n, root, !e->kind.keeps_all || s->uses_head)) return 1;
    keep_last(s->hidden, s->n_hidden, s->d);
    keep_last(e->own, e->n_own, d);
    memcpy(e->draft_input, feature_of(s, n - 1), (size_t)d * sizeof(float));
    return 0;
}

static int draft_level(specrt_llama *s, int32_t level, const specrt_beam *beam) {
    struct specrt_llama_pairs *e = s->pairs;
    size_t d = (size_t)e->kind.d_pair;
    for (int32_t i = 0; i < beam->n; i++)
        memcpy(e->draft_input + (size_t)i * d, e->own + (size_t)beam->parents[i] * d,
               d * sizeof(float));
    llama_pos position = s->n_past - 1 + e->kind.shift + (e->kind.shares ? 0 : level);
    llama_batch_ext_clear(e->batch);
    for (int32_t i = 0; i < beam->n; i++)
        add_pair(s, beam->tokens[i], e->draft_input + (size_t)i * d, position,
                 e->kind.shares ? 0 : specrt_llama_sequence(s, level, i),
                 !e->kind.keeps_all || s->uses_head);
    return decode(s, beam->n, beam->n);
}

/* As wide as the rows that sources know, or they are not shown it. */
static const float *draft_input(const specrt_llama *s) {
    const struct specrt_llama_pairs *e = s->pairs;
    return e->kind.d_pair == s->d ? e->draft_input : NULL;
}

/* The target reads one token, which a drafter without a cache of its own looks at. */
static int read_token(specrt_llama *s) {
    llama_memory_clear(llama_get_memory(s->target), false);
    s->to_target.n_tokens = 0;
    specrt_llama_add(&s->to_target, s->tokens[0], 0, 0, true);
    int code = llama_decode(s->target, s->to_target);
    if (code != 0) return specrt_llama_fail(s, "target: llama_decode returned %d", code);
    return specrt_llama_taps_saw(s, 1);
}

static int sample(specrt_llama *s) {
    struct specrt_llama_pairs *e = s->pairs;
    for (int32_t i = 0; i < s->taps.width; i++)
        s->taps.waiting[i] = (float)(i * 37 % 101 - 50) / 25;
    s->tokens[0] = 0;
    if (e->kind.shares && read_token(s)) return 1;
    s->n_past = 1;
    int bad = read_pairs(s, 1, 0, !e->kind.keeps_all || s->uses_head);
    s->n_past = 0;
    return bad;
}

/* ---- opening ------------------------------------------------------------------------------------- */

static bool open_projection(specrt_llama *s) {
    struct specrt_llama_pairs *e = s->pairs;
    e->places = (int32_t *)malloc((size_t)e->kind.d_pair * sizeof *e->places);
    for (int32_t i = 0; e->places && i < e->kind.d_pair; i++) e->places[i] = i;
    return e->places && specrt_head_bind(NULL, &s->head->projection, NULL, &e->projection, NULL) ==
                            SPECRT_STATUS_OK;
}

static bool start(specrt_llama *s) {
    struct specrt_llama_pairs *e = s->pairs;
    size_t n = (size_t)s->n_batch, d = (size_t)e->kind.d_pair;
    e->batch = llama_batch_ext_init(s->draft);
    if (e->kind.encodes) e->features = (float *)malloc(n * d * sizeof(float));
    e->own = (float *)malloc(n * d * sizeof(float));
    e->draft_input = (float *)malloc(n * d * sizeof(float));
    e->zeros = (float *)calloc(d, sizeof(float));
    if (s->head->projection.rows && !open_projection(s)) return false;
    return e->batch && (e->features || !e->kind.encodes) && e->own && e->draft_input && e->zeros;
}

static void close_reader(specrt_llama *s) {
    struct specrt_llama_pairs *e = s->pairs;
    if (!e) return;
    if (e->batch) llama_batch_ext_free(e->batch);
    free(e->features);
    free(e->own), free(e->draft_input), free(e->zeros);
    specrt_head_close(e->projection);
    free(e->places);
    free(e);
}

static const specrt_llama_reader reader = {.start = start,
                                           .close = close_reader,
                                           .at_node = at_node,
                                           .advance = advance,
                                           .forget = forget_unread,
                                           .read = read_ahead,
                                           .root = draft_root,
                                           .level = draft_level,
                                           .draft_input = draft_input,
                                           .sample = sample};

specrt_status specrt_llama_pairs_open(specrt_llama *s, const specrt_llama_pairs_kind *kind,
                                      specrt_error *err) {
    struct specrt_llama_pairs *e = (struct specrt_llama_pairs *)calloc(1, sizeof *e);
    if (!e) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for a drafter");
    e->kind = *kind;
    s->pairs = e;
    s->reader = &reader;
    return SPECRT_STATUS_OK;
}

#endif
