/* test_window.c : MicroSpec's window against lists and slices written out, over long histories. */
#include "specrt.h"
#include "core/pool.h"
#include "sources/window.h"
#include "fixture.h"
#include "test.h"

enum { N_IDS = 250, N_LOGITS = 260, N_RANKED = 60, MAX_STREAM = 200000, INVALID = 17 };

static uint64_t random_state = 4711;
static int32_t random_below(int32_t n) {
    return fixture_below(&random_state, n);
}

/* --- the oracle: the whole stream, and a list that is searched from end to end --- */

typedef struct oracle {
    specrt__window_params params;
    int32_t stream[MAX_STREAM], n_stream;
    int32_t list[N_IDS], n_list;        /* unique_*: oldest first */
    int32_t set[MAX_STREAM / 4], n_set; /* stream: elements of the set so far */
    int32_t seed[SPECRT_LOGITS_MAX_K], n_seed;
} oracle;

static int32_t find(const int32_t *ids, int32_t n, int32_t id) {
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id) return i;
    return -1;
}

static void oracle_remove(oracle *o, int32_t at) {
    memmove(o->list + at, o->list + at + 1, (size_t)(--o->n_list - at) * sizeof *o->list);
}

static void oracle_push(oracle *o, int32_t id) {
    if (id < 0 || id >= N_IDS || id == INVALID) return;
    if (o->params.mode == SPECRT__WINDOW_STREAM) {
        REQUIRE(o->n_stream < MAX_STREAM);
        o->stream[o->n_stream++] = id;
        return;
    }
    int32_t at = find(o->list, o->n_list, id);
    if (at >= 0) oracle_remove(o, at);
    if (o->n_list == o->params.size) oracle_remove(o, 0);
    o->list[o->n_list++] = id;
}

static void oracle_add(oracle *o, int32_t id) {
    if (o->params.mode != SPECRT__WINDOW_STREAM)
        oracle_push(o, id);
    else
        o->set[o->n_set++] = id;
}

static void oracle_flush(oracle *o) {
    for (int32_t i = 0; i < o->n_set; i++)
        if (find(o->set + i + 1, o->n_set - i - 1, o->set[i]) < 0) oracle_push(o, o->set[i]);
    o->n_set = 0;
}

/* The k best of a row by sorting. */
static const float *sort_row;
static int by_logit(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (sort_row[x] != sort_row[y]) return sort_row[x] > sort_row[y] ? -1 : 1;
    return x - y;
}

static int32_t oracle_best(const specrt_target_rows *rows, int32_t row, int32_t k, int32_t *out) {
    int32_t ids[N_LOGITS], n = 0;
    if (!rows || (!rows->logits && !rows->ids)) return 0;
    if (!rows->logits) {
        for (; n < k && n < rows->k; n++) out[n] = rows->ids[row * rows->k + n];
        return n;
    }
    sort_row = rows->logits + row * N_LOGITS;
    for (int32_t i = 0; i < N_LOGITS; i++) ids[i] = i;
    qsort(ids, N_LOGITS, sizeof *ids, by_logit);
    for (; n < k; n++) out[n] = ids[n];
    return n;
}

static void oracle_prefill(oracle *o, const int32_t *tokens, int32_t n,
                           const specrt_target_rows *rows) {
    bool ext = o->params.only == SPECRT__WINDOW_EXT;
    for (int32_t i = 0; i < n; i++) {
        if (!ext) oracle_push(o, tokens[i]);
        o->n_seed = oracle_best(rows, i, o->params.kpre, o->seed);
        for (int32_t j = 0; j < o->n_seed && !ext; j++) oracle_add(o, o->seed[j]);
    }
}

static void oracle_start(oracle *o, int32_t token) {
    for (int32_t j = 0; j < o->n_seed && o->params.only == SPECRT__WINDOW_EXT; j++)
        oracle_add(o, o->seed[j]);
    oracle_flush(o);
    if (o->params.only != SPECRT__WINDOW_CTX && o->params.emitted) oracle_push(o, token);
}

