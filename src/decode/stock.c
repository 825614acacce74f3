/* stock.c : owns the making of a stock, and the products of several sequences with its rows: a row that
 * enough of them hold is multiplied for all of their states at once, what a sequence does not hold of
 * that is left aside, and its other rows are multiplied for it alone. Refuses heads other than its own.
 * Which rows are shared changes no logit, for a row's product has the same bits whatever is multiplied
 * beside it. */
#include "decode/stock.h"
#include "core/base.h"
#include "core/head.h"
#include "core/shortlist.h"
#include "core/pool.h"

enum {
    SPECRT__STOCK_MAX_SHARED = 16384, /* rows: 4 MiB of logits */
    SPECRT__STOCK_MAX_COSTS = SPECRT__SHORTLIST_SHARED
};

/* A state beyond the first, in products of the first, and what shared products must save of all: to look for
 * them and to copy their logits takes time too. See docs/methods/sums.md, "Many sequences". */
static const double specrt__stock_more = 1.0 / 3, specrt__stock_gain = 1.0 / 16;

/* --- making --- */

static specrt_status specrt__stock_check(const specrt_head *head, const specrt_stock_params *params,
                                         specrt_error *err) {
    if (params->n_rows < 0 || params->n_rows > SPECRT_MAX_VOCAB)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "stock: n_rows: expected 0 (the head's %lld) to %d, found %d",
                                (long long)head->desc.n_rows, SPECRT_MAX_VOCAB,
                                (int)params->n_rows);
    if (params->n_costs < 0 || params->n_costs > SPECRT__STOCK_MAX_COSTS ||
        (params->n_costs > 0 && !params->costs))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "stock: n_costs: expected 0 to %d, and costs where not 0, found %d",
                                SPECRT__STOCK_MAX_COSTS, (int)params->n_costs);
    for (int32_t i = 0; i < params->n_costs; i++)
        if (!(params->costs[i] > 0 && params->costs[i] < INFINITY))
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "stock: costs: %d: expected a time above 0, found %g", (int)i,
                                    params->costs[i]);
    return SPECRT_STATUS_OK;
}

/* Rows are not touched: a system that backs memory as it is used has but those that were held. */
static specrt_stock *specrt__stock_allocate(const specrt_head *head, int32_t n_rows,
                                            int32_t n_costs, const specrt_env *env) {
    size_t n = (size_t)n_rows, most = SPECRT__STOCK_MAX_SHARED, n_shared = n < most ? n : most;
    size_t stride = specrt_row_bytes(specrt__head_packed_dtype(head), head->desc.n_cols);
    size_t n_words = (size_t)head->n_ids + (head->desc.bias ? 6 : 5) * n + n_shared +
                     (size_t)SPECRT__SHORTLIST_SHARED * n_shared;
    uint64_t bytes, extra = sizeof(specrt_stock) + 8 * (uint64_t)n_costs + 4 * (uint64_t)n_words;
    if (!specrt__base_mul(stride, n, &bytes) || !specrt__base_add(bytes, extra + 64, &bytes))
        return NULL;
    specrt_stock *s = (specrt_stock *)specrt__base_alloc(env, bytes);
    if (!s) return NULL;
    SPECRT__CLEAR(s, 1);
    uint8_t *at = (uint8_t *)(s + 1);
    s->costs = SPECRT__CARVE(double, &at, (size_t)n_costs);
    s->place_of = SPECRT__CARVE(int32_t, &at, (size_t)head->n_ids);
    s->ids = SPECRT__CARVE(int32_t, &at, n);
    s->n_holders = SPECRT__CARVE(int32_t, &at, n);
    s->vacant = SPECRT__CARVE(int32_t, &at, n);
    s->shared_at = SPECRT__CARVE(int32_t, &at, n);
    s->shared = SPECRT__CARVE(int32_t, &at, n_shared);
    s->logits = SPECRT__CARVE(float, &at, SPECRT__SHORTLIST_SHARED *n_shared);
    if (head->desc.bias) s->bias = SPECRT__CARVE(float, &at, n);
    s->n_of_batch = SPECRT__CARVE(int32_t, &at, n);
    s->rows = (uint8_t *)(uintptr_t)specrt__base_align((uintptr_t)at, 64);
    s->row_stride = stride;
    s->n_rows = n_rows;
    s->max_shared = (int32_t)n_shared;
    return s;
}

