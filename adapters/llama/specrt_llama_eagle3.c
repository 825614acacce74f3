/* specrt_llama_eagle3.c : an EAGLE-3 head as drafter, by llama.cpp's public API alone. Its staging API hands
 * over the target's three states, the encoder's features and the drafter's own states; here cb_eval reads the
 * same nodes, and a pass of the drafter ends before the LM head.
 *
 * Needs batches whose tokens come with a state (llama_batch_ext_set_embd_token(), llama.cpp 0.5.0-dev):
 * compile with SPECRT_LLAMA_EAGLE3 where llama.h has them. Else such a drafter is refused by name. */
#include "specrt_llama_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ggml-backend.h"

#ifdef SPECRT_LLAMA_EAGLE3

enum { N_STATES = 3, ALL_STATES = (1 << N_STATES) - 1 };

struct specrt_llama_states {
    struct llama_batch_ext *batch;
    char nodes[N_STATES]
              [24]; /* of the target's graph: outputs of the layers before those it names */
    int32_t d_target, width; /* width = N_STATES d_target */

    float *rows; /* [n_batch, width] of the target's last pass */
    int64_t n_rows;
    int32_t found; /* a bit for each state that the pass had */

    float *waiting; /* [n_batch + SPECRT_TREE_MAX_NODES, width] of positions n_read to n_past - 1 */
    float *features;    /* [n_batch, d] that the encoder made last */
    float *own;         /* [n_batch, d] the drafter's states before its norm, of its last pass */
    float *draft_input; /* [n_batch, d] what that pass was fed */
    int64_t n_features, n_own;
};

/* ---- nodes --------------------------------------------------------------------------------------- */

/* Which of the three a node is, as bits: a small target may have two of them in one layer. */
static int states_of(const specrt_llama *s, const struct ggml_tensor *t) {
    int bits = 0;
    for (int k = 0; t->name[0] == 'l' && k < N_STATES; k++)
        if (strcmp(t->name, s->states_of_target->nodes[k]) == 0) bits |= 1 << k;
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
    int bits = states_of(s, t);
    if (!fits(s, t, e->d_target)) return;
    for (int64_t i = 0; i < t->ne[1] * N_STATES; i++)
        if (bits >> i % N_STATES & 1)
            ggml_backend_tensor_get(t, e->rows + i * e->d_target, (size_t)(i / N_STATES) * t->nb[1],
                                    (size_t)e->d_target * sizeof(float));
    e->n_rows = t->ne[1];
    e->found |= bits;
}

static int saw(specrt_llama *s, int32_t n) {
    struct specrt_llama_states *e = s->states_of_target;
    bool all = e->found == ALL_STATES && e->n_rows == n;
    e->found = 0;
    if (all) return 0;
    return specrt_llama_fail(s, "target: its graph has no %s, %s and %s of %d rows", e->nodes[0],
                             e->nodes[1], e->nodes[2], (int)n);
}

static bool copy_rows(const specrt_llama *s, struct ggml_tensor *t, float *to, int64_t *n) {
    if (!fits(s, t, s->d)) return false;
    *n = t->ne[1];
    ggml_backend_tensor_get(t, to, 0, ggml_nbytes(t));
    return true;
}

/* An encoder's pass ends at its feature, a drafter's at what its head multiplies, unless that is to be
 * computed. */
static bool at_node(struct ggml_tensor *t, bool ask, void *user) {
    specrt_llama *s = (specrt_llama *)user;
    struct specrt_llama_states *e = s->states_of_target;
    bool is_feature = strcmp(t->name, "fc_out") == 0;
    bool is_own = strcmp(t->name, "eagle3_prenorm-0") == 0;
    bool is_hidden = !s->uses_head && strcmp(t->name, "result_norm") == 0;
    if (ask && strcmp(t->name, "result_output") == 0) s->reached_head = true;
    if (ask) return is_feature || is_own || is_hidden;
    if (is_feature) copy_rows(s, t, e->features, &e->n_features);
    if (is_hidden) copy_rows(s, t, s->hidden, &s->n_hidden);
    return is_own && copy_rows(s, t, e->own, &e->n_own);
}

/* ---- passes -------------------------------------------------------------------------------------- */