static void oracle_observe(oracle *o, const specrt_draft *draft, const specrt_verdict *verdict,
                           const specrt_target_rows *rows) {
    int32_t best[SPECRT_LOGITS_MAX_K];
    if (o->params.only == SPECRT__WINDOW_CTX) return;
    for (int32_t i = 1; i < draft->n; i++) oracle_add(o, draft->tokens[i]);
    oracle_flush(o);
    int32_t n_rows = o->params.positions == SPECRT__WINDOW_POSITIONS_TREE ? draft->n : verdict->n;
    int32_t first = o->params.positions == SPECRT__WINDOW_POSITIONS_LAST ? n_rows - 1 : 0;
    for (int32_t i = first; i < n_rows; i++) {
        int32_t node = o->params.positions == SPECRT__WINDOW_POSITIONS_TREE ? i : verdict->nodes[i];
        int32_t n = oracle_best(rows, node, o->params.kver, best);
        for (int32_t j = 0; j < n; j++) oracle_add(o, best[j]);
    }
    oracle_flush(o);
    for (int32_t i = 0; i < verdict->n && o->params.emitted; i++)
        oracle_push(o, verdict->tokens[i]);
}

/* Unique(Suffix(S, W)), or the list. @return how many members. */
static int32_t oracle_members(const oracle *o, bool *members) {
    const int32_t *ids = o->list;
    int32_t n = o->n_list, n_members = 0;
    if (o->params.mode == SPECRT__WINDOW_STREAM) {
        n = o->n_stream < o->params.size ? o->n_stream : o->params.size;
        ids = o->stream + o->n_stream - n;
    }
    memset(members, 0, N_IDS);
    for (int32_t i = 0; i < n; i++) {
        n_members += !members[ids[i]];
        members[ids[i]] = true;
    }
    return n_members;
}

/* --- histories --- */

typedef struct history {
    oracle o;
    specrt_head *head;
    specrt__shortlist_pool *pool;
    specrt__window *window;
} history;

static void check(const history *h) {
    bool members[N_IDS];
    int32_t n = oracle_members(&h->o, members), n_all = 0, n_fill = 0;
    CHECK(n <= h->o.params.size);
    while (n + n_all < h->o.params.min &&
           n_fill < N_RANKED) { /* ids by rank until there are enough */
        n_all += !members[n_fill] && n_fill != INVALID;
        n_fill++;
    }
    for (int32_t id = 0; id < N_IDS; id++) {
        int wants = h->pool->wants[id];
        REQUIRE(((wants & SPECRT__SHORTLIST_WINDOW) != 0) == members[id]);
        REQUIRE(((wants & SPECRT__SHORTLIST_FILL) != 0) == (id < n_fill && id != INVALID));
    }
    CHECK_INT(h->pool->n_wanted, n + n_all);
}

static void random_logits(float *logits, int32_t n) {
    for (int32_t i = 0; i < n * N_LOGITS; i++) logits[i] = (float)random_below(60);
}

/* Rows in one of the forms the application may give. */
static const specrt_target_rows *random_rows(int32_t n, specrt_target_rows *rows) {
    static float logits[SPECRT_TREE_MAX_NODES * N_LOGITS];
    static int32_t ids[SPECRT_TREE_MAX_NODES * 4];
    memset(rows, 0, sizeof *rows);
    switch (random_below(6)) {
    case 0: return NULL;
    case 5: return rows->k = 3, rows; /* neither logits nor ids */
    case 1:
        for (int32_t i = 0; i < 4 * n; i++) ids[i] = random_below(N_LOGITS) - 5;
        rows->ids = ids;
        rows->k = 1 + random_below(4);
        return rows;
    default:
        random_logits(logits, n);
        rows->logits = logits;
        return rows;
    }
}

/* Tokens repeat often, as in text; now and then the topic changes. */
static int32_t random_token(int32_t topic) {
    return (topic * 40 + random_below(60)) % N_IDS;
}

static void run_prompt(history *h, int32_t n_prompt) {
    int32_t tokens[SPECRT_TREE_MAX_NODES], n;
    specrt_target_rows rows;
    for (; n_prompt > 0; n_prompt -= n) {
        n = 1 + random_below(n_prompt < 64 ? n_prompt : 64);
        for (int32_t i = 0; i < n; i++) tokens[i] = random_token(0);
        const specrt_target_rows *r = random_rows(n, &rows);
        specrt__window_prefill(h->window, tokens, n, r);
        oracle_prefill(&h->o, tokens, n, r);
    }
    specrt__window_start(h->window, 7);
    oracle_start(&h->o, 7);
    check(h);
}

