/* bench_many.c : drafting for many sequences at once, over recordings of published models: what a level of
 * the head takes one by one, by specrt_session_expand_batch(), and by that with a stock of rows that
 * sequences hold together. Sessions learn from recorded cycles as they
 * were, and score the drafter's recorded states; every way must draft the same tokens. One thread; the ways
 * take turns, medians of cycles.
 *   bench_many MODEL BUNDLE TRACE...   MODEL: the one whose head drafts
 * `make benchmarks NAMES=many` records answers and runs it. */
#include "specrt.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/curve.h"
#include "base/measure.h"
#include "model/model.h"

enum {
    MAX_SEQUENCES = 512,
    MAX_BATCH = 64,
    N_LEVELS = 4,
    WARM = 12, /* cycles before any is timed */
    MIN_CYCLES = 2,
    MAX_CYCLES = 40,
    N_TOP = 8,          /* of the target's best tokens that windows are told */
    FLUSHED = 48 << 20, /* bytes that a drafter's pass reads between two levels */
};

/* The models and their recordings. */
typedef struct cycle {
    int32_t n, n_nodes;
    int32_t *tokens, *nodes, *tree_tokens, *tree_parents, *best; /* best [n_nodes, N_TOP] */
    float *hidden;                                               /* [n_hidden, d] */
    int32_t n_hidden;
} cycle;

typedef struct sequence {
    int32_t n_prompt, n_cycles, most_cycles;
    int32_t *prompt, *best; /* [n_prompt], [n_prompt, N_TOP] */
    cycle *cycles;
} sequence;

typedef struct bench {
    model drafter;
    specrt_bundle *bundle;
    specrt_head *head;
    int32_t d, n_sequences;
    sequence sequences[MAX_SEQUENCES];
} bench;

static void need(specrt_status status, const specrt_error *err) {
    if (status == SPECRT_STATUS_OK) return;
    fprintf(stderr, "bench_many: %s\n", err->msg);
    exit(1);
}

static void *room(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    if (p) return p;
    fprintf(stderr, "bench_many: out of memory\n");
    exit(1);
}

/* ---- recordings ---- */

static int32_t *copy_ids(const int32_t *ids, int32_t n) {
    int32_t *out = (int32_t *)room((size_t)n, sizeof *out);
    if (n > 0) memcpy(out, ids, (size_t)n * sizeof *out);
    return out;
}

/* The first N_TOP of each row of n_top. */
static int32_t *copy_best(const int32_t *ids, int32_t n, int32_t n_top) {
    int32_t *out = (int32_t *)room((size_t)n * N_TOP, sizeof *out);
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < N_TOP; j++)
            out[i * N_TOP + j] = ids && j < n_top ? ids[i * n_top + j] : -1;
    return out;
}

static void keep_cycle(sequence *s, const specrt_trace_info *info, const specrt_trace_record *r) {
    if (s->n_cycles == s->most_cycles) {
        s->most_cycles = 2 * s->most_cycles + 64;
        s->cycles = (cycle *)realloc(s->cycles, (size_t)s->most_cycles * sizeof *s->cycles);
        if (!s->cycles) exit(1);
    }
    cycle *c = &s->cycles[s->n_cycles++];
    *c = (cycle){.n = r->n, .n_nodes = r->n_nodes};
    c->tokens = copy_ids(r->tokens, r->n);
    c->nodes = copy_ids(r->nodes, r->n);
    c->tree_tokens = copy_ids(r->tree_tokens, r->n_nodes);
    c->tree_parents = copy_ids(r->tree_parents, r->n_nodes);
    c->best = copy_best(r->tree_top_ids, r->n_nodes, info->n_tree_top);
    c->hidden = (float *)room((size_t)r->n * (size_t)info->d_draft, sizeof(float));
    for (int32_t i = 0; i < r->n && r->draft_hidden; i++) {
        float *row = c->hidden + (int64_t)c->n_hidden * info->d_draft;
        specrt_row_decode(SPECRT_DTYPE_F16, r->draft_hidden + (int64_t)i * info->d_draft,
                          info->d_draft, row);
        c->n_hidden += row[0] == row[0]; /* NaN: no pass */
    }
}

