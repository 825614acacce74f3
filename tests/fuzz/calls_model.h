/* calls_model.h : the application of fuzz_calls.c: a target whose logits depend on the whole text, the text
 * itself as calls that were OK have made it, and arguments from bytes, each array as long as it says. */
#ifndef CALLS_MODEL_H
#define CALLS_MODEL_H

#include <math.h>
#include <stdbool.h>
#include "section_target.h"
#include "specrt_block.h"

enum { N_VOCAB = 60, N_LOGITS = 63, N_ROWS = 64, N_COLS = 12, MOST_TEXT = 512, N_KINDS = 5 };

/* ---- bytes and arrays ---- */

static const uint8_t *bytes_at;
static size_t n_bytes_left;

static inline void take_bytes(const uint8_t *data, size_t size) {
    bytes_at = data;
    n_bytes_left = size;
}
static inline bool bytes_left(void) {
    return n_bytes_left > 0;
}
static inline uint8_t any(void) {
    return n_bytes_left ? n_bytes_left--, *bytes_at++ : (uint8_t)0;
}

enum { MOST_ARRAYS = 1 << 14 };
static void *arrays[MOST_ARRAYS];
static int n_arrays;

/* Of n things; none where n is negative. */
static inline void *new_array(int64_t n, size_t bytes) {
    if (n_arrays == MOST_ARRAYS) abort();
    return arrays[n_arrays++] = calloc(n > 0 ? (size_t)n : 0, bytes);
}
static inline void free_arrays(void) {
    while (n_arrays > 0) free(arrays[--n_arrays]);
}

static inline int32_t *any_tokens(int32_t n) {
    int32_t *tokens = (int32_t *)new_array(n, sizeof *tokens);
    for (int32_t i = 0; i < n; i++) tokens[i] = any() % (any() % 8 ? N_VOCAB : 255) - any() / 250;
    return tokens;
}

static inline float *any_states(int32_t n) {
    float *states = (float *)new_array((int64_t)n * N_COLS, sizeof *states);
    uint64_t seed = any() + 1u;
    for (int32_t i = 0; i < n * N_COLS; i++) states[i] = fixture_normal(&seed);
    if (n > 0 && any() == 255) states[any() % N_COLS] = NAN;
    return states;
}

/* ---- the text ---- */

/* What the target has read and emitted, from a position on. */
typedef struct text {
    int64_t base, left; /* left: tokens that the answer may still have */
    int32_t n, tokens[MOST_TEXT];
    int32_t n_open; /* accepted tokens of a chain that waits for its last; -1: none waits */
} text;

/* Where the session is, as specrt.h says. */
enum {
    CREATED = 1,
    PROMPT = 2,
    READ = 4,
    OPEN = 8,
    DRAFT = 16,
    GROWN = 32, /* a draft with a level */
    DRAFTED = 64,
    ENDED = 128
};

typedef struct driven {
    specrt_session *s;
    int stage; /* or a sum, where it may be in several places */
    specrt_auto *auto_draft;
    specrt_verifier *plain;
    uint64_t generation; /* of the next answer */
    text text;
    bool samples_drafts;
    specrt_beam beam;
    specrt_draft draft; /* the last one, which may be stale */
    specrt_verdict verdict;
    const specrt_request *request; /* of the host's call, until the session has begun */
} driven;

/* Logits after the text and a path; columns of padding are the greatest. */
static inline void fill_logits(const driven *d, const int32_t *path, int32_t n, float *row) {
    uint64_t hash = 14695981039346656037u;
    for (int32_t i = 0; i < d->text.n + n; i++)
        hash = (hash ^ (uint64_t)(i < d->text.n ? d->text.tokens[i] : path[i - d->text.n])) *
               1099511628211u;
    for (int32_t i = 0; i < N_LOGITS; i++) row[i] = i < N_VOCAB ? 2 * fixture_normal(&hash) : 50;
}

static inline float *logits_after(const driven *d, const int32_t *path, int32_t n, bool damaged) {
    float *row = (float *)new_array(N_LOGITS, sizeof *row);
    fill_logits(d, path, n, row);
    bool one = damaged && any() & 1;
    if (one) row[any() % N_VOCAB] = NAN;
    for (int32_t i = 0; damaged && !one && i < N_VOCAB; i++) row[i] = -INFINITY;
    return row;
}

/* What plain decoding emits after the text and a path. */
static inline int32_t text_next(const driven *d, const int32_t *path, int32_t n) {
    float row[N_LOGITS];
    fill_logits(d, path, n, row);
    int32_t token = specrt_verifier_draw(d->plain, row, d->text.base + d->text.n + n);
    if (token < 0 || token >= N_VOCAB) abort();
    return token;
}

