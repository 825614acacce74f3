/* cluster.c */
#include "sources/cluster.h"
#include "core/base.h"
#include "core/os.h"
#include "core/bundle.h"
#include "core/head.h"
#include "core/pool.h"
#include "sources/source.h"

/* --- sources --- */

static const specrt__source_option specrt__cluster_options[] = {
    {"schedule", "table harmonic flat", 0, 0, 0},
    {"beam", "level per_row", 0, 0, 0},
    {"cap", NULL, 0, SPECRT_MAX_VOCAB, 0},
    {"always", NULL, 0, 65536, 256},
};
SPECRT__SOURCE_FITS(specrt__cluster_options, SPECRT__CLUSTER_OPTIONS);

/* Clusters of level t.
 *   size : of level 0; 0: the table's; below 0: a share in % */
static int32_t specrt__cluster_level(const specrt_clusters *c, int32_t size, int32_t shape,
                                     int32_t t) {
    int32_t last = c->header->n_schedule - 1, first = c->schedule[0];
    int64_t n = size > 0 ? size : first;
    if (size < 0) n = ((int64_t)c->header->n_clusters * -size + 50) / 100;
    if (shape == 0) n = c->schedule[t < last ? t : last] * n / first;
    if (shape == 1 && t >= 2) n /= 2 * (t + 1);
    if (n > c->header->n_clusters) n = c->header->n_clusters;
    return n > 1 ? (int32_t)n : 1;
}

static specrt_status specrt__cluster_check_head(const specrt_bundle *bundle, const char *tag,
                                                const specrt_clusters *c, const specrt_head *head,
                                                const specrt_head_desc *embedding,
                                                specrt_error *err) {
    const specrt_clusters_header *h = c->header;
    int32_t n_absent = 0;
    if (h->n_cols != head->desc.n_cols || (!head->row_of && h->n_rows != head->desc.n_rows))
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: section '%s': expected a head [%d, %d], found [%lld, %lld]; "
                                "use the bundle made for this model",
                                bundle->name, tag, (int)h->n_rows, (int)h->n_cols,
                                (long long)head->desc.n_rows, (long long)head->desc.n_cols);
    if (h->router == SPECRT_ROUTER_NONE)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                                "%s: section '%s': has clusters and no router; run cluster-build "
                                "with --router",
                                bundle->name, tag);
    if (h->n_state != head->desc.n_cols)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: section '%s': the router reads %d columns, the drafter has "
                                "%lld; train it with traces of this drafter",
                                bundle->name, tag, (int)h->n_state, (long long)head->desc.n_cols);
    while (n_absent < h->n_members && specrt__head_row_of(head, c->ids[n_absent]) < 0) n_absent++;
    if (n_absent == h->n_members)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: section '%s': expected the head to have rows for some of its "
                                "%d tokens, found none",
                                bundle->name, tag, (int)n_absent);
    if (h->n_embed == 0 || (embedding && embedding->n_cols == h->n_embed)) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "%s: the router reads an embedding of %d columns, found %lld; "
                            "set specrt_policy_desc.embedding",
                            tag, (int)h->n_embed, embedding ? (long long)embedding->n_cols : 0);
}

/* The most frequent of all, forced ones included, that have rows. @return how many. */
static int32_t specrt__cluster_always(const specrt_bundle *bundle, const specrt_head *head,
                                      int32_t n, int32_t *out) {
    specrt_ranks ranks;
    int32_t n_out = 0;
    if (n == 0 || specrt_bundle_ranks(bundle, &ranks, NULL) != SPECRT_STATUS_OK) return 0;
    for (int32_t i = ranks.header->n_forced; i < ranks.header->n_valid && n_out < n; i++)
        if (specrt__head_row_of(head, ranks.ids[i]) >= 0) out[n_out++] = ranks.ids[i];
    return n_out;
}

static void specrt__cluster_halves(const uint16_t *x, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) out[i] = specrt__base_f16(x[i]);
}

/* A layer as a segment of f16 rows. */
static specrt_segment specrt__cluster_layer(const uint16_t *weights, int64_t n_in, int32_t n_out,
                                            const float *bias) {
    specrt_segment s;
    memset(&s, 0, sizeof s);
    s.rows = weights;
    s.row_stride = (size_t)n_in * sizeof *weights;
    s.dtype = SPECRT_DTYPE_F16;
    s.bias = bias;
    s.n_rows = n_out;
    return s;
}

/* The row of the head where it lies cluster by cluster already, in a format that products take; -1: it
 * does not. */
