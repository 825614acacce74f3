/* graph.c : see graph.h. Rows are sorted and cut on all threads, and put together in order. */
#include "graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/order.h"

/* Counts below it are sorted by counting, the few others by comparing. */
enum { SMALL_COUNTS = 256 };

typedef struct edge {
    uint64_t count;
    int32_t id;
} edge;

/* What take() hands to put() for a row, before so many edges. */
typedef struct row_head {
    uint64_t total;
    int32_t source, n, n_rule;
} row_head;

typedef struct making {
    const graph_rule *rule;
    graph *g;
} making;

static int by_count(const void *a, const void *b) {
    const edge *x = (const edge *)a, *y = (const edge *)b;
    int order = (x->count < y->count) - (x->count > y->count);
    return order ? order : sl_order_i32(&x->id, &y->id);
}

/* The edges of a row with at least min_count, by count descending, ties by lower id, into `out`, which
 * has room for all. @return how many. */
static int32_t sort_row(const pairs_row *row, uint64_t min_count, edge *out) {
    int32_t places[SMALL_COUNTS + 1] = {0}, n = 0;
    for (int32_t i = 0; i < row->n; i++) {
        uint64_t count = row->counts[i];
        if (count >= min_count) places[count < SMALL_COUNTS ? count : SMALL_COUNTS]++;
    }
    int32_t n_large = places[SMALL_COUNTS];
    for (int c = SMALL_COUNTS; c >= 0; c--) {
        int32_t size = places[c];
        places[c] = n;
        n += size;
    }
    for (int32_t i = 0; i < row->n; i++) {
        uint64_t count = row->counts[i];
        if (count < min_count) continue;
        out[places[count < SMALL_COUNTS ? count : SMALL_COUNTS]++] = (edge){count, row->ids[i]};
    }
    qsort(out, (size_t)n_large, sizeof *out, by_count);
    return n;
}

static int32_t count_rule(const graph_rule *rule, const edge *edges, int32_t n, uint64_t total) {
    int32_t kept = 0;
    if (n > rule->rule_degree) n = (int32_t)rule->rule_degree;
    while (kept < n && edges[kept].count >= (uint64_t)rule->rule_count &&
           (double)edges[kept].count >= rule->rule_share * (double)total)
        kept++;
    return kept;
}

static specrt_status take_row(void *arg, const pairs_row *row, pairs_bytes *out,
                              specrt_error *err) {
    const graph_rule *rule = ((const making *)arg)->rule;
    row_head head = {.source = row->source};
    uint8_t *at;
    if (!sl_pairs_bytes_more(out, sizeof head + (size_t)row->n * sizeof(edge), &at))
        return sl_error_no_memory_for(err, "the graph");
    edge *edges = (edge *)(void *)(at + sizeof head);
    for (int32_t i = 0; i < row->n; i++) head.total += row->counts[i];
    head.n = sort_row(row, (uint64_t)rule->min_count, edges);
    if (head.n > rule->max_degree) head.n = (int32_t)rule->max_degree;
    head.n_rule = count_rule(rule, edges, head.n, head.total);
    memcpy(at, &head, sizeof head);
    out->n += sizeof head + (size_t)head.n * sizeof(edge);
    return SPECRT_STATUS_OK;
}

static specrt_status reserve_edges(graph *g, size_t n, specrt_error *err) {
    size_t need = (size_t)g->header.n_edges + n, capacity = need + need / 2;
    if (need > UINT32_MAX)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "graph: expected at most 4294967295 edges, found more; give fewer "
                                "--successors or a larger --successor-count");
    if (need <= g->capacity) return SPECRT_STATUS_OK;
    int32_t *grown_ids = (int32_t *)realloc(g->ids, capacity * sizeof *grown_ids);
    if (grown_ids) g->ids = grown_ids;
    float *grown_counts = (float *)realloc(g->counts, capacity * sizeof *grown_counts);
    if (grown_counts) g->counts = grown_counts;
    if (!grown_ids || !grown_counts) return sl_error_no_memory_for(err, "the graph");
    g->capacity = capacity;
    return SPECRT_STATUS_OK;
}

/* Tokens without pairs have empty rows. */
static void end_rows(graph *g, int32_t n_rows) {
    while (g->n_rows < n_rows) g->offsets[++g->n_rows] = (uint32_t)g->header.n_edges;
}

static specrt_status put_row(graph *g, const row_head *head, const edge *edges, specrt_error *err) {
    TRY(reserve_edges(g, (size_t)head->n, err));
    end_rows(g, head->source);
    g->totals[head->source] = head->total;
    g->n_rule[head->source] = (uint32_t)head->n_rule;
    g->n_rule_edges += (uint64_t)head->n_rule;
    g->header.n_pairs += head->total;
    g->header.n_sources += head->n > 0;
    for (int32_t i = 0; i < head->n; i++) {
        g->ids[g->header.n_edges] = edges[i].id;
        g->counts[g->header.n_edges++] = (float)edges[i].count;
    }
    return SPECRT_STATUS_OK;
}

