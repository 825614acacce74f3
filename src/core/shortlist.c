/* shortlist.c : owns the products and the ranking over a list of segments, the packing of rows into one, and
 * which sources want which token. Refuses nothing of the world: its inputs were checked when they were
 * made. Work is cut into blocks that do not depend on who runs them. */
#include "core/shortlist.h"
#include "core/simd.h"
#include "core/head.h"

/* task(arg, i) for every i in [0, n), on the application's threads if it lends any. */
SPECRT__INTERNAL void specrt__shortlist_run(const specrt_compute *compute, int64_t n,
                                            void (*task)(void *arg, int64_t i), void *arg) {
    const specrt_env *env = &compute->env;
    if (env->parallel_for && n > 1) {
        env->parallel_for(env->user, n, task, arg);
        return;
    }
    for (int64_t i = 0; i < n; i++) task(arg, i);
}

/* --- logits --- */

/* Rows [begin, end) of a segment for each run of hidden rows that score it. */
SPECRT__INTERNAL void specrt__shortlist_multiply(const specrt__shortlist_product *p,
                                                 const specrt_segment *s, int32_t begin,
                                                 int32_t end, float *logits) {
    const specrt_shortlist *shortlist = p->shortlist;
    size_t stride = (size_t)shortlist->n_rows;
    for (int32_t h = 0, n; h < p->n; h += n) {
        bool scored = specrt__shortlist_scored(s, h);
        float *out = logits + (size_t)h * stride;
        for (n = 1; h + n < p->n && specrt__shortlist_scored(s, h + n) == scored;) n++;
        if (scored)
            specrt__head_products(shortlist->compute->kernels, s, begin, end, shortlist->n_cols,
                                  p->hidden + h * shortlist->n_cols, n, out, stride);
        for (int32_t i = 0; i < n && scored && shortlist->head; i++)
            specrt__head_shape(&shortlist->head->desc, end - begin,
                               out + (size_t)i * stride + (size_t)begin);
        for (int32_t i = 0; i < n && !scored; i++)
            for (int32_t r = begin; r < end; r++) out[(size_t)i * stride + (size_t)r] = -INFINITY;
    }
}

/* Block i, counted through the segments from the first on. */
static void specrt__shortlist_product_task(void *arg, int64_t i) {
    const specrt__shortlist_product *p = (const specrt__shortlist_product *)arg;
    const specrt_shortlist *shortlist = p->shortlist;
    const specrt_segment *s = shortlist->segments + p->first;
    float *logits = p->logits;
    for (int32_t j = 0; j < p->first; j++) logits += shortlist->segments[j].n_rows;
    for (; i >= specrt__shortlist_blocks(s->n_rows); s++) {
        i -= specrt__shortlist_blocks(s->n_rows);
        logits += s->n_rows;
    }
    int32_t begin = (int32_t)i * SPECRT__SHORTLIST_BLOCK, left = s->n_rows - begin;
    int32_t end = begin + (left < SPECRT__SHORTLIST_BLOCK ? left : SPECRT__SHORTLIST_BLOCK);
    specrt__shortlist_multiply(p, s, begin, end, logits);
}

/* Each token is scored once: what an earlier segment covers does not count again. */
static void specrt__shortlist_mask(const specrt_shortlist *shortlist, int32_t n, float *logits) {
    for (int32_t i = 0; i < shortlist->n_segments; i++) {
        const specrt_segment *s = &shortlist->segments[i];
        for (int32_t row = 0; row < n; row++)
            for (int32_t j = 0; j < s->n_masked; j++)
                logits[(int64_t)row * shortlist->n_rows + s->masked[j]] = -INFINITY;
        logits += s->n_rows;
    }
}

/* The logits of the segments from `first` on, beside those that are there already; then all masks. */
SPECRT__INTERNAL void specrt__shortlist_complete(const specrt_shortlist *shortlist, int32_t first,
                                                 const float *hidden, int32_t n, float *logits) {
    specrt__shortlist_product p = {shortlist, hidden, n, logits, first};
    int64_t n_blocks = 0;
    for (int32_t i = first; i < shortlist->n_segments; i++)
        n_blocks += specrt__shortlist_blocks(shortlist->segments[i].n_rows);
    specrt__shortlist_run(shortlist->compute, n_blocks, specrt__shortlist_product_task, &p);
    specrt__shortlist_mask(shortlist, n, logits);
}

SPECRT_API specrt_status specrt_shortlist_logits(const specrt_shortlist *shortlist,
                                                 const float *hidden, int32_t n, float *logits) {
    if (!shortlist || !hidden || !logits || n < 1) return SPECRT_STATUS_BAD_ARG;
    specrt__shortlist_complete(shortlist, 0, hidden, n, logits);
    return SPECRT_STATUS_OK;
}