/* A call that was OK came in order. */
static inline void came(driven *d, int allowed, int next) {
    if (!(d->stage & allowed)) abort();
    d->stage = next;
}

static inline int32_t text_last(const driven *d) {
    return d->text.n ? d->text.tokens[d->text.n - 1] : 0;
}

static inline void text_add(driven *d, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= N_VOCAB || d->text.n == MOST_TEXT) abort();
        d->text.tokens[d->text.n++] = tokens[i];
    }
}

static inline void text_add_answer(driven *d, const int32_t *tokens, int32_t n) {
    text_add(d, tokens, n);
    d->text.left -= n;
}

static inline void text_start(driven *d, int32_t token) {
    text_add_answer(d, &token, 1);
    if (d->text.n_open >= 0) d->text.left -= d->text.n_open;
    d->text.n_open = -1;
}

static inline void text_add_chain(driven *d, const int32_t *tokens, int32_t n_accepted,
                                  int32_t last) {
    text_add(d, tokens + 1, n_accepted);
    if (last < 0)
        d->text.n_open = n_accepted;
    else
        text_start(d, last), d->text.left -= n_accepted;
}

static inline void key_plain(driven *d, const specrt_sampling *sampling) {
    specrt_verifier_close(d->plain);
    if (specrt_verifier_create(N_LOGITS, N_VOCAB, sampling, NULL, &d->plain, NULL)) abort();
    d->generation = sampling->generation;
}

static inline void text_begin(driven *d, const specrt_request *r) {
    text *t = &d->text;
    bool unread = t->n > 0 && d->stage & (DRAFT | GROWN | DRAFTED | ENDED); /* its last token */
    int64_t kept = r->begin == SPECRT_BEGIN_TURN ? r->position - t->base : 0;
    if (kept > t->n - unread) abort(); /* more than the target has read */
    if (r->sampling) key_plain(d, r->sampling);
    specrt_verifier_set_generation(d->plain, d->generation++);
    t->n = kept > 0 ? (int32_t)kept : 0;
    t->base = r->position - t->n;
    t->left = r->max_tokens > 0 ? r->max_tokens : INT64_MAX;
    t->n_open = -1;
    d->stage = r->begin == SPECRT_BEGIN_NEW && r->position > 0 ? PROMPT | READ : PROMPT;
}

static inline bool ends(int32_t token) { /* fixture_ranks() has one terminator */
    return token == 3;
}

/* Tokens that a session emitted.
 *   plain : they must be plain decoding's */
static inline void text_emit(driven *d, const specrt_verdict *v, bool plain) {
    for (int32_t i = 0; i < v->n; i++) {
        if (plain && v->tokens[i] != text_next(d, NULL, 0)) abort();
        if (i + 1 < v->n && ends(v->tokens[i])) abort();
        text_add_answer(d, &v->tokens[i], 1);
    }
    specrt_end end = ends(text_last(d))  ? SPECRT_END_TERMINATOR
                     : d->text.left <= 0 ? SPECRT_END_LENGTH
                                         : SPECRT_END_NONE;
    if (v->n < 1 || v->end != end) abort();
    d->stage = end == SPECRT_END_NONE ? DRAFT : ENDED;
}

/* ---- trees ---- */

/* Tokens from the root's first child to a node of any bytes that call themselves a draft. @return how many */
static inline int32_t path_to(const specrt_draft *draft, int32_t node, int32_t *path) {
    int32_t n = 0, up[SPECRT_TREE_MAX_NODES];
    for (; node > 0 && node < draft->n && n < SPECRT_TREE_MAX_NODES; node = draft->parents[node])
        up[n++] = draft->tokens[node];
    for (int32_t i = 0; i < n; i++) path[i] = up[n - 1 - i];
    return n;
}

static inline specrt_target_rows rows_of_nodes(const driven *d, const specrt_draft *draft) {
    int32_t path[SPECRT_TREE_MAX_NODES];
    float *logits = (float *)new_array((int64_t)draft->n * N_LOGITS, sizeof *logits);
    for (int32_t i = 0; i < draft->n; i++)
        fill_logits(d, path, path_to(draft, i, path), logits + (int64_t)i * N_LOGITS);
    return (specrt_target_rows){.logits = logits};
}