SPECRT_API specrt_status specrt_stock_create(const specrt_head *head,
                                             const specrt_stock_params *params,
                                             const specrt_env *env, specrt_stock **out,
                                             specrt_error *err) {
    specrt_stock_params defaults;
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(head);
    SPECRT__CLEAR(&defaults, 1);
    if (!params) params = &defaults;
    if (!env) env = &head->compute.env;
    SPECRT__TRY(specrt__stock_check(head, params, err));
    int32_t most = (int32_t)head->desc.n_rows, n_rows = params->n_rows;
    if (n_rows == 0 || n_rows > most) n_rows = most;
    specrt_stock *s = specrt__stock_allocate(head, n_rows, params->n_costs, env);
    if (!s)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                "stock: out of memory for %d rows of %llu bytes", (int)n_rows,
                                (unsigned long long)specrt_row_bytes(
                                    specrt__head_packed_dtype(head), head->desc.n_cols));
    s->env = *env;
    s->head = head;
    s->n_costs = params->n_costs;
    for (int32_t i = 0; i < s->n_costs; i++) s->costs[i] = params->costs[i];
    memset(s->place_of, 0xff, (size_t)head->n_ids * sizeof *s->place_of);
    memset(s->shared_at, 0xff, (size_t)n_rows * sizeof *s->shared_at);
    for (int32_t i = 0; i < n_rows; i++) {
        s->n_holders[i] = 0;
        s->vacant[i] = n_rows - 1 - i;
    }
    *out = s;
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_stock_close(specrt_stock *stock) {
    if (!stock) return;
    specrt_env env = stock->env;
    specrt__base_free(&env, stock);
}

SPECRT_API void specrt_stock_get_stats(const specrt_stock *stock, specrt_stock_stats *out) {
    if (out) memset(out, 0, sizeof *out);
    if (!stock || !out) return;
    out->n_rows = stock->n_rows;
    out->n_held = stock->n_held;
    out->n_sessions = stock->n_sessions;
    out->n_shared = stock->n_shared;
    out->n_packed = stock->n_packed;
    for (int32_t i = 0; i < stock->n_rows; i++) out->n_holds += stock->n_holders[i];
}

/* Whether one more session may hold so many rows: whatever it wants, there is a place then. */
SPECRT__INTERNAL specrt_status specrt__stock_check_room(const specrt_stock *stock,
                                                        const specrt_head *head, int32_t n_rows,
                                                        specrt_error *err) {
    int32_t n_left = stock->n_rows - stock->n_promised;
    if (stock->head != head)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: stock: expected one of the policy's head, found another "
                                "head's");
    if (n_rows <= n_left || stock->n_rows >= head->desc.n_rows) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "session: stock: expected room for the %d rows that the policy packs "
                            "at most, found %d of %d not promised to %d other sessions; "
                            "n_rows 0 is always enough",
                            (int)n_rows, (int)(n_left > 0 ? n_left : 0), (int)stock->n_rows,
                            (int)stock->n_sessions);
}

/* --- which rows are shared --- */

/* What a row takes with n states, of any unit. */
static double specrt__stock_cost(const specrt_stock *stock, int32_t n) {
    if (stock->n_costs == 0) return 1 + specrt__stock_more * (n - 1);
    if (n <= stock->n_costs) return stock->costs[n - 1];
    return stock->costs[stock->n_costs - 1] * n / stock->n_costs;
}

/* The fewest of n sequences, which have n_states in all, by whom a row must be held for one product with
 * all states to be cheaper than one for each of them; n + 1: it never is. */
static int32_t specrt__stock_least(const specrt_stock *stock, int32_t n, int32_t n_states) {
    double together = specrt__stock_cost(stock, n_states);
    double alone = specrt__stock_cost(stock, (n_states + n / 2) / n);
    int32_t least = 2;
    while (least <= n && least * alone <= together) least++;
    return least;
}

/* How many of a batch hold each row. */
static void specrt__stock_count(specrt_stock *s, const specrt__stock_member *members, int32_t n) {
    memset(s->n_of_batch, 0, (size_t)s->n_used * sizeof *s->n_of_batch);
    for (int32_t i = 0; i < n; i++)
        for (int32_t r = 0; r < members[i].segment->n_rows; r++)
            s->n_of_batch[members[i].segment->places[r]]++;
}

/* The rows that so many hold; none, unless all of them save enough. Chosen anew when what is held changes:
 * another batch of the same sequences' rows has the same logits by these. */
static void specrt__stock_choose(specrt_stock *s, const specrt__stock_member *members, int32_t n,
                                 int32_t n_states, int32_t least) {
    double together = specrt__stock_cost(s, n_states), all = 0, saved = 0;
    double alone = specrt__stock_cost(s, (n_states + n / 2) / n);
    if (s->chosen == s->version && s->chosen_least == least) return;
    for (int32_t i = 0; i < s->n_shared; i++) s->shared_at[s->shared[i]] = -1;
    s->n_shared = 0;
    specrt__stock_count(s, members, n);
    for (int32_t place = 0; place < s->n_used; place++) {
        all += s->n_of_batch[place] * alone;
        if (s->n_of_batch[place] < least || s->n_shared == s->max_shared) continue;
        saved += s->n_of_batch[place] * alone - together;
        s->shared[s->n_shared++] = place;
    }
    if (saved < specrt__stock_gain * all) s->n_shared = 0;
    for (int32_t i = 0; i < s->n_shared; i++) s->shared_at[s->shared[i]] = i;
    s->chosen = s->version;
    s->chosen_least = least;
}

