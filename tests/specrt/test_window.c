/* test_window.c : MicroSpec's window against lists and slices written out, over long histories. */
#include "specrt.h"
#include "opened.h"
#include <stdbool.h>

/* The head has no row for INVALID. */
enum { N_IDS = 250, N_LOGITS = 260, MAX_STREAM = 200000, INVALID = 17, MAX_K = 8 };

static uint64_t random_state = 4711;
static int32_t random_below(int32_t n) {
    return fixture_below(&random_state, n);
}

/* --- the oracle: the whole stream, and a list that is searched from end to end --- */

enum { UNIQUE_LRU, STREAM };
enum { ALL, LAST, TREE };
enum { BOTH, CTX, EXT };

/* What a policy's text says. */
typedef struct setting {
    int32_t size, mode, kpre, kver, positions, only, emitted, min;
} setting;

typedef struct oracle {
    setting set_up;
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
    if (o->set_up.mode == STREAM) {
        REQUIRE(o->n_stream < MAX_STREAM);
        o->stream[o->n_stream++] = id;
        return;
    }
    int32_t at = find(o->list, o->n_list, id);
    if (at >= 0) oracle_remove(o, at);
    if (o->n_list == o->set_up.size) oracle_remove(o, 0);
    o->list[o->n_list++] = id;
}

static void oracle_add(oracle *o, int32_t id) {
    if (o->set_up.mode != STREAM)
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
    bool ext = o->set_up.only == EXT;
    for (int32_t i = 0; i < n; i++) {
        if (!ext) oracle_push(o, tokens[i]);
        o->n_seed = oracle_best(rows, i, o->set_up.kpre, o->seed);
        for (int32_t j = 0; j < o->n_seed && !ext; j++) oracle_add(o, o->seed[j]);
    }
}

static void oracle_start(oracle *o, int32_t token) {
    for (int32_t j = 0; j < o->n_seed && o->set_up.only == EXT; j++) oracle_add(o, o->seed[j]);
    oracle_flush(o);
    if (o->set_up.only != CTX && o->set_up.emitted) oracle_push(o, token);
}

static void oracle_observe(oracle *o, const specrt_draft *draft, const specrt_verdict *verdict,
                           const specrt_target_rows *rows) {
    int32_t best[SPECRT_LOGITS_MAX_K];
    if (o->set_up.only == CTX) return;
    for (int32_t i = 1; i < draft->n; i++) oracle_add(o, draft->tokens[i]);
    oracle_flush(o);
    int32_t n_rows = o->set_up.positions == TREE ? draft->n : verdict->n;
    int32_t first = o->set_up.positions == LAST ? n_rows - 1 : 0;
    for (int32_t i = first; i < n_rows; i++) {
        int32_t node = o->set_up.positions == TREE ? i : verdict->nodes[i];
        int32_t n = oracle_best(rows, node, o->set_up.kver, best);
        for (int32_t j = 0; j < n; j++) oracle_add(o, best[j]);
    }
    oracle_flush(o);
    for (int32_t i = 0; i < verdict->n && o->set_up.emitted; i++)
        oracle_push(o, verdict->tokens[i]);
}

/* Unique(Suffix(S, W)), or the list. @return how many members. */
static int32_t oracle_members(const oracle *o, bool *members) {
    const int32_t *ids = o->list;
    int32_t n = o->n_list, n_members = 0;
    if (o->set_up.mode == STREAM) {
        n = o->n_stream < o->set_up.size ? o->n_stream : o->set_up.size;
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
    specrt_session *session;
    int32_t root; /* the last emitted token */
} history;

/* After members come ids from 0 on, until there are enough. */
static void check(const history *h) {
    bool members[N_IDS];
    int32_t n = oracle_members(&h->o, members), least = h->o.set_up.min;
    CHECK(n <= h->o.set_up.size);
    if (least < 1) least = 1; /* for the tree's topk */
    for (int32_t id = 0; id < N_IDS && n < least; id++) {
        n += !members[id] && id != INVALID;
        members[id] = id != INVALID;
    }
    for (int32_t id = 0; id < N_IDS; id++)
        REQUIRE((specrt_session_member(h->session, id, 0) != SPECRT_MEMBER_NO) == members[id]);
    CHECK_INT(specrt_session_shortlist(h->session)->n_rows, n);
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
        REQUIRE(!specrt_session_prefill(h->session, tokens, n, r));
        oracle_prefill(&h->o, tokens, n, r);
    }
    h->root = 7;
    REQUIRE(!specrt_session_start(h->session, h->root));
    oracle_start(&h->o, h->root);
    check(h);
}

/* A tree whose first nodes are the path that is emitted. */
static void run_cycle(history *h, int32_t cycle) {
    int32_t tokens[SPECRT_TREE_MAX_NODES], parents[SPECRT_TREE_MAX_NODES];
    int32_t depths[SPECRT_TREE_MAX_NODES];
    float logprobs[SPECRT_TREE_MAX_NODES] = {0};
    specrt_draft draft = {.n = 1 + random_below(SPECRT_TREE_MAX_NODES),
                          .tokens = tokens,
                          .parents = parents,
                          .depths = depths,
                          .logprobs = logprobs};
    specrt_verdict verdict = {.n = 1 + random_below(draft.n < 6 ? draft.n : 6)};
    specrt_target_rows rows;
    for (int32_t i = 0; i < draft.n; i++) {
        tokens[i] = i == 0 ? h->root : random_token(cycle / 50);
        parents[i] = i < verdict.n ? i - 1 : random_below(i);
        depths[i] = i == 0 ? 0 : depths[parents[i]] + 1;
    }
    for (int32_t i = 0; i < verdict.n; i++) {
        verdict.nodes[i] = i;
        verdict.tokens[i] = i + 1 < verdict.n ? tokens[i + 1] : random_token(cycle / 50 + 1);
    }
    const specrt_target_rows *r = random_rows(draft.n, &rows);
    REQUIRE(!specrt_session_finish(h->session, NULL));
    REQUIRE(!specrt_session_observe(h->session, &draft, &verdict, r));
    oracle_observe(&h->o, &draft, &verdict, r);
    h->root = verdict.tokens[verdict.n - 1];
    check(h);
}