static inline specrt_target_rows rows_of_texts(const driven *d, const int32_t *tokens, int32_t n) {
    float *logits = (float *)new_array((int64_t)n * N_LOGITS, sizeof *logits);
    for (int32_t i = 0; i < n; i++) fill_logits(d, tokens, i + 1, logits + (int64_t)i * N_LOGITS);
    return (specrt_target_rows){.logits = logits};
}

/* Of nobody's target. */
static inline specrt_target_rows any_rows(int32_t n) {
    specrt_target_rows rows = {.k = any() % 20, .d_hidden = any() % 4};
    int32_t *ids = (int32_t *)new_array((int64_t)n * rows.k, sizeof *ids);
    for (int32_t i = 0; i < n * rows.k; i++)
        ids[i] = any() % 8 ? any() % N_ROWS - 1 : -(int32_t)any();
    rows.ids = ids;
    if (any() & 1) rows.hidden = (float *)new_array((int64_t)n * rows.d_hidden, sizeof(float));
    return rows;
}

/* A tree of the application's, which may be none; often with what the target will say. */
static inline specrt_draft any_tree(const driven *d) {
    int32_t n = any() % 16 ? 1 + any() % 9 : (int32_t[]){0, -1, 64, 65, 70}[any() % 5];
    int32_t *tokens = any_tokens(n), *parents = any_tokens(n), *depths = any_tokens(n);
    uint64_t *masks = (uint64_t *)new_array(n, sizeof *masks);
    specrt_draft draft = {
        n, tokens, parents, depths, masks, (float *)new_array(n, sizeof(float)), NULL, 0};
    bool sound = any() % 8 != 0;
    for (int32_t i = 0; i < n && sound; i++) {
        int32_t path[SPECRT_TREE_MAX_NODES], parent = i ? any() % i : -1;
        parents[i] = parent;
        depths[i] = i ? depths[parent] + 1 : 0;
        masks[i] = (i ? masks[parent] : 0) | (uint64_t)1 << (i & 63);
        int32_t n_path = i ? path_to(&draft, parent, path) : 0;
        tokens[i] = i == 0      ? text_last(d)
                    : any() & 1 ? text_next(d, path, n_path)
                                : any() % N_VOCAB;
    }
    return draft;
}

/* Whether a verdict is a path of the draft with plain decoding's tokens, as long as the draft has them. */
static inline void check_path(const driven *d, const specrt_draft *draft, const specrt_verdict *v) {
    if (v->n < 1 || v->nodes[0] != 0) abort();
    for (int32_t i = 0; i < v->n; i++) {
        int32_t node = v->nodes[i];
        if (v->tokens[i] != text_next(d, v->tokens, i)) abort();
        if (i > 0 &&
            (draft->parents[node] != v->nodes[i - 1] || draft->tokens[node] != v->tokens[i - 1]))
            abort();
    }
    for (int32_t i = 1; i < draft->n; i++)
        if (draft->parents[i] == v->nodes[v->n - 1] && draft->tokens[i] == v->tokens[v->n - 1])
            abort();
}

/* ---- callbacks, of which some fail ---- */

static inline int host_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                               const float **logits) {
    driven *d = (driven *)user;
    if (d->request) text_begin(d, d->request);
    d->request = NULL;
    if (any() == 255) return 1;
    *logits = all ? rows_of_texts(d, tokens, n).logits : logits_after(d, tokens, n, false);
    text_add(d, tokens, n);
    return 0;
}

static inline int host_draft(void *user, int32_t level, const specrt_beam *beam,
                             const float **draft_hidden, const float **draft_input) {
    (void)user, (void)level;
    if (any() == 255) return 1;
    if (any() != 254) *draft_hidden = any_states(beam->n);
    *draft_input = any() & 1 ? any_states(beam->n) : NULL;
    return 0;
}

static inline int host_verify(void *user, const specrt_draft *draft, const float **logits) {
    if (any() == 255) return 1;
    *logits = rows_of_nodes((driven *)user, draft).logits;
    return 0;
}

static inline int host_commit(void *user, const specrt_draft *draft, const specrt_verdict *v) {
    const driven *d = (driven *)user;
    if (v->n < 1 || v->n > draft->n) abort();
    if (!d->samples_drafts && v->end == SPECRT_END_NONE) check_path(d, draft, v);
    return any() == 255;
}

static inline int host_each(void *user, const int32_t *tokens, int32_t n) {
    driven *d = (driven *)user;
    for (int32_t i = 0; i < n; i++) {
        if (!d->samples_drafts && tokens[i] != text_next(d, NULL, 0)) abort();
        text_add_answer(d, &tokens[i], 1);
    }
    return any() == 255;
}