/* --- products --- */

typedef struct specrt__stock_batch {
    specrt_stock *stock;
    const specrt__stock_member *members;
    int32_t n, n_states;
    const float *hidden; /* f32 [n_states, n_cols] of all */
} specrt__stock_batch;

/* Shared rows of block i, for all states. */
static void specrt__stock_shared_task(void *arg, int64_t i) {
    const specrt__stock_batch *b = (const specrt__stock_batch *)arg;
    const specrt_stock *s = b->stock;
    specrt_segment rows = *b->members->segment;
    specrt_shortlist shortlist = *b->members->shortlist;
    int32_t begin = (int32_t)i * SPECRT__SHORTLIST_BLOCK, left = s->n_shared - begin;
    int32_t end = begin + (left < SPECRT__SHORTLIST_BLOCK ? left : SPECRT__SHORTLIST_BLOCK);
    rows.places = s->shared;
    rows.n_rows = s->n_shared;
    shortlist.n_rows = s->max_shared;
    specrt__shortlist_product product = {&shortlist, b->hidden, b->n_states, s->logits, 0};
    specrt__shortlist_multiply(&product, &rows, begin, end, s->logits);
}

/* Takes what is shared of the rows [begin, end). @return how many are left, places and rows of which are
 * listed. */
static int32_t specrt__stock_take(const specrt_stock *s, const specrt__stock_member *m,
                                  int32_t begin, int32_t end, int32_t *places, int32_t *rows) {
    size_t stride = (size_t)m->shortlist->n_rows, shared_stride = (size_t)s->max_shared;
    const float *shared = s->logits + (size_t)m->first * shared_stride;
    int32_t n_left = 0;
    for (int32_t r = begin; r < end; r++) {
        int32_t place = m->segment->places[r], at = s->shared_at[place];
        if (at < 0) places[n_left] = place, rows[n_left++] = r;
        for (int32_t h = 0; h < m->n && at >= 0; h++)
            m->logits[(size_t)h * stride + (size_t)r] =
                shared[(size_t)h * shared_stride + (size_t)at];
    }
    return n_left;
}

/* A block of a member's rows: shared ones are copied, others multiplied. */
static void specrt__stock_member_task(void *arg, int64_t i) {
    const specrt__stock_batch *b = (const specrt__stock_batch *)arg;
    const specrt__stock_member *m = b->members + b->n - 1;
    float tile[(int)SPECRT__SHORTLIST_SHARED * (int)SPECRT__SHORTLIST_BLOCK];
    int32_t places[SPECRT__SHORTLIST_BLOCK], rows[SPECRT__SHORTLIST_BLOCK];
    while (m->block > i) m--;
    int32_t begin = (int32_t)(i - m->block) * SPECRT__SHORTLIST_BLOCK;
    int32_t left = m->segment->n_rows - begin;
    int32_t end = begin + (left < SPECRT__SHORTLIST_BLOCK ? left : SPECRT__SHORTLIST_BLOCK);
    int32_t n = specrt__stock_take(b->stock, m, begin, end, places, rows);
    if (n == 0) return;
    specrt_segment rest = *m->segment;
    specrt_shortlist shortlist = *m->shortlist;
    rest.places = places;
    rest.n_rows = shortlist.n_rows = n;
    specrt__shortlist_product product = {&shortlist, m->hidden, m->n, tile, 0};
    specrt__shortlist_multiply(&product, &rest, 0, n, tile);
    for (int32_t h = 0; h < m->n; h++)
        for (int32_t j = 0; j < n; j++)
            m->logits[h * m->shortlist->n_rows + rows[j]] = tile[h * n + j];
}

/* Logits of the members' rows in the stock, where shared products are cheaper. hidden: of all, one after
 * another, at most SPECRT__SHORTLIST_SHARED. @return false: they are not, and nothing was done. */
SPECRT__INTERNAL bool specrt__stock_multiply(specrt_stock *stock,
                                             const specrt__stock_member *members, int32_t n,
                                             const float *hidden, int32_t n_states) {
    specrt__stock_batch b = {stock, members, n, n_states, hidden};
    const specrt__stock_member *last = &members[n - 1];
    int32_t least = specrt__stock_least(stock, n, n_states);
    if (least > n) return false;
    specrt__stock_choose(stock, members, n, n_states, least);
    if (stock->n_shared == 0) return false;
    const specrt_compute *compute = members->shortlist->compute;
    specrt__shortlist_run(compute, specrt__shortlist_blocks(stock->n_shared),
                          specrt__stock_shared_task, &b);
    specrt__shortlist_run(compute, last->block + specrt__shortlist_blocks(last->segment->n_rows),
                          specrt__stock_member_task, &b);
    return true;
}