static int32_t specrt__cluster_in_place(const specrt_clusters *c, const specrt_head *head) {
    int32_t first = -1, n = 0;
    if (specrt__head_packed_dtype(head) != head->desc.dtype) return -1;
    for (int32_t i = 0; i < c->header->n_members; i++) {
        int32_t row = specrt__head_row_of(head, c->ids[i]);
        if (row < 0) continue;
        if (first < 0) first = row;
        if (row != first + n++) return -1;
    }
    return first;
}

/* The block, empty but for room for n_copies rows. */
SPECRT__INTERNAL specrt__cluster_shared *specrt__cluster_allocate(const specrt_clusters *c,
                                                                  const specrt_head *head,
                                                                  int32_t n_always,
                                                                  int32_t n_copies) {
    const specrt_clusters_header *h = c->header;
    size_t n = (size_t)n_always + (size_t)h->n_members;
    size_t stride = specrt_row_bytes(specrt__head_packed_dtype(head), head->desc.n_cols);
    size_t words = 2 * n + (size_t)h->n_clusters * 2 + 1 + (size_t)h->n_hidden;
    uint64_t at_rows = sizeof(specrt__cluster_shared) + 4 * words, bytes;
    if (!specrt__base_mul(stride, (uint64_t)n_copies, &bytes) ||
        !specrt__base_add(bytes, at_rows + 64, &bytes))
        return NULL;
    specrt__cluster_shared *s =
        (specrt__cluster_shared *)specrt__base_alloc(&head->compute.env, bytes);
    if (!s) return NULL;
    specrt__os_advise_huge(s, (size_t)bytes);
    memset(s, 0, sizeof *s);
    uint8_t *at = (uint8_t *)(s + 1);
    s->ids = SPECRT__CARVE(int32_t, &at, n);
    s->starts = SPECRT__CARVE(int32_t, &at, h->n_clusters + 1);
    float *bias = SPECRT__CARVE(float, &at, n), *b1 = SPECRT__CARVE(float, &at, h->n_hidden);
    float *b2 = SPECRT__CARVE(float, &at, h->n_clusters);
    if (head->desc.bias) s->always.bias = bias;
    specrt__cluster_halves(c->b1, h->n_hidden, b1);
    s->w1 = specrt__cluster_layer(c->w1, specrt__cluster_inputs(h), h->n_hidden, b1);
    specrt__cluster_halves(c->b2, h->n_clusters, b2);
    s->w2 = specrt__cluster_layer(c->w2, specrt__cluster_width(h), h->n_clusters, b2);
    s->always.rows = (const void *)(uintptr_t)specrt__base_align((uintptr_t)at, 64);
    s->always.row_stride = stride;
    s->always.dtype = specrt__head_packed_dtype(head);
    s->env = head->compute.env;
    s->head = head;
    s->view = *c;
    return s;
}

/* Tokens cluster by cluster, behind those that always come; those without a row are passed over.
 * @return how many. */
static int32_t specrt__cluster_list(specrt__cluster_shared *s, const int32_t *always,
                                    int32_t n_always) {
    const specrt_clusters *c = &s->view;
    int32_t n = n_always;
    if (n > 0) memcpy(s->ids, always, (size_t)n * sizeof *s->ids);
    for (int32_t m = 0; m < c->header->n_clusters; m++) {
        s->starts[m] = n - n_always;
        for (uint32_t i = c->offsets[m]; i < c->offsets[m + 1]; i++)
            if (specrt__head_row_of(s->head, c->ids[i]) >= 0) s->ids[n++] = c->ids[i];
    }
    s->starts[c->header->n_clusters] = n - n_always;
    return n;
}

/* Fills the segments; first: the head's row where the clusters begin, -1: they are copied. */
SPECRT__INTERNAL void specrt__cluster_pack(specrt__cluster_shared *s, const int32_t *always,
                                           int32_t n_always, int32_t first) {
    const specrt_head_desc *head = &s->head->desc;
    int32_t n = specrt__cluster_list(s, always, n_always);
    specrt__pool_packing packing = {s->head,
                                    s->ids,
                                    first < 0 ? n : n_always,
                                    (uint8_t *)(uintptr_t)s->always.rows,
                                    s->always.row_stride,
                                    (float *)(uintptr_t)s->always.bias,
                                    NULL};
    specrt__pool_pack(&packing);
    s->always.ids = s->ids;
    s->always.n_rows = n_always;
    s->rows = s->always;
    if (first >= 0) {
        s->rows.rows = head->rows;
        s->rows.row_stride = head->row_stride;
        s->rows.bias = head->bias;
    }
    int32_t begin = first < 0 ? n_always : first;
    s->rows.rows = (const uint8_t *)s->rows.rows + (size_t)begin * s->rows.row_stride;
    if (s->rows.bias) s->rows.bias += begin;
    s->rows.ids = s->ids + n_always;
}

