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

struct specrt_llama_states {
    specrt_llama_pairs kind;
    struct llama_batch_ext *batch;
    int32_t width; /* of a position's states: kind.n_nodes kind.d_target */

    float *rows; /* [n_batch, width] of the target's last pass */
    int64_t n_rows;
    int32_t found; /* a bit for each node that the pass had */

    float *waiting; /* [n_batch + SPECRT_TREE_MAX_NODES, width] of positions n_read to n_past - 1 */
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

/* Which of them a node is, as bits: a small target may have two of them in one layer. */
static int states_of(const specrt_llama *s, const struct ggml_tensor *t) {
    const specrt_llama_pairs *kind = &s->states_of_target->kind;
    int bits = 0;
    for (int k = 0; k < kind->n_nodes; k++)
        if (strcmp(t->name, kind->nodes[k]) == 0) bits |= 1 << k;
    return bits;
}

static bool wants(const specrt_llama *s, const struct ggml_tensor *t) {
    return states_of(s, t) != 0;
}

static bool fits(const specrt_llama *s, const struct ggml_tensor *t, int64_t n_cols) {
    return t->type == GGML_TYPE_F32 && t->ne[0] == n_cols && t->ne[1] <= s->n_batch;
}

static void take(specrt_llama *s, struct ggml_tensor *t) {
    struct specrt_llama_states *e = s->states_of_target;
    int32_t d = e->kind.d_target, n = e->kind.n_nodes;
    int bits = states_of(s, t);
    if (!fits(s, t, d)) return;
    for (int64_t i = 0; i < t->ne[1] * n; i++)
        if (bits >> i % n & 1)
            ggml_backend_tensor_get(t, e->rows + i * d, (size_t)(i / n) * t->nb[1],
                                    (size_t)d * sizeof(float));
    e->n_rows = t->ne[1];
    e->found |= bits;
}

static int saw(specrt_llama *s, int32_t n) {
    struct specrt_llama_states *e = s->states_of_target;
    bool all = e->found == (1 << e->kind.n_nodes) - 1 && e->n_rows == n;
    e->found = 0;
    if (all) return 0;
    return specrt_llama_fail(s, "target: its graph has no %s of %d rows", e->kind.named, (int)n);
}

static bool copy_rows(const specrt_llama *s, struct ggml_tensor *t, float *to, int32_t d,
                      int64_t *n) {
    if (!fits(s, t, d)) return false;
    *n = t->ne[1];
    ggml_backend_tensor_get(t, to, 0, ggml_nbytes(t));
    return true;
}

/* An encoder's pass ends at its feature, a drafter's at what its head multiplies, unless that is to be
 * computed. */
static bool at_node(struct ggml_tensor *t, bool ask, void *user) {
    specrt_llama *s = (specrt_llama *)user;
    struct specrt_llama_states *e = s->states_of_target;
    bool is_feature = e->features && strcmp(t->name, "fc_out") == 0;
    bool is_own = strcmp(t->name, e->kind.own) == 0;
    bool is_hidden = !s->uses_head && strcmp(t->name, e->kind.hidden) == 0;
    if (ask && strcmp(t->name, "result_output") == 0) s->reached_head = true;
    if (ask) return is_feature || is_own || is_hidden;
    if (is_feature) copy_rows(s, t, e->features, e->kind.d_pair, &e->n_features);
    if (is_hidden) copy_rows(s, t, s->hidden, s->d, &s->n_hidden);
    return is_own && copy_rows(s, t, e->own, e->kind.d_pair, &e->n_own) && !is_hidden;
}

/* ---- passes -------------------------------------------------------------------------------------- */

static int process(specrt_llama *s, enum llama_process_type type) {
    int64_t began = llama_time_us();
    s->states_of_target->n_features = s->states_of_target->n_own = s->n_hidden = 0;
    s->reached_head = false;
    int code = llama_process(s->draft, type, s->states_of_target->batch);
    return specrt_llama_passed(s, began, "llama_process", code);
}

/* Its states of a pass that ended before llama.cpp computes them. */
static int project(specrt_llama *s) {
    struct specrt_llama_states *e = s->states_of_target;
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
    const struct specrt_llama_states *e = s->states_of_target;
    int32_t n_hidden = e->kind.keeps_all ? n : n_outputs;
    if (process(s, LLAMA_PROCESS_TYPE_DECODE) || specrt_llama_headless(s)) return 1;
    if (e->projection && !s->uses_head && project(s)) return 1;
    if (e->n_own >= n_hidden && (s->uses_head || s->n_hidden == n_hidden)) return 0;
    return specrt_llama_fail(s, "drafter: its graph has no %s and %s of %d rows", e->kind.own,
                             e->kind.hidden, (int)n_hidden);
}

/* What the first n positions that wait are paired with: an encoder's features of them, or their states. */
static int encode(specrt_llama *s, int32_t n) {
    struct specrt_llama_states *e = s->states_of_target;
    if (!e->features) return 0;
    llama_batch_ext_clear(e->batch);
    for (int32_t i = 0; i < n; i++) {
        struct llama_embd row = {e->waiting + (size_t)i * (size_t)e->width, 1, (size_t)e->width};
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
    const struct specrt_llama_states *e = s->states_of_target;
    return (e->features ? e->features : e->waiting) + (size_t)i * (size_t)e->kind.d_pair;
}

static void add_pair(specrt_llama *s, int32_t token, const float *feature, llama_pos position,
                     int32_t sequence, bool output) {
    struct specrt_llama_states *e = s->states_of_target;
    struct llama_embd row = {feature, 1, (size_t)e->kind.d_pair};
    int32_t at = llama_batch_ext_add_token(e->batch, sequence, token);
    llama_batch_ext_set_embd_token(e->batch, at, row);
    llama_batch_ext_set_pos(e->batch, at, &position);
    llama_batch_ext_set_output_logits(e->batch, at, output);
}

/* The pairs of the first n positions that wait; the token behind the last of the sequence is `root`, whose
 * pair is the output. Where the first token has a pair, too, its state is zero. */
static int read_pairs(specrt_llama *s, int32_t n, int32_t root, bool output) {
    struct specrt_llama_states *e = s->states_of_target;
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

static void drop(specrt_llama *s, int32_t n) {
    struct specrt_llama_states *e = s->states_of_target;
    size_t width = (size_t)e->width, left = (size_t)(s->n_past - s->n_read - n);
    memmove(e->waiting, e->waiting + (size_t)n * width, left * width * sizeof(float));
    s->n_read += n;
}

/* Cells of pairs that are read again, or of a draft. */
static void forget_unread(specrt_llama *s) {
    int32_t shift = s->states_of_target->kind.shift;
    llama_memory_seq_rm(llama_get_memory(s->draft), 0, s->n_read > 0 ? s->n_read + shift : 0, -1);
}

static int read_ahead(specrt_llama *s, int32_t rest) {
    if (s->n_past - s->n_read <= rest) return 0;
    if (s->states_of_target->kind.shares) return drop(s, s->n_past - s->n_read - 1), 0;
    forget_unread(s);
    int32_t most = s->n_batch - s->states_of_target->kind.shift;
    while (s->n_past - s->n_read > 1) {
        int32_t left = s->n_past - s->n_read - 1, n = left < most ? left : most;
        if (read_pairs(s, n, -1, false)) return 1;
        drop(s, n);
    }
    return 0;
}

static void keep(specrt_llama *s, const int32_t *nodes, int32_t n) {
    struct specrt_llama_states *e = s->states_of_target;
    size_t width = (size_t)e->width;
    float *to = e->waiting + (size_t)(s->n_past - s->n_read) * width;
    for (int32_t i = 0; i < n; i++, to += width)
        memcpy(to, e->rows + (size_t)(nodes ? nodes[i] : i) * width, width * sizeof *to);
}

static void advance(specrt_llama *s) {
    drop(s, s->n_past - s->n_read);
}

static void keep_last(float *rows, int64_t n, int32_t d) {
    if (n > 1) memcpy(rows, rows + (size_t)(n - 1) * (size_t)d, (size_t)d * sizeof *rows);
}

/* The last row of a pass is the one that a draft goes on from. Where a graph keeps all rows, llama.cpp gives
 * with the head the logits of the first row, whichever was asked for. */
static int draft_root(specrt_llama *s, int32_t root) {
    struct specrt_llama_states *e = s->states_of_target;
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
    struct specrt_llama_states *e = s->states_of_target;
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
    const struct specrt_llama_states *e = s->states_of_target;
    return e->kind.d_pair == s->d ? e->draft_input : NULL;
}

/* The target reads one token, which a drafter without a cache of its own looks at. */
static int read_token(specrt_llama *s) {
    llama_memory_clear(llama_get_memory(s->target), false);
    s->to_target.n_tokens = 0;
    specrt_llama_add(&s->to_target, s->tokens[0], 0, 0, true);
    int code = llama_decode(s->target, s->to_target);
    if (code != 0) return specrt_llama_fail(s, "target: llama_decode returned %d", code);
    return saw(s, 1);
}

static int sample(specrt_llama *s) {
    struct specrt_llama_states *e = s->states_of_target;
    for (int32_t i = 0; i < e->width; i++) e->waiting[i] = (float)(i * 37 % 101 - 50) / 25;
    s->tokens[0] = 0;
    if (e->kind.shares && read_token(s)) return 1;
    s->n_past = 1;
    int bad = read_pairs(s, 1, 0, !e->kind.keeps_all || s->uses_head);
    s->n_past = 0;
    return bad;
}

static float *waiting(const specrt_llama *s, int32_t *width) {
    *width = s->states_of_target->width;
    return s->states_of_target->waiting;
}

/* ---- opening ------------------------------------------------------------------------------------- */

static bool open_projection(specrt_llama *s) {
    struct specrt_llama_states *e = s->states_of_target;
    e->places = (int32_t *)malloc((size_t)e->kind.d_pair * sizeof *e->places);
    for (int32_t i = 0; e->places && i < e->kind.d_pair; i++) e->places[i] = i;
    return e->places && specrt_head_bind(NULL, &s->head->projection, NULL, &e->projection, NULL) ==
                            SPECRT_STATUS_OK;
}

static bool start(specrt_llama *s) {
    struct specrt_llama_states *e = s->states_of_target;
    size_t n = (size_t)s->n_batch, d = (size_t)e->kind.d_pair, width = (size_t)e->width;
    e->batch = llama_batch_ext_init(s->draft);
    e->rows = (float *)malloc(n * width * sizeof(float));
    e->waiting = (float *)malloc((n + SPECRT_TREE_MAX_NODES) * width * sizeof(float));
    if (e->kind.encodes) e->features = (float *)malloc(n * d * sizeof(float));
    e->own = (float *)malloc(n * d * sizeof(float));
    e->draft_input = (float *)malloc(n * d * sizeof(float));
    e->zeros = (float *)calloc(d, sizeof(float));
    if (s->head->projection.rows && !open_projection(s)) return false;
    return e->batch && e->rows && e->waiting && (e->features || !e->kind.encodes) && e->own &&
           e->draft_input && e->zeros;
}

static void close_reader(specrt_llama *s) {
    struct specrt_llama_states *e = s->states_of_target;
    if (!e) return;
    if (e->batch) llama_batch_ext_free(e->batch);
    free(e->rows), free(e->waiting), free(e->features);
    free(e->own), free(e->draft_input), free(e->zeros);
    specrt_head_close(e->projection);
    free(e->places);
    free(e);
}

static const specrt_llama_reader reader = {.start = start,
                                           .close = close_reader,
                                           .wants = wants,
                                           .take = take,
                                           .saw = saw,
                                           .at_node = at_node,
                                           .keep = keep,
                                           .advance = advance,
                                           .forget = forget_unread,
                                           .read = read_ahead,
                                           .root = draft_root,
                                           .level = draft_level,
                                           .draft_input = draft_input,
                                           .sample = sample,
                                           .waiting = waiting};

specrt_status specrt_llama_pairs_open(specrt_llama *s, const specrt_llama_pairs *kind,
                                      specrt_error *err) {
    struct specrt_llama_states *e = (struct specrt_llama_states *)calloc(1, sizeof *e);
    if (!e) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for a drafter");
    e->kind = *kind;
    e->width = kind->n_nodes * kind->d_target;
    s->states_of_target = e;
    s->reader = &reader;
    return SPECRT_STATUS_OK;
}

#endif
