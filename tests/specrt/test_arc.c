/* test_arc.c : the cache against a published vector, its invariants, and plain lists that are searched;
 * EvoSpec's variant and its events against the procedure written out. */
#include "specrt_tools.h"
#include "core/pool.h"
#include "sources/arc.h"
#include "sources/retrieve.h"
#include "opened.h"

enum { N_IDS = 400 };

static uint64_t state = 3;
static int32_t below(int32_t n) {
    return fixture_below(&state, n);
}

/* Few ids are asked for often, the first ones seldom. */
static int32_t skewed(int32_t n) {
    int32_t x = below(n), y = below(n), z = below(n);
    x = x < y ? x : y;
    return n - 1 - (x < z ? x : z);
}

static specrt__arc *arc_make(int32_t capacity) {
    specrt__arc *a = (specrt__arc *)calloc(1, sizeof *a);
    specrt__arc_init(a, N_IDS, capacity, malloc(specrt__arc_bytes(N_IDS)));
    return a;
}

static void arc_free(specrt__arc *a) {
    free(a->older);
    free(a);
}

/* REPLACE of the paper. @return the token that leaves; -1: none is resident. */
static int32_t arc_replace(specrt__arc *a, int hit) {
    int32_t n = a->sizes[SPECRT__ARC_T1];
    bool first = n > 0 && (n > a->p || (hit == SPECRT__ARC_B2 && n == a->p));
    int from = first || a->sizes[SPECRT__ARC_T2] == 0 ? SPECRT__ARC_T1 : SPECRT__ARC_T2;
    if (a->sizes[from] == 0) return -1;
    int32_t victim = specrt__arc_oldest(a, from);
    specrt__arc_move(a, victim, from == SPECRT__ARC_T1 ? SPECRT__ARC_B1 : SPECRT__ARC_B2);
    return victim;
}

/* A miss of the paper's case IV makes room. @return as replace. */
static int32_t arc_make_room(specrt__arc *a) {
    const int32_t *n = a->sizes;
    int32_t first = n[SPECRT__ARC_T1] + n[SPECRT__ARC_B1];
    int32_t all = first + n[SPECRT__ARC_T2] + n[SPECRT__ARC_B2];
    if (first == a->capacity && n[SPECRT__ARC_T1] == a->capacity) {
        int32_t victim = specrt__arc_oldest(a, SPECRT__ARC_T1);
        specrt__arc_move(a, victim, SPECRT__ARC_NONE);
        return victim;
    }
    if (first < a->capacity && all < a->capacity) return -1;
    if (first == a->capacity)
        specrt__arc_move(a, specrt__arc_oldest(a, SPECRT__ARC_B1), SPECRT__ARC_NONE);
    else if (all == 2 * a->capacity)
        specrt__arc_move(a, specrt__arc_oldest(a, SPECRT__ARC_B2), SPECRT__ARC_NONE);
    return arc_replace(a, SPECRT__ARC_NONE);
}

/* The paper's request. @return the token that leaves the cache for it, or -1. */
static int32_t arc_request(specrt__arc *a, int32_t id) {
    int list = a->lists[id];
    int32_t victim = -1;
    if (list == SPECRT__ARC_NONE) {
        victim = arc_make_room(a);
    } else if (list == SPECRT__ARC_B1 || list == SPECRT__ARC_B2) {
        specrt__arc_adapt(a, list);
        victim = arc_replace(a, list);
    }
    specrt__arc_move(a, id, list == SPECRT__ARC_NONE ? SPECRT__ARC_T1 : SPECRT__ARC_T2);
    return victim;
}

/* "T1 T2 B1 B2", each oldest first. */
static const char *arc_text(const specrt__arc *a) {
    static char text[512];
    size_t n = 0;
    for (int list = SPECRT__ARC_T1; list <= SPECRT__ARC_B2; list++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "[");
        for (int32_t id = specrt__arc_oldest(a, list); id < a->n_ids; id = a->newer[id])
            n += (size_t)snprintf(text + n, sizeof text - n, " %d", (int)id);
        n += (size_t)snprintf(text + n, sizeof text - n, "]");
    }
    snprintf(text + n, sizeof text - n, " p=%g", a->p);
    return text;
}