static int32_t specrt__cluster_size(const specrt__cluster_shared *s, int32_t m) {
    return s->starts[m + 1] - s->starts[m];
}

/* Rows of the n largest clusters: of those above the n-th's size, and that size for the others. */
static int64_t specrt__cluster_largest(const specrt__cluster_shared *s, int32_t n) {
    int32_t low = 0, high = s->view.header->n_members;
    int64_t sum = 0;
    while (low < high) { /* the least size that at most n clusters exceed */
        int32_t size = low + (high - low) / 2, n_above = 0;
        for (int32_t m = 0; m < s->view.header->n_clusters; m++)
            n_above += specrt__cluster_size(s, m) > size;
        if (n_above > n)
            low = size + 1;
        else
            high = size;
    }
    for (int32_t m = 0; m < s->view.header->n_clusters; m++)
        if (specrt__cluster_size(s, m) > low) sum += specrt__cluster_size(s, m), n--;
    return sum + (int64_t)n * low;
}

/* The most rows that n clusters a level come to, filled up to any topk. */
SPECRT__INTERNAL int32_t specrt__cluster_bound(const specrt__cluster_shared *s, int32_t n) {
    int32_t total = s->starts[s->view.header->n_clusters];
    int64_t least = SPECRT_TREE_MAX_TOPK + specrt__cluster_largest(s, 1);
    int64_t sum = s->per_row ? total : specrt__cluster_largest(s, n);
    if (sum < least) sum = least;
    if (sum > total) sum = total;
    if (s->cap > 0 && sum > s->cap) sum = s->cap;
    return (int32_t)sum + s->always.n_rows;
}

static specrt_status specrt__cluster_share(const specrt__source_request *request, const char *tag,
                                           specrt__source_shared *out, specrt_error *err) {
    const specrt_bundle *bundle = request->bundle;
    const specrt_head *head = request->head;
    const specrt_head_desc *embed = request->desc->embedding;
    const int32_t *options = request->options;
    specrt_clusters c;
    specrt_head_desc embedding;
    int32_t n_always = options[SPECRT__CLUSTER_ALWAYS], most = 0;
    if (!bundle)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                                "%s: needs a bundle with section '%s'; cluster-build builds it",
                                tag, tag);
    SPECRT__TRY(specrt_bundle_clusters(bundle, tag, &c, err));
    SPECRT__TRY(specrt__cluster_check_head(bundle, tag, &c, head, embed, err));
    memset(&embedding, 0, sizeof embedding);
    if (c.header->n_embed > 0)
        SPECRT__TRY(specrt__head_resolve("embedding", embed, &embedding, err));
    if (n_always > head->n_ids) n_always = head->n_ids;
    int32_t first = specrt__cluster_in_place(&c, head);
    specrt__cluster_shared *s = specrt__cluster_allocate(
        &c, head, n_always, n_always + (first < 0 ? c.header->n_members : 0));
    int32_t *always =
        (int32_t *)specrt__base_alloc(&head->compute.env, ((size_t)n_always + 1) * sizeof(int32_t));
    if (!s || !always) {
        specrt__base_free(&head->compute.env, s);
        specrt__base_free(&head->compute.env, always);
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory for %d rows", tag,
                                (int)c.header->n_members);
    }
    n_always = specrt__cluster_always(bundle, head, n_always, always);
    specrt__cluster_pack(s, always, n_always, first);
    specrt__base_free(&head->compute.env, always);
    s->embedding = embedding;
    s->per_row = options[SPECRT__CLUSTER_BEAM] != 0;
    s->cap = options[SPECRT__CLUSTER_CAP];
    for (int32_t t = 0; t < SPECRT_TREE_MAX_STEPS; t++) {
        s->levels[t] =
            specrt__cluster_level(&c, request->size, options[SPECRT__CLUSTER_SCHEDULE], t);
        if (s->levels[t] > SPECRT__CLUSTER_MOST) s->levels[t] = SPECRT__CLUSTER_MOST;
        if (s->levels[t] > most) most = s->levels[t];
    }
    out->data = s;
    out->bound = specrt__cluster_bound(s, most);
    out->more = out->bound - s->always.n_rows;
    out->reads_states = true;
    out->reads_input = c.header->router == SPECRT_ROUTER_DYNASPEC;
    return SPECRT_STATUS_OK;
}