static specrt_policy *policy_of(const specrt_head *head, const setting *s) {
    static const char *const modes[] = {"unique_lru", "stream"},
                             *const positions[] = {"all", "last", "tree"},
                             *const only[] = {"both", "ctx", "ext"}, *const on[] = {"off", "on"};
    char text[200];
    specrt_policy_desc desc = {.text = text, .n_vocab = N_IDS};
    snprintf(text, sizeof text,
             "window:%d@mode=%s@kpre=%d@kver=%d@positions=%s@only=%s@emitted=%s@min=%d",
             (int)s->size, modes[s->mode], (int)s->kpre, (int)s->kver, positions[s->positions],
             only[s->only], on[s->emitted], (int)s->min);
    return create_policy(NULL, head, &desc);
}

static void run_history(const setting *set_up, int n_cycles) {
    static float rows[N_IDS * 4];
    static history h;
    int32_t ids[N_IDS - 1];
    specrt_head_desc desc = {
        .rows = rows, .dtype = SPECRT_DTYPE_F32, .n_rows = N_IDS - 1, .n_cols = 4, .ids = ids};
    specrt_session_params params = {.tree = {1, 1, 2}, .n_logits = N_LOGITS};
    for (int32_t i = 0; i < N_IDS - 1; i++) ids[i] = i + (i >= INVALID);
    memset(&h, 0, sizeof h);
    h.o.set_up = *set_up;
    specrt_head *head = bind_head(NULL, &desc);
    specrt_policy *policy = policy_of(head, set_up);
    h.session = create_session(policy, &params, NULL);
    for (int sequence = 0; sequence < 2; sequence++) { /* the second finds nothing of the first */
        h.o.n_stream = h.o.n_list = h.o.n_set = h.o.n_seed = 0;
        REQUIRE(!specrt_session_begin(h.session, NULL));
        run_prompt(&h, 1 + random_below(400));
        for (int cycle = 0; cycle < n_cycles; cycle++) run_cycle(&h, cycle);
    }
    close_all(h.session, policy, head);
}

static void run_mode(int32_t mode) {
    static const int32_t sizes[] = {1, 2, 7, 40, 100, 180, 249, 250, 1000};
    for (int32_t i = 0; i < 27; i++) {
        if (test_quick() && i / 9 != i % 3) continue; /* a size in each of its places once */
        setting s = {.size = sizes[i % 9], .mode = mode};
        s.positions = random_below(3);
        s.only = i < 18 ? BOTH : 1 + i % 2;
        s.kpre = random_below(MAX_K + 1);
        s.kver = i < 9 ? 3 : random_below(MAX_K + 1);
        s.emitted = random_below(2);
        s.min = random_below(s.size < 100 ? s.size : 100);
        run_history(&s, 100);
    }
}

TEST(unique_lru, "the window is an ordered dictionary") {
    run_mode(UNIQUE_LRU);
}

TEST(stream, "the window is Unique(Suffix(S, W)) of the whole stream") {
    run_mode(STREAM);
}

TEST(long, "many cycles through several topics") {
    for (int32_t mode = 0; mode < 2; mode++) {
        setting s = {.size = 90, .mode = mode, .kpre = 3, .kver = 3, .emitted = 1, .min = 60};
        run_history(&s, 800);
    }
}

TEST(prompt_logits, "logits of the prompt are asked for where some of them are looked at") {
    static const float rows[8 * 4];
    static const char *const texts[] = {"window:4@kpre=0", "window:4@kpre=1"};
    specrt_head *head = bind_rows(NULL, rows, 8, 4);
    for (int i = 0; i < 2; i++) {
        specrt_policy_desc pd = {.text = texts[i], .n_vocab = 8};
        specrt_policy *policy = create_policy(NULL, head, &pd);
        CHECK_INT(specrt_policy_get_info(policy)->needs_prompt_logits, i);
        specrt_policy_close(policy);
    }
    specrt_head_close(head);
}

TEST(indexed_refused, "rows that are decoded as they are packed cannot be read where they are") {
    static const uint8_t rows[8 * 18];
    specrt_head_desc desc = {.rows = rows, .dtype = SPECRT_DTYPE_Q4_0, .n_rows = 8, .n_cols = 32};
    specrt_policy_desc pd = {.text = "window:4@rows=indexed", .n_vocab = 8};
    specrt_policy *policy;
    specrt_error err = {0};
    specrt_head *head = bind_head(NULL, &desc);
    CHECK_INT(specrt_policy_create(NULL, head, &pd, &policy, &err), SPECRT_STATUS_UNSUPPORTED);
    CHECK_HAS(err.msg, "rows=indexed: expected a head of f32, f16, bf16 or q8_0, found q4_0");
    pd.text = "window:4@rows=packed";
    policy = create_policy(NULL, head, &pd);
    CHECK(strcmp(specrt_policy_get_info(policy)->text, "window:4") == 0);
    specrt_policy_close(policy);
    specrt_head_close(head);
}