static specrt_status put_rows(void *arg, const void *bytes, size_t n, specrt_error *err) {
    const uint8_t *p = (const uint8_t *)bytes, *end = p + n;
    while (p < end) {
        row_head head;
        memcpy(&head, p, sizeof head);
        p += sizeof head;
        TRY(put_row(((making *)arg)->g, &head, (const edge *)(const void *)p, err));
        p += (size_t)head.n * sizeof(edge);
    }
    return SPECRT_STATUS_OK;
}

/* Where counts are beyond 2^24, f32 makes equals of some that differ: ties go by id again. */
static void settle_ties(graph *g) {
    for (int32_t u = 0; u < g->header.n_vocab; u++)
        for (uint32_t i = g->offsets[u]; i < g->offsets[u + 1]; i++)
            for (uint32_t j = i;
                 j > g->offsets[u] && g->counts[j] == g->counts[j - 1] && g->ids[j] < g->ids[j - 1];
                 j--) {
                int32_t id = g->ids[j];
                g->ids[j] = g->ids[j - 1];
                g->ids[j - 1] = id;
            }
}

static specrt_status check_edges(const graph *g, const graph_rule *rule, specrt_error *err) {
    if (g->header.n_pairs == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "corpus: expected at least two adjacent tokens, found none; "
                                "--messages all counts prompts, too");
    if (g->header.n_edges > 0) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "graph: expected an edge, found that none of %" PRIu64
                            " pairs occurs %" PRId64
                            " times; give more text or a smaller --successor-count",
                            g->header.n_pairs, rule->min_count);
}

specrt_status graph_create(pairs *p, int threads, const graph_rule *rule, int32_t n_vocab,
                           uint64_t n_tokens, graph *out, specrt_error *err) {
    making m = {rule, out};
    size_t n = (size_t)n_vocab;
    *out = (graph){.header = {.n_vocab = n_vocab,
                              .n_tokens = n_tokens,
                              .max_degree = (int32_t)rule->max_degree,
                              .min_count = (int32_t)rule->min_count,
                              .rule_degree = (int32_t)rule->rule_degree,
                              .rule_count = (int32_t)rule->rule_count,
                              .rule_share = (float)rule->rule_share}};
    if (out->header.max_degree > n_vocab) out->header.max_degree = n_vocab;
    TRY(sl_new(&out->totals, n, sizeof *out->totals, "the graph", err));
    TRY(sl_new(&out->offsets, n + 1, sizeof *out->offsets, "the graph", err));
    TRY(sl_new(&out->n_rule, n, sizeof *out->n_rule, "the graph", err));
    TRY(sl_pairs_each(p, threads, take_row, put_rows, &m, err));
    end_rows(out, n_vocab);
    settle_ties(out);
    return check_edges(out, rule, err);
}

void graph_free(graph *g) {
    free(g->totals);
    free(g->offsets);
    free(g->n_rule);
    free(g->ids);
    free(g->counts);
    *g = (graph){0};
}

void *graph_bytes(const graph *g, size_t *n) {
    size_t n_vocab = (size_t)g->header.n_vocab, n_edges = (size_t)g->header.n_edges;
    *n = sizeof g->header + 16 * n_vocab + 4 + 8 * n_edges;
    uint8_t *bytes = (uint8_t *)malloc(*n), *p = bytes;
    if (!bytes) return NULL;
    const struct {
        const void *data;
        size_t n;
    } parts[] = {{&g->header, sizeof g->header},  {g->totals, 8 * n_vocab},
                 {g->offsets, 4 * (n_vocab + 1)}, {g->n_rule, 4 * n_vocab},
                 {g->ids, 4 * n_edges},           {g->counts, 4 * n_edges}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        memcpy(p, parts[i].data, parts[i].n);
        p += parts[i].n;
    }
    return bytes;
}

double graph_share(const graph *g, int32_t k, double *rows) {
    double covered = 0, total = (double)g->header.n_pairs;
    *rows = 0;
    for (int32_t u = 0; u < g->header.n_vocab; u++) {
        uint32_t begin = g->offsets[u], end = g->offsets[u + 1];
        if (end - begin > (uint32_t)k) end = begin + (uint32_t)k;
        for (uint32_t i = begin; i < end; i++) covered += (double)g->counts[i];
        *rows += (double)g->totals[u] / total * (end - begin);
    }
    return covered / total;
}