/* --- a session's router --- */

SPECRT__INTERNAL void *specrt__cluster_open(void *opaque, const specrt__source_session *with) {
    const specrt__cluster_shared *shared = (const specrt__cluster_shared *)opaque;
    const specrt_clusters_header *h = shared->view.header;
    size_t k = (size_t)with->n_states, m = (size_t)h->n_clusters;
    size_t n_inputs = k * (size_t)specrt__cluster_inputs(h), n_hidden = k * (size_t)h->n_hidden;
    size_t n_scores = k * m, words = n_inputs + n_hidden + n_scores + 2 * m;
    size_t at_floats = sizeof(specrt__cluster) + 2 * m * sizeof(uint64_t);
    specrt__cluster *s = (specrt__cluster *)specrt__base_alloc(with->env, at_floats + 4 * words);
    if (!s) return NULL;
    memset(s, 0, sizeof *s);
    s->env = *with->env;
    s->shared = shared;
    uint8_t *at = (uint8_t *)(s + 1);
    s->heap = SPECRT__CARVE(uint64_t, &at, m);
    s->takers = SPECRT__CARVE(uint64_t, &at, m);
    s->inputs = SPECRT__CARVE(float, &at, n_inputs);
    s->hidden = SPECRT__CARVE(float, &at, n_hidden);
    s->scores = SPECRT__CARVE(float, &at, n_scores);
    s->totals = SPECRT__CARVE(float, &at, m);
    s->taken = SPECRT__CARVE(int32_t, &at, m);
    return s;
}

/* x / root mean square, in place; zeros stay. */
static void specrt__cluster_rms(float *x, int64_t n) {
    double square = 0;
    for (int64_t j = 0; j < n; j++) square += (double)x[j] * (double)x[j];
    float scale = square > 0 ? (float)(1 / sqrt(square / (double)n)) : 0;
    for (int64_t j = 0; j < n; j++) x[j] *= scale;
}

/* What the router reads at a level; a hidden state that was not told is 0. */
static void specrt__cluster_read(specrt__cluster *s, const specrt__source_level *level) {
    const specrt_clusters_header *h = s->shared->view.header;
    const specrt_head_desc *embedding = &s->shared->embedding;
    bool before = h->router == SPECRT_ROUTER_DYNASPEC;
    const float *states = before ? level->draft_input : level->draft_hidden;
    size_t width = (size_t)h->n_state;
    float *x = s->inputs;
    for (int32_t i = 0; i < level->n; i++) {
        if (h->n_embed > 0) {
            bool is = level->tokens[i] >= 0 && level->tokens[i] < embedding->n_rows;
            const uint8_t *row = (const uint8_t *)embedding->rows +
                                 (is ? (size_t)level->tokens[i] * embedding->row_stride : 0);
            specrt_row_decode(embedding->dtype, row, embedding->n_cols, x);
            specrt__cluster_rms(x, h->n_embed);
            x += h->n_embed;
        }
        if (states)
            memcpy(x, states + (size_t)i * width, width * sizeof *x);
        else
            memset(x, 0, width * sizeof *x);
        if (h->router != SPECRT_ROUTER_CENTROID) specrt__cluster_rms(x, h->n_state);
        x += width;
    }
}

/* out f32 [n, rows of the layer] = layer times x f32 [n, n_in] */
static void specrt__cluster_multiply(const specrt_compute *compute, const specrt_segment *layer,
                                     int64_t n_in, const float *x, int32_t n, float *out) {
    specrt_shortlist product = {compute, layer, 1, layer->n_rows, n_in, NULL};
    specrt_shortlist_logits(&product, x, n, out);
}

/* Scores of all clusters for every row of the level. */
SPECRT__INTERNAL void specrt__cluster_forward(specrt__cluster *s, const specrt_compute *compute,
                                              const specrt__source_level *level) {
    const specrt_clusters_header *h = s->shared->view.header;
    const float *x = s->inputs;
    specrt__cluster_read(s, level);
    if (h->n_hidden > 0) {
        int64_t n = (int64_t)level->n * h->n_hidden;
        specrt__cluster_multiply(compute, &s->shared->w1, specrt__cluster_inputs(h), x, level->n,
                                 s->hidden);
        for (int64_t i = 0; i < n; i++) {
            s->hidden[i] /= 1 + expf(-s->hidden[i]);
            if (h->router == SPECRT_ROUTER_CORAL) s->hidden[i] += x[i];
        }
        x = s->hidden;
    }
    specrt__cluster_multiply(compute, &s->shared->w2, specrt__cluster_width(h), x, level->n,
                             s->scores);
}