TEST(vector, "fourteen requests of a cache of three") {
    static const int32_t requests[] = {1, 2, 3, 1, 2, 4, 3, 5, 4, 1, 6, 5, 3, 2};
    static const char *const after[] = {NULL,
                                        NULL,
                                        NULL,
                                        NULL,
                                        NULL,
                                        "[ 4][ 1 2][ 3][] p=0",
                                        "[ 4][ 2 3][][ 1] p=1",
                                        "[ 4 5][ 3][][ 1 2] p=1",
                                        "[ 5][ 3 4][][ 1 2] p=1",
                                        "[][ 3 4 1][ 5][ 2] p=0",
                                        "[ 6][ 4 1][ 5][ 2 3] p=0",
                                        "[ 6][ 1 5][][ 2 3 4] p=2",
                                        "[][ 1 5 3][ 6][ 2 4] p=1",
                                        "[][ 5 3 2][ 6][ 4 1] p=0"};
    specrt__arc *a = arc_make(3);
    for (int i = 0; i < 14; i++) {
        arc_request(a, requests[i]);
        if (after[i]) CHECK_STR(arc_text(a), after[i]);
    }
    arc_free(a);
}

TEST(invariants, "sizes and residency over random requests") {
    for (int32_t c = 1; c < 40; c += 3) {
        specrt__arc *a = arc_make(c);
        bool full = false;
        for (int i = 0; i < 5000; i++) {
            int32_t id = skewed(4 * c + 3), resident = 0;
            bool was = specrt__arc_resident(a, id);
            int32_t victim = arc_request(a, id);
            const int32_t *n = a->sizes;
            CHECK(specrt__arc_resident(a, id) && (!was || victim < 0));
            CHECK(victim < 0 || !specrt__arc_resident(a, victim));
            CHECK(n[1] + n[2] <= c && n[1] + n[3] <= c && n[1] + n[2] + n[3] + n[4] <= 2 * c);
            CHECK(n[1] + n[2] == c || n[3] + n[4] == 0);
            CHECK(!full || n[1] + n[2] == c);
            CHECK(a->p >= 0 && a->p <= c);
            full = full || n[1] + n[2] == c;
            for (int32_t j = 0; j < N_IDS; j++) resident += specrt__arc_resident(a, j);
            CHECK_INT(resident, n[1] + n[2]);
        }
        arc_free(a);
    }
}

/* --- EvoSpec's variant, by lists that are searched --- */

typedef struct oracle {
    int32_t capacity, now, n_events, n_blocked;
    double p;
    int32_t ids[5][2 * N_IDS], n[5], births[N_IDS];
    bool seen[N_IDS]; /* in this event */
} oracle;

static int oracle_list(const oracle *o, int32_t id) {
    for (int list = 1; list < 5; list++)
        for (int32_t i = 0; i < o->n[list]; i++)
            if (o->ids[list][i] == id) return list;
    return 0;
}

static void oracle_remove(oracle *o, int32_t id) {
    int list = oracle_list(o, id);
    int32_t at = 0;
    if (list == 0) return;
    while (o->ids[list][at] != id) at++;
    memmove(&o->ids[list][at], &o->ids[list][at + 1],
            (size_t)(--o->n[list] - at) * sizeof(int32_t));
}

static void oracle_put(oracle *o, int32_t id, int list) {
    oracle_remove(o, id);
    o->ids[list][o->n[list]++] = id;
}

static int32_t oracle_victim(const oracle *o, int list) {
    for (int32_t i = 0; i < o->n[list]; i++)
        if (o->now - o->births[o->ids[list][i]] >= 8) return o->ids[list][i];
    return -1;
}

/* Steps 2c to 2e of the event procedure. @return whether it came in. */
static bool oracle_insert(oracle *o, int32_t id) {
    int list = oracle_list(o, id);
    double b1 = o->n[3], b2 = o->n[4];
    if (list == 3 && o->n_events > 50) o->p = fmin(o->capacity, o->p + fmax(1, b2 / b1));
    if (list == 4 && o->n_events > 50) o->p = fmax(0, o->p - fmax(1, b1 / b2));
    if (o->n[1] + o->n[2] == o->capacity) {
        int from = o->n[1] > o->p ? 1 : 2;
        if (oracle_victim(o, from) < 0) from = 3 - from;
        int32_t victim = oracle_victim(o, from);
        if (victim < 0) return o->n_blocked++, false;
        oracle_put(o, victim, from + 2);
        if (o->n[from + 2] > o->capacity) oracle_remove(o, o->ids[from + 2][0]);
    }
    oracle_put(o, id, list ? 2 : 1);
    o->births[id] = o->now;
    return true;
}