static void run_cycle(history *h, int32_t cycle) {
    int32_t tokens[SPECRT_TREE_MAX_NODES];
    specrt_draft draft = {
        1 + random_below(SPECRT_TREE_MAX_NODES), tokens, NULL, NULL, NULL, NULL, NULL, 0};
    specrt_verdict verdict = {.n = 1 + random_below(draft.n < 6 ? draft.n : 6)};
    specrt_target_rows rows;
    for (int32_t i = 0; i < draft.n; i++) tokens[i] = random_token(cycle / 50);
    for (int32_t i = 0; i < verdict.n; i++) {
        verdict.nodes[i] = i == 0 ? 0 : verdict.nodes[i - 1] + 1;
        verdict.tokens[i] = random_token(cycle / 50 + random_below(2));
    }
    const specrt_target_rows *r = random_rows(draft.n, &rows);
    specrt__source_cycle observed = {&draft, &verdict, r, NULL};
    specrt__window_observe(h->window, &observed);
    oracle_observe(&h->o, &draft, &verdict, r);
    check(h);
}

static void run_history(const specrt__window_params *params, int n_cycles) {
    static float rows[N_IDS * 4];
    static history h;
    specrt_env env = {.alloc = NULL};
    specrt_head_desc desc = {.rows = rows, .dtype = SPECRT_DTYPE_F32, .n_rows = N_IDS, .n_cols = 4};
    memset(&h, 0, sizeof h);
    h.o.params = *params;
    REQUIRE(specrt_head_bind(NULL, &desc, NULL, &h.head, NULL) == SPECRT_STATUS_OK);
    h.pool = specrt__shortlist_pool_create(h.head, N_IDS, N_IDS, &env);
    h.window = specrt__window_create(h.pool, params, N_LOGITS, &env);
    REQUIRE(h.pool && h.window);
    h.window->params.n_frequent = N_RANKED;
    specrt__shortlist_mark(h.pool, INVALID, SPECRT__SHORTLIST_INVALID);
    for (int sequence = 0; sequence < 2; sequence++) { /* the second finds nothing of the first */
        h.o.n_stream = h.o.n_list = h.o.n_set = h.o.n_seed = 0;
        specrt__shortlist_pool_reset(h.pool);
        specrt__window_begin(h.window);
        run_prompt(&h, random_below(400));
        for (int cycle = 0; cycle < n_cycles; cycle++) run_cycle(&h, cycle);
    }
    specrt__window_close(h.window);
    specrt__shortlist_pool_free(h.pool);
    specrt_head_close(h.head);
}

static void run_mode(int32_t mode) {
    static const int32_t sizes[] = {1, 2, 7, 40, 100, 180, 249, 250, 1000};
    for (int32_t i = 0; i < 27; i++) {
        specrt__window_params params = {.size = sizes[i % 9], .mode = mode};
        params.positions = random_below(3);
        params.only = i < 18 ? SPECRT__WINDOW_BOTH : 1 + i % 2;
        params.kpre = random_below(SPECRT_LOGITS_MAX_K + 1);
        params.kver = i < 9 ? 3 : random_below(SPECRT_LOGITS_MAX_K + 1);
        params.emitted = random_below(2);
        params.min = random_below(params.size < 100 ? params.size : 100);
        run_history(&params, 100);
    }
}

static void test_lru(void) {
    run_mode(SPECRT__WINDOW_LRU);
}

static void test_stream(void) {
    run_mode(SPECRT__WINDOW_STREAM);
}

static void test_long(void) {
    for (int32_t mode = 0; mode < 2; mode++) {
        specrt__window_params params = {
            .size = 90, .mode = mode, .kpre = 3, .kver = 3, .emitted = 1, .min = 60};
        run_history(&params, 800);
    }
}

/* Logits of the prompt are asked for where some of them are looked at. */
static void test_prompt_logits(void) {
    static const float rows[8 * 4];
    static const char *const texts[] = {"window:4@kpre=0", "window:4@kpre=1"};
    specrt_head_desc desc = {.rows = rows, .dtype = SPECRT_DTYPE_F32, .n_rows = 8, .n_cols = 4};
    specrt_head *head;
    REQUIRE(!specrt_head_bind(NULL, &desc, NULL, &head, NULL));
    for (int i = 0; i < 2; i++) {
        specrt_policy_desc pd = {.text = texts[i], .n_vocab = 8};
        specrt_policy *policy;
        REQUIRE(!specrt_policy_create(NULL, head, &pd, &policy, NULL));
        CHECK_INT(specrt_policy_get_info(policy)->needs_prompt_logits, i);
        specrt_policy_close(policy);
    }
    specrt_head_close(head);
}

static const test_case cases[] = {
    {"unique_lru", "the window is an ordered dictionary", test_lru},
    {"stream", "the window is Unique(Suffix(S, W)) of the whole stream", test_stream},
    {"prompt_logits", "asked for where they are looked at", test_prompt_logits},
    {"long", "many cycles through several topics", test_long},
};
TEST_MAIN(cases)