/* One row's scores to probabilities, times that of its path. */
static void specrt__cluster_weigh(float *scores, int32_t n, bool softmax, float path) {
    double sum = 0;
    float most = -INFINITY;
    for (int32_t m = 0; m < n && softmax; m++) most = scores[m] > most ? scores[m] : most;
    for (int32_t m = 0; m < n; m++) {
        scores[m] = softmax ? expf(scores[m] - most) : 1 / (1 + expf(-scores[m]));
        sum += softmax ? (double)scores[m] : 0;
    }
    float scale = softmax ? (float)(path / sum) : path;
    for (int32_t m = 0; m < n; m++) scores[m] *= scale;
}

/* --- the choice --- */

static void specrt__cluster_sift(uint64_t *heap, int32_t n, int32_t i) {
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] > heap[child]) child++;
        if (heap[i] >= heap[child]) return;
        uint64_t swap = heap[i];
        heap[i] = heap[child];
        heap[child] = swap;
    }
}

/* A cluster into the level, cut short by the cap; not at all where no more fit. */
static void specrt__cluster_admit(specrt__cluster *s, int32_t m, specrt__cluster_choice *choice) {
    int32_t size = specrt__cluster_size(s->shared, m), cap = s->shared->cap;
    int32_t others = s->taken[m]; /* rows of it that another position or row takes */
    if ((others > 0 && !choice->each) || choice->n == SPECRT__CLUSTER_MOST) return;
    if (cap > 0 && size > cap - choice->n_rows) size = cap - choice->n_rows;
    s->taken[m] = size > others ? size : others;
    choice->n_rows += size;
    choice->n += size > 0 && others == 0;
}

/* Takes the `n` best clusters by probability, ties to the lower, then more while they hold fewer rows
 * than a level proposes.
 *   taker : bit of the row that they are for; 0: for all */
static void specrt__cluster_take(specrt__cluster *s, const float *probs, int32_t n, uint64_t taker,
                                 specrt__cluster_choice *choice) {
    int32_t n_heap = s->shared->view.header->n_clusters, n_rows = 0;
    for (int32_t m = 0; m < n_heap; m++)
        s->heap[m] = (uint64_t)specrt__base_bits(probs[m] > 0 ? probs[m] : 0) << 32 | (uint32_t)~m;
    for (int32_t i = n_heap / 2 - 1; i >= 0; i--) specrt__cluster_sift(s->heap, n_heap, i);
    for (; n_heap > 0 && (n > 0 || n_rows < SPECRT_TREE_MAX_TOPK); n--) {
        int32_t m = (int32_t) ~(uint32_t)s->heap[0];
        s->heap[0] = s->heap[--n_heap];
        specrt__cluster_sift(s->heap, n_heap, 0);
        specrt__cluster_admit(s, m, choice);
        s->takers[m] |= taker;
        n_rows += s->taken[m];
    }
}

/* Adds rows [begin, end) of the stored head. */
static void specrt__cluster_add(const specrt__cluster_shared *shared, int32_t begin, int32_t end,
                                uint64_t takers, specrt__source_routed *out) {
    specrt_segment s = shared->rows;
    s.rows = (const uint8_t *)s.rows + (size_t)begin * s.row_stride;
    s.ids += begin;
    if (s.bias) s.bias += begin;
    s.n_rows = end - begin;
    s.scored_by = takers;
    specrt__source_route(out, &s);
}

/* What always comes and what was taken, clusters side by side for the same rows as one range. */
static void specrt__cluster_add_taken(const specrt__cluster *s, specrt__source_routed *out) {
    const specrt__cluster_shared *shared = s->shared;
    int32_t begin = 0, end = 0;
    uint64_t takers = 0;
    specrt__source_route(out, &shared->always);
    for (int32_t m = 0; m < shared->view.header->n_clusters; m++) {
        if (s->taken[m] == 0) continue;
        if (shared->starts[m] != end || s->takers[m] != takers) {
            specrt__cluster_add(shared, begin, end, takers, out);
            begin = shared->starts[m];
            takers = s->takers[m];
        }
        end = shared->starts[m] + s->taken[m];
    }
    specrt__cluster_add(shared, begin, end, takers, out);
}