/* --- logits of rows that several sequences share --- */

/* The rows of a segment from `begin` on, for products, which look at no ids or masks. */
static specrt_segment specrt__shortlist_rest(const specrt_segment *s, int32_t begin) {
    specrt_segment rest = *s;
    rest.n_rows -= begin;
    if (s->places)
        rest.places += begin;
    else
        rest.rows = (const uint8_t *)s->rows + (size_t)begin * s->row_stride;
    if (s->bias && !s->places) rest.bias += begin;
    return rest;
}

SPECRT__INTERNAL void specrt__shortlist_shared_task(void *arg, int64_t i) {
    const specrt__shortlist_shared *p = (const specrt__shortlist_shared *)arg;
    int32_t begin = (int32_t)i * SPECRT__SHORTLIST_BLOCK,
            left = p->shortlist->segments->n_rows - begin;
    int32_t n_rows = left < SPECRT__SHORTLIST_BLOCK ? left : SPECRT__SHORTLIST_BLOCK;
    float tile[(int)SPECRT__SHORTLIST_SHARED * (int)SPECRT__SHORTLIST_BLOCK];
    specrt_segment rest = specrt__shortlist_rest(p->shortlist->segments, begin);
    specrt_shortlist tiled = *p->shortlist;
    specrt__shortlist_product product = {&tiled, p->hidden, p->n, tile, 0};
    tiled.n_rows = n_rows;
    specrt__shortlist_multiply(&product, &rest, 0, n_rows, tile);
    for (int32_t h = 0; h < p->n; h++)
        memcpy(p->logits[h] + begin, tile + (size_t)h * (size_t)n_rows,
               (size_t)n_rows * sizeof *tile);
}

/* --- the best k --- */

/* Moves the k greatest of n distinct keys to the front. They come in no order, so which half one goes to
 * cannot be foretold: no branch asks. */
SPECRT__INTERNAL void specrt__shortlist_select(uint64_t *keys, int32_t n, int32_t k) {
    int32_t begin = 0, end = n;
    while (begin < k && k < end) {
        int32_t middle = begin + (end - begin) / 2, last = end - 1, front = begin;
        uint64_t a = keys[begin], b = keys[middle], c = keys[last];
        int32_t at = a < b ? (b < c   ? middle
                              : a < c ? last
                                      : begin)
                           : (a < c   ? begin
                              : b < c ? last
                                      : middle);
        uint64_t pivot = keys[at];
        keys[at] = keys[last];
        for (int32_t i = begin; i < last; i++) {
            uint64_t key = keys[i];
            keys[i] = keys[front];
            keys[front] = key;
            front += key > pivot;
        }
        keys[last] = keys[front];
        keys[front] = pivot;
        if (k <= front)
            end = front;
        else
            begin = front + 1;
    }
}

/* The k greatest keys of a row, descending. */
static void specrt__shortlist_best(const specrt_shortlist *shortlist, const float *logits,
                                   int32_t k, uint64_t *best) {
    const specrt__simd_kernels *kernels = shortlist->compute->kernels;
    int32_t n_best = 0;
    float worst = -INFINITY; /* logit of best[k - 1] once there are k */
    for (int32_t i = 0; i < shortlist->n_segments; i++) {
        const specrt_segment *s = &shortlist->segments[i];
        for (int32_t r = 0; r < s->n_rows; r++) {
            if (r % SPECRT__SIMD_SCAN == 0 && n_best == k && worst == worst) {
                r += (int32_t)kernels->find(logits + r, s->n_rows - r, worst);
                if (r >= s->n_rows) break;
            }
            if (logits[r] < worst) continue;
            uint64_t key = specrt__shortlist_key(logits[r], s->ids[r]);
            if (n_best == k && key < best[k - 1]) continue;
            int32_t at = n_best < k ? n_best++ : k - 1;
            for (; at > 0 && best[at - 1] < key; at--) best[at] = best[at - 1];
            best[at] = key;
            if (n_best == k) worst = specrt__shortlist_key_logit(best[k - 1]);
        }
        logits += s->n_rows;
    }
}

typedef struct specrt__shortlist_ranking {
    const specrt_shortlist *shortlist;
    const float *logits;
    int32_t k;
    int32_t *ids;
    float *logprobs, *best; /* either may be NULL */
} specrt__shortlist_ranking;

/* How many of n are equal to x: what the sum of exponentials comes to when x is infinite. */
static double specrt__shortlist_count(const float *logits, int32_t n, float x) {
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) count += logits[i] == x;
    return count;
}