static void read_trace(bench *b, const char *path) {
    specrt_trace_reader *reader;
    specrt_trace_record r;
    specrt_error err;
    sequence *s = NULL;
    need(specrt_trace_open(path, NULL, &reader, &err), &err);
    const specrt_trace_info *info = specrt_trace_get_info(reader);
    need(
        specrt_trace_check(reader, specrt_bundle_ident(b->bundle)->tokenizer_sha256, 0, b->d, &err),
        &err);
    for (;;) {
        need(specrt_trace_read(reader, &r, &err), &err);
        if (r.kind == SPECRT_TRACE_END) break;
        if (r.kind == SPECRT_TRACE_CYCLE && s && r.n_nodes > 0) keep_cycle(s, info, &r);
        if (r.kind != SPECRT_TRACE_SEQUENCE || b->n_sequences == MAX_SEQUENCES) continue;
        s = &b->sequences[b->n_sequences++];
        s->n_prompt = r.n;
        s->prompt = copy_ids(r.tokens, r.n);
        s->best = copy_best(r.top_ids, r.n, info->n_top);
    }
    specrt_trace_close(reader);
}

/* Answers by turns of the recordings, so that any few are of all domains. */
static void read_all(bench *b, char **paths, int n_paths) {
    static sequence taken[MAX_SEQUENCES];
    int32_t first[MAX_SEQUENCES + 1] = {0}, n = 0;
    for (int i = 0; i < n_paths && i < MAX_SEQUENCES; i++) {
        read_trace(b, paths[i]);
        first[i + 1] = b->n_sequences;
    }
    for (int32_t k = 0; k < b->n_sequences; k++)
        for (int i = 0; i < n_paths; i++) {
            int32_t at = first[i] + k;
            if (at < first[i + 1] && b->sequences[at].n_cycles >= 2) taken[n++] = b->sequences[at];
        }
    memcpy(b->sequences, taken, sizeof taken);
    b->n_sequences = n;
    if (n > 0) return;
    fprintf(stderr, "bench_many: no recorded answer has two cycles\n");
    exit(1);
}

static void open_all(bench *b, const char *path, const char *bundle, char **traces, int n) {
    specrt_head_desc desc;
    specrt_error err;
    need(sl_model_open(path, &b->drafter, &err), &err);
    need(sl_model_head(&b->drafter, NULL, &desc, NULL, &err), &err);
    need(specrt_bundle_open(bundle, NULL, &b->bundle, &err), &err);
    need(specrt_head_bind(b->bundle, &desc, NULL, &b->head, &err), &err);
    b->d = (int32_t)desc.n_cols;
    read_all(b, traces, n);
    printf("%d recorded answers; head %s [%lld, %lld]\n", (int)b->n_sequences,
           specrt_dtype_name(desc.dtype), (long long)desc.n_rows, (long long)desc.n_cols);
}

/* ---- sessions that follow recordings ---- */

/* A conversation: answers one after another, as long as they last those of no other player. */
typedef struct player {
    const bench *b;
    const sequence *s;
    specrt_session *session;
    int32_t at, step, cycle; /* of the answers, to the next of them, and in this one */
} player;

static void begin(player *p, int32_t at) {
    const sequence *s = &p->b->sequences[at];
    specrt_target_rows rows = {.ids = s->best, .k = N_TOP};
    p->s = s;
    p->at = at;
    p->cycle = 0;
    specrt_session_prefill(p->session, s->prompt, s->n_prompt, &rows);
    specrt_session_start(p->session, s->cycles[0].tree_tokens[0]);
}