/* Which clusters a level takes, and for which of its rows. A block takes for each position what that one
 * would take alone. */
static void specrt__cluster_decide(specrt__cluster *s, const specrt__source_level *level) {
    const specrt_clusters_header *h = s->shared->view.header;
    int32_t n = s->shared->levels[level->level];
    specrt__cluster_choice choice = {0, 0, level->each};
    specrt__cluster_forward(s, &s->shared->head->compute, level);
    memset(s->taken, 0, (size_t)h->n_clusters * sizeof *s->taken);
    memset(s->takers, 0, (size_t)h->n_clusters * sizeof *s->takers);
    memset(s->totals, 0, (size_t)h->n_clusters * sizeof *s->totals);
    for (int32_t i = 0; i < level->n; i++) {
        float *scores = s->scores + (size_t)i * (size_t)h->n_clusters;
        specrt__cluster_weigh(scores, h->n_clusters, h->softmax != 0, expf(level->logprobs[i]));
        if (level->each) {
            choice.n_rows = 0;
            specrt__cluster_take(s, scores, s->shared->levels[i], 0, &choice);
        } else if (s->shared->per_row)
            specrt__cluster_take(s, scores, n, 1ull << i, &choice);
        for (int32_t m = 0; m < h->n_clusters; m++) s->totals[m] += scores[m];
    }
    if (!s->shared->per_row && !level->each) specrt__cluster_take(s, s->totals, n, 0, &choice);
}

static void specrt__cluster_route(void *state, const specrt__source_level *level,
                                  specrt__source_routed *out) {
    specrt__cluster *s = (specrt__cluster *)state;
    specrt__cluster_decide(s, level);
    specrt__cluster_add_taken(s, out);
    out->n_read += (int64_t)(s->shared->w1.row_stride * (size_t)s->shared->w1.n_rows +
                             s->shared->w2.row_stride * (size_t)s->shared->w2.n_rows);
}

static specrt_status specrt__cluster_share_clusters(const specrt__source_request *request,
                                                    specrt__source_shared *out, specrt_error *err) {
    return specrt__cluster_share(request, "cluster", out, err);
}

static specrt_status specrt__cluster_share_groups(const specrt__source_request *request,
                                                  specrt__source_shared *out, specrt_error *err) {
    return specrt__cluster_share(request, "group", out, err);
}

static specrt_status specrt__cluster_share_centroids(const specrt__source_request *request,
                                                     specrt__source_shared *out,
                                                     specrt_error *err) {
    return specrt__cluster_share(request, "centroid", out, err);
}

SPECRT__INTERNAL const specrt__source specrt__cluster_source = {
    /* options = */ specrt__cluster_options,
    /* n_options = */ SPECRT__CLUSTER_OPTIONS,
    /* share = */ specrt__cluster_share_clusters,
    /* unshare = */ specrt__cluster_unshare,
    /* open = */ specrt__cluster_open,
    /* close = */ specrt__cluster_close,
    /* route = */ specrt__cluster_route,
    SPECRT__SOURCE_LEARNS_NOTHING,
    SPECRT__SOURCE_SAVES_NOTHING,
};
SPECRT__INTERNAL const specrt__source specrt__cluster_groups = {
    /* options = */ specrt__cluster_options,
    /* n_options = */ SPECRT__CLUSTER_OPTIONS,
    /* share = */ specrt__cluster_share_groups,
    /* unshare = */ specrt__cluster_unshare,
    /* open = */ specrt__cluster_open,
    /* close = */ specrt__cluster_close,
    /* route = */ specrt__cluster_route,
    SPECRT__SOURCE_LEARNS_NOTHING,
    SPECRT__SOURCE_SAVES_NOTHING,
};
SPECRT__INTERNAL const specrt__source specrt__cluster_centroids = {
    /* options = */ specrt__cluster_options,
    /* n_options = */ SPECRT__CLUSTER_OPTIONS,
    /* share = */ specrt__cluster_share_centroids,
    /* unshare = */ specrt__cluster_unshare,
    /* open = */ specrt__cluster_open,
    /* close = */ specrt__cluster_close,
    /* route = */ specrt__cluster_route,
    SPECRT__SOURCE_LEARNS_NOTHING,
    SPECRT__SOURCE_SAVES_NOTHING,
};