static void oracle_offer(oracle *o, int32_t id, const bool *fixed, int32_t *n_inserted) {
    if (fixed[id] || o->seen[id]) return;
    o->seen[id] = true;
    int list = oracle_list(o, id);
    if (list == 1 || list == 2)
        oracle_put(o, id, 2);
    else if (*n_inserted < 32)
        *n_inserted += oracle_insert(o, id);
}

/* --- events --- */

enum { N_COLS = 8, N_FIXED = 60, DEGREE = 12 };

typedef struct world {
    float rows[N_IDS * N_COLS];
    bool fixed[N_IDS];
    specrt_head *head;
    specrt__pool *pool;
    specrt__retrieve *source;
    specrt_cograph_header graph;
    uint32_t offsets[N_IDS + 1], n_rule[N_IDS];
    int32_t successors[N_IDS * DEGREE];
    float counts[N_IDS * DEGREE];
} world;

static void world_make(world *w, int32_t size, bool graph, bool keep) {
    specrt_env env = {0};
    w->head = bind_rows(NULL, w->rows, N_IDS, N_COLS);
    w->pool = specrt__pool_create(w->head, N_IDS, size, &env);
    REQUIRE(w->pool);
    for (int32_t i = 0; i < N_IDS; i++) {
        w->fixed[i] = i >= N_IDS - N_FIXED;
        if (w->fixed[i]) specrt__pool_mark(w->pool, i, SPECRT__POOL_FIXED);
        w->offsets[i + 1] = w->offsets[i] + DEGREE;
        w->n_rule[i] = (uint32_t)below(DEGREE);
        for (int32_t k = 0; k < DEGREE; k++) w->successors[i * DEGREE + k] = below(N_IDS);
    }
    w->graph.n_vocab = N_IDS;
    specrt__retrieve_params params = {.size = size, .keep = keep};
    if (graph) params.graph.header = &w->graph;
    params.graph.offsets = w->offsets;
    params.graph.n_rule = w->n_rule;
    params.graph.ids = w->successors;
    params.graph.counts = w->counts;
    w->source = specrt__retrieve_create(w->pool, &params, N_IDS, &env);
    REQUIRE(w->source);
}

static void observe(world *w, const specrt_verdict *verdict, const specrt_target_rows *rows) {
    specrt_session_stats stats = {0};
    specrt__source_cycle cycle = {NULL, verdict, rows, &stats};
    specrt__retrieve_observe(w->source, &cycle);
}

static void world_free(world *w) {
    specrt__retrieve_close(w->source);
    specrt__pool_free(w->pool);
    specrt_head_close(w->head);
}

/* What the event does, step by step. */
static void oracle_event(oracle *o, const world *w, const specrt_verdict *v, const int32_t *top,
                         int32_t n_top, bool graph) {
    int32_t token = v->tokens[v->n - 1], seeds[16], n_seeds = 0, n_inserted = 0;
    int list = oracle_list(o, token);
    o->now++;
    for (int32_t i = 0; i < v->n; i++) {
        int at = oracle_list(o, v->tokens[i]);
        if (at == 1 || at == 2) oracle_put(o, v->tokens[i], 2);
    }
    if (w->fixed[token] || list == 1 || list == 2) return;
    o->n_events++;
    memset(o->seen, 0, sizeof o->seen);
    bool among = false;
    for (int32_t i = 0; i < n_top; i++) seeds[n_seeds++] = top[i], among = among || top[i] == token;
    if (!among) seeds[n_seeds++] = token;
    oracle_offer(o, token, w->fixed, &n_inserted);
    for (int32_t i = 0; i < n_top; i++) oracle_offer(o, top[i], w->fixed, &n_inserted);
    for (int32_t k = 0; k < 8 && graph; k++)
        for (int32_t i = 0; i < n_seeds; i++)
            if ((uint32_t)k < w->n_rule[seeds[i]])
                oracle_offer(o, w->successors[seeds[i] * DEGREE + k], w->fixed, &n_inserted);
}