static inline int host_block(void *user, int32_t root, int32_t n, specrt_block *block) {
    (void)user, (void)root;
    block->n = n < 3 ? n : 3;
    block->hidden = any_states(block->n);
    return any() == 255;
}

static inline specrt_host any_host(driven *d) {
    static const int64_t contexts[] = {0, 0, 1 << 20, 2, 24, 1, -1};
    specrt_host host = {.user = d,
                        .n_context = contexts[any() % 7],
                        .max_batch = any() % 4,
                        .target_prefill = host_prefill,
                        .draft_step = host_draft,
                        .target_verify = host_verify,
                        .commit = host_commit,
                        .num_steps = any() % 8};
    if (any() & 1) host.p_min = 0.2f;
    if (any() & 1) host.draft_block = host_block;
    if (any() == 255) host.commit = NULL;
    return host;
}

/* ---- sessions ---- */

/* Policies with sources of every kind that needs no state of the target. */
static const struct {
    const char *policy;
    specrt_tree_params tree;
    specrt_sampling sampling;
    specrt_draft_kind draft;
    bool is_auto;
} kinds[N_KINDS] = {
    {"static:12+window:20@min=0+retrieve:16", {3, 3, 8}, {0}, SPECRT_DRAFT_TOP_K, false},
    {"window:24@mode=stream@only=ext@min=8",
     {4, 2, 9},
     {.temperature = 0.8f, .top_p = 0.95f, .session = 1},
     SPECRT_DRAFT_TOP_K,
     false},
    {"static:20+successor:6", {3, 3, 8}, {0}, SPECRT_DRAFT_TOP_K, false},
    {"static:12+window:12@min=0",
     {3, 1, 4},
     {.temperature = 1, .session = 1},
     SPECRT_DRAFT_SAMPLED,
     false},
    {"full", {3, 1, 4}, {0}, SPECRT_DRAFT_TOP_K, true}};

static struct {
    uint8_t *bytes; /* the bundle lies in them */
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_policy *policies[N_KINDS];
} made;

static inline specrt_status make_policies(specrt_error *err) {
    const specrt_markov_desc markov = {{.rows = section_weights(), .n_rows = N_ROWS, .n_cols = 3},
                                       {.rows = section_weights(), .n_rows = N_ROWS, .n_cols = 3}};
    const specrt_head_desc rows = {
        .rows = section_weights(), .n_rows = N_ROWS, .n_cols = N_COLS, .markov = &markov};
    size_t sizes[2], n;
    uint8_t *parts[] = {fixture_graph(N_VOCAB, 4, NULL, 5, &sizes[0]),
                        fixture_ranks(N_VOCAB, 3, 20, &sizes[1])};
    made.bytes = fixture_join((const char *[]){"cograph", "ranks"}, parts, sizes, 2, &n);
    specrt_status status =
        specrt_bundle_open_memory(made.bytes, n, "fuzz", NULL, &made.bundle, err);
    if (!status) status = specrt_head_bind(NULL, &rows, NULL, &made.head, err);
    for (int i = 0; i < N_KINDS && !status; i++) {
        const specrt_policy_desc desc = {.text = kinds[i].policy, .n_vocab = N_VOCAB};
        status = specrt_policy_create(made.bundle, made.head, &desc, &made.policies[i], err);
    }
    return status;
}

static inline void driven_open(driven *d, int kind, uint64_t number) {
    static const double costs[4] = {1, 1.2, 1.4, 1.6};
    const specrt_auto_desc choices = {.num_steps = 3, .n_lists = 1, .costs = costs};
    specrt_session_params p = {.tree = kinds[kind].tree,
                               .sampling = kinds[kind].sampling,
                               .n_logits = N_LOGITS,
                               .draft = kinds[kind].draft,
                               .n_block = 3};
    *d = (driven){.samples_drafts = p.draft == SPECRT_DRAFT_SAMPLED};
    d->text = (text){.left = INT64_MAX, .n_open = -1};
    d->stage = CREATED;
    p.sampling.session = number;
    if (kinds[kind].is_auto && specrt_auto_create(&choices, NULL, &d->auto_draft, NULL)) abort();
    p.auto_draft = d->auto_draft;
    if (specrt_session_create(made.policies[kind], &p, NULL, &d->s, NULL)) abort();
    key_plain(d, &p.sampling);
}

static inline void driven_close(driven *d) {
    specrt_session_close(d->s);
    specrt_auto_close(d->auto_draft);
    specrt_verifier_close(d->plain);
}

#endif