/* The recorded cycle, whatever the session drafted itself. */
static void observe(player *p) {
    const cycle *c = &p->s->cycles[p->cycle++];
    static const float logprobs[SPECRT_TREE_MAX_NODES];
    int32_t depths[SPECRT_TREE_MAX_NODES];
    uint64_t masks[SPECRT_TREE_MAX_NODES];
    specrt_error err = {.msg = "a recorded cycle was refused"};
    specrt_target_rows rows = {.ids = c->best, .k = N_TOP};
    specrt_verdict verdict = {.n = c->n};
    for (int32_t i = 0; i < c->n_nodes; i++) {
        int32_t parent = c->tree_parents[i];
        depths[i] = parent < 0 ? 0 : depths[parent] + 1;
        masks[i] = (parent < 0 ? 0 : masks[parent]) | (uint64_t)1 << i;
    }
    memcpy(verdict.tokens, c->tokens, (size_t)c->n * sizeof *c->tokens);
    memcpy(verdict.nodes, c->nodes, (size_t)c->n * sizeof *c->nodes);
    specrt_draft draft = {c->n_nodes, c->tree_tokens, c->tree_parents, depths, masks, logprobs,
                          NULL};
    need(specrt_session_observe(p->session, &draft, &verdict, &rows), &err);
    if (p->cycle < p->s->n_cycles) return;
    need(specrt_session_begin(p->session, SPECRT_BEGIN_TURN, 0), &err);
    begin(p, (p->at + p->step) % p->b->n_sequences);
}

static void open_players(const bench *b, const specrt_policy *policy, specrt_stock *stock,
                         player *players, int32_t n, int32_t n_cycles) {
    specrt_session_params params = {.tree = {N_LEVELS, 1, N_LEVELS + 1}, .stock = stock};
    specrt_error err;
    for (int32_t i = 0; i < n; i++) {
        need(specrt_session_create(policy, &params, NULL, &players[i].session, &err), &err);
        players[i].b = b;
        players[i].step = n;
        begin(&players[i], i % b->n_sequences);
        for (int32_t k = 0; k < n_cycles; k++) observe(&players[i]);
    }
}

static void close_players(player *players, int32_t n) {
    for (int32_t i = 0; i < n; i++) specrt_session_close(players[i].session);
}

static specrt_policy *open_policy(const bench *b, const char *text) {
    specrt_policy_desc desc = {.text = text};
    specrt_policy *policy;
    specrt_error err;
    need(specrt_policy_create(b->bundle, b->head, &desc, &policy, &err), &err);
    return policy;
}

/* ---- speed ---- */

/* One by one; all at once; all at once from a stock without, and with shared products. */
enum { ALONE, BATCH, STOCK, SHARED, N_WAYS };
static const char *const way_names[N_WAYS] = {"one by one", "batch", "stock", "shared"};

typedef struct race {
    specrt_policy *policy;
    specrt_stock *stocks[N_WAYS];
    player players[N_WAYS][MAX_BATCH];
    int32_t n, n_cycles;
    int n_ways; /* 2 where nothing is packed, and so nothing can be held together */
    double head[N_WAYS][MAX_CYCLES], update[N_WAYS][MAX_CYCLES];
    int64_t n_hits, n_drafted;
} race;

static volatile uint64_t flushed;

/* As much as a drafter's pass would push out of the caches. */
static void flush(void) {
    static uint64_t *bytes;
    uint64_t sum = 0;
    if (!bytes) {
        bytes = (uint64_t *)room(1, FLUSHED);
        memset(bytes, 1, FLUSHED);
    }
    for (size_t i = 0; i < FLUSHED / sizeof *bytes; i += 8) sum += bytes[i];
    flushed += sum;
}

/* A level of all sequences, whose states are those recorded there, or the last one. */
static double expand(race *r, int way, int32_t level, int32_t d, specrt_beam *beams) {
    static float *hidden;
    specrt_session *sessions[MAX_BATCH];
    specrt_error err = {.msg = "a pass was refused"};
    if (!hidden) hidden = (float *)room(MAX_BATCH * (size_t)d, sizeof *hidden);
    for (int32_t i = 0; i < r->n; i++) {
        const player *p = &r->players[way][i];
        const cycle *c = &p->s->cycles[p->cycle];
        int32_t at = level < c->n_hidden ? level : c->n_hidden - 1;
        sessions[i] = p->session;
        if (at >= 0)
            memcpy(hidden + (size_t)i * (size_t)d, c->hidden + (size_t)at * (size_t)d,
                   (size_t)d * sizeof *hidden);
    }
    flush();
    double start = sl_measure_seconds();
    if (way != ALONE)
        need(specrt_session_expand_batch(sessions, r->n, hidden, NULL, r->n, beams), &err);
    for (int32_t i = 0; i < r->n && way == ALONE; i++)
        need(specrt_session_expand(sessions[i], hidden + (size_t)i * (size_t)d, NULL, 1, &beams[i]),
             &err);
    return sl_measure_seconds() - start;
}