static void specrt__shortlist_ranking_task(void *arg, int64_t i) {
    const specrt__shortlist_ranking *r = (const specrt__shortlist_ranking *)arg;
    int32_t n = r->shortlist->n_rows;
    const float *logits = r->logits + i * n;
    uint64_t best[SPECRT__SHORTLIST_MAX_K];
    specrt__shortlist_best(r->shortlist, logits, r->k, best);
    for (int32_t j = 0; j < r->k; j++) {
        r->ids[i * r->k + j] = specrt__shortlist_key_id(best[j]);
        if (r->best) r->best[i * r->k + j] = specrt__shortlist_key_logit(best[j]);
    }
    if (!r->logprobs) return;
    float max = specrt__shortlist_key_logit(best[0]);
    double total = fabsf(max) <= FLT_MAX ? r->shortlist->compute->kernels->sum_exp(logits, n, max)
                                         : specrt__shortlist_count(logits, n, max);
    double log_total = log(total);
    for (int32_t j = 0; j < r->k; j++) {
        float logit = specrt__shortlist_key_logit(best[j]);
        double logprob = (logit == max ? 0.0 : (double)logit - max) - log_total;
        r->logprobs[i * r->k + j] = logit > -INFINITY ? (float)logprob : -INFINITY;
    }
}

/* As specrt_shortlist_topk(); best : f32 [n, k] the logits themselves. Either may be NULL. */
SPECRT__INTERNAL specrt_status specrt__shortlist_rank(const specrt_shortlist *shortlist,
                                                      const float *logits, int32_t n, int32_t k,
                                                      int32_t *ids, float *logprobs, float *best) {
    specrt__shortlist_ranking r = {shortlist, logits, k, ids, logprobs, best};
    if (k < 1 || k > shortlist->n_rows || k > SPECRT__SHORTLIST_MAX_K) return SPECRT_STATUS_BAD_ARG;
    specrt__shortlist_run(shortlist->compute, n, specrt__shortlist_ranking_task, &r);
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_shortlist_topk(const specrt_shortlist *shortlist,
                                               const float *logits, int32_t n, int32_t k,
                                               int32_t *ids, float *logprobs) {
    if (!shortlist || !logits || !ids || !logprobs || n < 1) return SPECRT_STATUS_BAD_ARG;
    return specrt__shortlist_rank(shortlist, logits, n, k, ids, logprobs, NULL);
}

/* --- the best few of a whole vocabulary --- */

/* Ids come in ascending order, so an equal one that comes later ranks lower. */
SPECRT_API int32_t specrt_logits_topk(const float *logits, int32_t n, int32_t k, int32_t *ids) {
    const specrt__simd_kernels *kernels = specrt__simd_choose();
    float best[SPECRT_LOGITS_MAX_K], bound = -INFINITY;
    int32_t n_best = 0;
    if (!logits || !ids || k < 1 || k > SPECRT_LOGITS_MAX_K) return 0;
    for (int32_t i = 0; i < n; i++) {
        if (i % SPECRT__SIMD_SCAN == 0) i += (int32_t)kernels->find(logits + i, n - i, bound);
        if (i >= n) break;
        if (!(logits[i] > bound)) continue;
        int32_t at = n_best < k ? n_best++ : k - 1;
        for (; at > 0 && best[at - 1] < logits[i]; at--) {
            best[at] = best[at - 1];
            ids[at] = ids[at - 1];
        }
        best[at] = logits[i];
        ids[at] = i;
        if (n_best == k) bound = best[k - 1];
    }
    return n_best;
}

SPECRT__INTERNAL int32_t specrt__shortlist_argmax(const float *logits, int32_t n) {
    const specrt__simd_kernels *kernels = specrt__simd_choose();
    float bound = -INFINITY;
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++) {
        if (i % SPECRT__SIMD_SCAN == 0) i += (int32_t)kernels->find(logits + i, n - i, bound);
        if (i >= n) break;
        if (logits[i] != logits[i]) return -1; /* find() stops at NaN too */
        if (logits[i] > bound) bound = logits[i], best = i;
    }
    return best;
}

SPECRT__INTERNAL int32_t specrt__shortlist_target_best(const specrt_target_rows *rows, int32_t i,
                                                       int32_t n_logits, int32_t k, int32_t *ids) {
    if (!rows) return 0;
    if (rows->logits)
        return specrt_logits_topk(rows->logits + (int64_t)i * n_logits, n_logits, k, ids);
    int32_t n = rows->ids && rows->k > 0 ? (rows->k < k ? rows->k : k) : 0;
    if (n > 0) memcpy(ids, rows->ids + (int64_t)i * rows->k, (size_t)n * sizeof *ids);
    return n;
}