static int process(specrt_llama *s, enum llama_process_type type) {
    int64_t began = llama_time_us();
    s->states_of_target->n_features = s->states_of_target->n_own = s->n_hidden = 0;
    s->reached_head = false;
    int code = llama_process(s->draft, type, s->states_of_target->batch);
    return specrt_llama_passed(s, began, "llama_process", code);
}

/* The drafter's pass over n pairs in the batch. */
static int decode(specrt_llama *s, int32_t n) {
    if (process(s, LLAMA_PROCESS_TYPE_DECODE) || specrt_llama_headless(s)) return 1;
    if (s->states_of_target->n_own == n && (s->uses_head || s->n_hidden == n)) return 0;
    return specrt_llama_fail(s,
                             "drafter: its graph has no eagle3_prenorm and result_norm of %d "
                             "rows",
                             (int)n);
}

/* Features of the first n positions that wait. */
static int encode(specrt_llama *s, int32_t n) {
    struct specrt_llama_states *e = s->states_of_target;
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

static void add_pair(specrt_llama *s, int32_t token, const float *feature, llama_pos position,
                     int32_t sequence, bool output) {
    struct llama_embd row = {feature, 1, (size_t)s->d};
    int32_t at = llama_batch_ext_add_token(s->states_of_target->batch, sequence, token);
    llama_batch_ext_set_embd_token(s->states_of_target->batch, at, row);
    llama_batch_ext_set_pos(s->states_of_target->batch, at, &position);
    llama_batch_ext_set_output_logits(s->states_of_target->batch, at, output);
}

static const float *feature_of(const specrt_llama *s, int32_t i) {
    return s->states_of_target->features + (size_t)i * (size_t)s->d;
}

/* The pairs of the first n positions that wait; the token behind the last of the sequence is `root`. */
static int read_pairs(specrt_llama *s, int32_t n, int32_t root, bool output) {
    if (encode(s, n)) return 1;
    llama_batch_ext_clear(s->states_of_target->batch);
    for (int32_t i = 0; i < n; i++) {
        int32_t next = s->n_read + i + 1;
        add_pair(s, next < s->n_past ? s->tokens[next] : root, feature_of(s, i), next - 1, 0,
                 output);
    }
    return decode(s, n);
}

static void drop(specrt_llama *s, int32_t n) {
    struct specrt_llama_states *e = s->states_of_target;
    size_t width = (size_t)e->width, left = (size_t)(s->n_past - s->n_read - n);
    memmove(e->waiting, e->waiting + (size_t)n * width, left * width * sizeof(float));
    s->n_read += n;
}

static int read_ahead(specrt_llama *s, int32_t rest) {
    if (s->n_past - s->n_read <= rest) return 0;
    llama_memory_seq_rm(llama_get_memory(s->draft), 0, s->n_read, -1);
    while (s->n_past - s->n_read > 1) {
        int32_t left = s->n_past - s->n_read - 1, n = left < s->n_batch ? left : s->n_batch;
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

/* The last row of a pass is the one that a draft goes on from. With the head llama.cpp gives the logits of
 * the first row, whichever was asked for: its graph of this architecture keeps all. */
static int draft_root(specrt_llama *s, int32_t root) {
    struct specrt_llama_states *e = s->states_of_target;
    if (s->n_past == 0) return specrt_llama_fail(s, "draft: expected a prompt before it");
    if (read_ahead(s, s->uses_head ? 1 : s->n_batch)) return 1;
    size_t d = (size_t)s->d, last = (size_t)(s->n_past - s->n_read - 1);
    llama_memory_seq_rm(llama_get_memory(s->draft), 0, s->n_read, -1);
    if (read_pairs(s, (int32_t)last + 1, root, s->uses_head)) return 1;
    memmove(s->hidden, s->hidden + last * d, d * sizeof(float));
    memmove(e->own, e->own + last * d, d * sizeof(float));
    memcpy(e->draft_input, e->features + last * d, d * sizeof(float));
    return 0;
}

static int draft_level(specrt_llama *s, int32_t level, const specrt_beam *beam) {
    struct specrt_llama_states *e = s->states_of_target;
    size_t d = (size_t)s->d;
    for (int32_t i = 0; i < beam->n; i++)
        memcpy(e->draft_input + (size_t)i * d, e->own + (size_t)beam->parents[i] * d,
               d * sizeof(float));
    llama_batch_ext_clear(e->batch);
    for (int32_t i = 0; i < beam->n; i++)
        add_pair(s, beam->tokens[i], e->draft_input + (size_t)i * d, s->n_past - 1 + level,
                 specrt_llama_sequence(s, level, i), s->uses_head);
    return decode(s, beam->n);
}

static const float *draft_input(const specrt_llama *s) {
    return s->states_of_target->draft_input;
}

static int sample(specrt_llama *s) {
    struct specrt_llama_states *e = s->states_of_target;
    for (int32_t i = 0; i < e->width; i++) e->waiting[i] = (float)(i * 37 % 101 - 50) / 25;
    s->n_past = 1;
    int bad = read_pairs(s, 1, 0, s->uses_head);
    s->n_past = 0;
    return bad;
}

static float *waiting(const specrt_llama *s, int32_t *width) {
    *width = s->states_of_target->width;
    return s->states_of_target->waiting;
}

/* ---- opening ------------------------------------------------------------------------------------- */

static specrt_status check_layers(const specrt_llama *s, const struct llama_model *target,
                                  specrt_error *err) {
    int32_t n_layers = llama_model_n_layer(target);
    for (int k = 0; k < N_STATES; k++) {
        int32_t layer = s->head->target_layers[k];
        if (layer >= 1 && layer < n_layers) continue;
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "drafter: eagle3.target_layers: expected three from 1 on and below "
                                "the target's %d, found %d: is its file the one whose head was "
                                "opened, and the target its own?",
                                (int)n_layers, (int)layer);
    }
    return SPECRT_STATUS_OK;
}

static specrt_status open_reader(specrt_llama *s, const struct llama_model *target,
                                 const struct llama_model *draft, specrt_error *err) {
    char text[32] = "0";
    TRY(check_layers(s, target, err));
    int32_t d_target = llama_model_n_embd(target);
    llama_model_meta_val_str(draft, "eagle3.target_hidden_size", text, sizeof text);
    if (atoi(text) != d_target)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "drafter: eagle3.target_hidden_size: expected the target's %d, "
                                "found %s",
                                (int)d_target, text);
    struct specrt_llama_states *e = s->states_of_target =
        (struct specrt_llama_states *)calloc(1, sizeof *e);
    if (!e) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for a drafter");
    e->d_target = d_target;
    e->width = N_STATES * d_target;
    for (int k = 0; k < N_STATES; k++)
        snprintf(e->nodes[k], sizeof e->nodes[k], "l_out-%d", (int)s->head->target_layers[k] - 1);
    return SPECRT_STATUS_OK;
}

static bool start(specrt_llama *s) {
    struct specrt_llama_states *e = s->states_of_target;
    size_t n = (size_t)s->n_batch, d = (size_t)s->d, width = (size_t)e->width;
    e->batch = llama_batch_ext_init(s->draft);
    e->rows = (float *)malloc(n * width * sizeof(float));
    e->waiting = (float *)malloc((n + SPECRT_TREE_MAX_NODES) * width * sizeof(float));
    e->features = (float *)malloc(n * d * sizeof(float));
    e->own = (float *)malloc(n * d * sizeof(float));
    e->draft_input = (float *)malloc(n * d * sizeof(float));
    return e->batch && e->rows && e->waiting && e->features && e->own && e->draft_input;
}

static void close_reader(specrt_llama *s) {
    struct specrt_llama_states *e = s->states_of_target;
    if (!e) return;
    if (e->batch) llama_batch_ext_free(e->batch);
    free(e->rows), free(e->waiting), free(e->features), free(e->own), free(e->draft_input);
    free(e);
}

const specrt_llama_reader specrt_llama_eagle3 = {.open = open_reader,
                                                 .start = start,
                                                 .close = close_reader,
                                                 .wants = wants,
                                                 .take = take,
                                                 .saw = saw,
                                                 .at_node = at_node,
                                                 .keep = keep,
                                                 .advance = advance,
                                                 .read = read_ahead,
                                                 .root = draft_root,
                                                 .level = draft_level,
                                                 .draft_input = draft_input,
                                                 .sample = sample,
                                                 .waiting = waiting};

#endif