static void check_same(const world *w, const oracle *o) {
    const specrt__retrieve *r = w->source;
    CHECK_NEAR(r->arc.p, o->p, 1e-9);
    CHECK_INT(r->n_events, o->n_events);
    CHECK_INT(r->n_blocked, o->n_blocked);
    for (int list = 1; list < 5; list++) {
        int32_t id = specrt__arc_oldest(&r->arc, list);
        CHECK_INT(r->arc.sizes[list], o->n[list]);
        for (int32_t i = 0; i < o->n[list]; i++, id = r->arc.newer[id])
            CHECK_INT(id, o->ids[list][i]);
    }
    for (int32_t id = 0; id < N_IDS; id++) {
        bool resident = oracle_list(o, id) == 1 || oracle_list(o, id) == 2;
        CHECK_INT(specrt__pool_member(w->pool, id), resident || w->fixed[id]);
    }
}

static void run_events(int32_t size, int n_cycles, bool graph, bool every_cycle) {
    static world w;
    static oracle o;
    memset(&o, 0, sizeof o);
    world_make(&w, size, graph, false);
    o.capacity = size;
    o.p = size / 2.0;
    for (int i = 0; i < n_cycles; i++) {
        specrt_verdict v = {.n = 1 + below(4)};
        int32_t top[10], n_top = below(11);
        for (int32_t j = 0; j < v.n; j++) v.tokens[j] = skewed(N_IDS - N_FIXED / 2);
        if (every_cycle)
            while (specrt__pool_member(w.pool, v.tokens[v.n - 1])) v.tokens[v.n - 1] = below(N_IDS);
        for (int32_t j = 0; j < n_top; j++) top[j] = below(N_IDS);
        specrt_target_rows rows = {.ids = top, .k = n_top};
        observe(&w, &v, &rows);
        specrt__pool_sync(w.pool);
        oracle_event(&o, &w, &v, top, n_top, graph);
        check_same(&w, &o);
        if (w.source->n_events <= 50) CHECK_NEAR(w.source->arc.p, size / 2.0, 0);
    }
    if (size >= 256 && every_cycle) CHECK_INT(w.source->n_blocked, 0);
    world_free(&w);
}

TEST(events, "EvoSpec's events against lists that are searched") {
    run_events(64, 300, true, false);
    run_events(64, 300, false, false);
    run_events(16, 300, true, true);
    run_events(1, 100, true, false);
}

/* 32 insertions times 8 cycles is 256: an event in every cycle never waits for room. */
TEST(never_blocks, "an event in every cycle at 256") {
    run_events(256, 200, true, true);
}

/* Logits give the events that ids give; a new sequence forgets, unless it shall not. */
TEST(sequences, "logits or ids, forgetting and keeping") {
    static world a, b;
    static float logits[N_IDS];
    world_make(&a, 64, true, false);
    state = 77;
    world_make(&b, 64, false, true);
    for (int i = 0; i < 40; i++) {
        specrt_verdict v = {.n = 1, .tokens = {below(N_IDS - N_FIXED)}};
        int32_t top[10];
        for (int j = 0; j < N_IDS; j++) logits[j] = fixture_normal(&state);
        CHECK_INT(specrt_logits_topk(logits, N_IDS, 10, top), 10);
        specrt_target_rows by_logits = {.logits = logits}, by_ids = {.ids = top, .k = 10};
        observe(&a, &v, &by_logits);
        a.source->params.graph.header = NULL;
        observe(&b, &v, &by_ids);
        observe(&b, &v, NULL);
    }
    CHECK(a.source->arc.sizes[SPECRT__ARC_T1] > 0 && b.source->arc.sizes[SPECRT__ARC_T1] > 0);
    specrt__pool_reset(a.pool);
    specrt__pool_reset(b.pool);
    specrt__retrieve_begin(a.source);
    specrt__retrieve_begin(b.source);
    for (int32_t id = 0; id < N_IDS - N_FIXED; id++) {
        CHECK(!specrt__pool_member(a.pool, id));
        CHECK_INT(specrt__pool_member(b.pool, id), specrt__arc_resident(&b.source->arc, id));
    }
    world_free(&a);
    world_free(&b);
}