/* What was drafted, and by which chances. */
static void check_same(const race *r, int way) {
    for (int32_t i = 0; i < r->n; i++) {
        specrt_draft draft[2];
        specrt_session_finish(r->players[0][i].session, &draft[0]);
        specrt_session_finish(r->players[way][i].session, &draft[1]);
        size_t n = (size_t)draft[0].n;
        if (draft[0].n == draft[1].n &&
            memcmp(draft[0].tokens, draft[1].tokens, n * sizeof(int32_t)) == 0 &&
            memcmp(draft[0].logprobs, draft[1].logprobs, n * sizeof(float)) == 0)
            continue;
        fprintf(stderr,
                "bench_many: '%s', %s: expected the tokens of one by one, sequence %d has "
                "others\n",
                specrt_policy_get_info(r->policy)->text, way_names[way], (int)i);
        exit(1);
    }
}

static void count_hits(race *r) {
    for (int32_t i = 0; i < r->n; i++) {
        const player *p = &r->players[0][i];
        const cycle *c = &p->s->cycles[p->cycle];
        specrt_draft draft;
        specrt_session_finish(p->session, &draft);
        for (int32_t k = 0; k + 1 < draft.n && k < c->n && k < c->n_hidden; k++) {
            r->n_hits += draft.tokens[k + 1] == c->tokens[k];
            r->n_drafted++;
        }
    }
}

static void run_cycle(race *r, int32_t d) {
    specrt_beam beams[MAX_BATCH];
    int32_t at = r->n_cycles++;
    for (int32_t level = 0; level < N_LEVELS; level++)
        for (int k = 0; k < r->n_ways; k++) {
            int way = (k + at) % r->n_ways;
            r->head[way][at] += expand(r, way, level, d, beams);
        }
    for (int way = 1; way < r->n_ways; way++) check_same(r, way);
    count_hits(r);
    for (int k = 0; k < r->n_ways; k++) {
        int way = (k + at) % r->n_ways;
        double start = sl_measure_seconds();
        for (int32_t i = 0; i < r->n; i++) observe(&r->players[way][i]);
        r->update[way][at] = sl_measure_seconds() - start;
    }
}

static void open_race(bench *b, race *r, const char *text, int32_t n) {
    static double dear[MAX_BATCH]; /* by which shared products never pay */
    specrt_stock_params never = {.costs = dear, .n_costs = MAX_BATCH};
    specrt_error err;
    for (int i = 0; i < MAX_BATCH; i++) dear[i] = 1e3 * (i + 1) * (i + 1);
    memset(r, 0, sizeof *r);
    r->n = n;
    r->policy = open_policy(b, text);
    need(specrt_stock_create(b->head, &never, NULL, &r->stocks[STOCK], &err), &err);
    need(specrt_stock_create(b->head, NULL, NULL, &r->stocks[SHARED], &err), &err);
    r->n_ways = specrt_policy_get_info(r->policy)->needs_prompt_logits || strstr(text, "retrieve")
                    ? N_WAYS
                    : STOCK;
    for (int way = 0; way < r->n_ways; way++)
        open_players(b, r->policy, r->stocks[way], r->players[way], n, WARM);
}

static void close_race(race *r) {
    for (int way = 0; way < r->n_ways; way++) close_players(r->players[way], r->n);
    for (int way = 0; way < N_WAYS; way++) specrt_stock_close(r->stocks[way]);
    specrt_policy_close(r->policy);
}

static void report(race *r) {
    specrt_stock_stats stats;
    specrt_session_stats own;
    double rows = 0;
    specrt_stock_get_stats(r->stocks[SHARED], &stats);
    for (int32_t i = 0; i < r->n; i++) {
        specrt_session_get_stats(r->players[BATCH][i].session, &own);
        rows += (double)own.n_rows / (double)own.n_cycles / r->n;
    }
    printf("%-36s %2d sequences: %6.0f rows; stock %6d rows for %7lld, %5d shared; "
           "acceptance %.3f; %2d cycles\n",
           specrt_policy_get_info(r->policy)->text, r->n, rows, (int)stats.n_held,
           (long long)stats.n_holds, (int)stats.n_shared,
           (double)r->n_hits / (double)(r->n_drafted ? r->n_drafted : 1), r->n_cycles);
    for (int way = 0; way < r->n_ways; way++) {
        double head = sl_median_of(r->head[way], r->n_cycles),
               update = sl_median_of(r->update[way], r->n_cycles);
        double n = (double)N_LEVELS * r->n;
        printf(
            "    %-10s %10.1f us a level, %9.1f us learning a cycle: %9.0f tokens drafted a second "
            "of head, %9.0f with learning\n",
            way_names[way], 1e6 * head / N_LEVELS, 1e6 * update, n / head, n / (head + update));
    }
    fflush(stdout);
}

/* What a row takes with several states, in products with one: what decides what is shared. */
static void print_curve(const bench *b) {
    static const int32_t states[] = {1, 2, 4, 8, 16, 32, 64};
    enum { N_ROWS = 3072, N_SIZES = 7, N_ROUNDS = 15 };
    double times[N_SIZES][N_ROUNDS];
    specrt_policy *list;
    specrt_policy_desc desc = {.text = "static:3072"};
    specrt_error err;
    need(specrt_policy_create(b->bundle, b->head, &desc, &list, &err), &err);
    const specrt_active *active = specrt_policy_get_info(list)->active;
    float *hidden = (float *)room(MAX_BATCH * (size_t)b->d, sizeof *hidden);
    float *logits = (float *)room((size_t)MAX_BATCH * N_ROWS, sizeof *logits);
    for (int64_t i = 0; i < MAX_BATCH * (int64_t)b->d; i++) hidden[i] = (float)(i % 17) / 17;
    for (int round = 0; round < N_ROUNDS; round++)
        for (int k = 0; k < N_SIZES; k++) {
            flush();
            double start = sl_measure_seconds();
            specrt_active_logits(active, hidden, states[k], logits);
            times[k][round] = sl_measure_seconds() - start;
        }
    printf("%d rows with several states, in products with one:", (int)N_ROWS);
    for (int k = 0; k < N_SIZES; k++)
        printf(" %d: %.2f", (int)states[k],
               sl_median_of(times[k], N_ROUNDS) / sl_median_of(times[0], N_ROUNDS));
    putchar('\n');
    free(hidden), free(logits);
    specrt_policy_close(list);
}

/* Until a few seconds are spent. */
static void run_policy(bench *b, const char *text, int32_t n) {
    static race r;
    open_race(b, &r, text, n);
    double began = sl_measure_seconds();
    while (r.n_cycles < MAX_CYCLES && (r.n_cycles < MIN_CYCLES || sl_measure_seconds() - began < 4))
        run_cycle(&r, b->d);
    report(&r);
    close_race(&r);
}

static void run_speed(bench *b) {
    static const char *const policies[] = {"full", "static:32768", "microspec",
                                           "static:512+window+successor:256",
                                           "static:2048+retrieve"};
    print_curve(b);
    for (int p = 0; p < 5; p++)
        for (int32_t n = 1; n <= MAX_BATCH; n *= 4) run_policy(b, policies[p], n);
}

int main(int argc, char **argv) {
    static bench b;
    if (argc < 4) {
        printf("skipped: bench_many MODEL BUNDLE TRACE... (make benchmarks NAMES=many)\n");
        return 0;
    }
    open_all(&b, argv[1], argv[2], argv + 3, argc - 3);
    run_speed(&b);
    specrt_head_close(b.head);
    specrt_bundle_close(b.bundle);
    sl_model_close(&b.drafter);
    return 0;
}
