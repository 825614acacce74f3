/* window.c : owns MicroSpec's window (docs/methods/window.md): which tokens the target
 * lately saw or thought likely. Every step takes constant time; nothing is allocated after creation.
 * Refuses an indexed window over rows that no product reads as they are; tokens that may not be proposed are
 * passed over. */
#include "sources/window.h"
#include "core/base.h"
#include "core/pool.h"

static const specrt__source_option specrt__window_options[] = {
    {"mode", "unique_lru stream", 0, 0, 0},     {"kpre", NULL, 0, SPECRT__WINDOW_MAX_K, 0},
    {"kver", NULL, 0, SPECRT__WINDOW_MAX_K, 3}, {"positions", "all last tree", 0, 0, 0},
    {"only", "both ctx ext", 0, 0, 0},          {"emitted", "off on", 0, 0, 1},
    {"min", NULL, 0, SPECRT_MAX_VOCAB, 256},    {"rows", "packed indexed", 0, 0, 0},
};
SPECRT__SOURCE_FITS(specrt__window_options, SPECRT__WINDOW_OPTIONS);

static specrt_status specrt__window_share(const specrt__source_request *request,
                                          specrt__source_shared *out, specrt_error *err) {
    const int32_t *options = request->options;
    const specrt_env *env = &request->head->compute.env;
    specrt_dtype dtype = request->head->desc.dtype;
    out->in_head = options[SPECRT__WINDOW_OPTION_ROWS] == SPECRT__WINDOW_INDEXED;
    if (out->in_head && specrt__head_packed_dtype(request->head) != dtype)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "window: rows=indexed: expected a head of f32, f16, bf16 or q8_0, "
                                "found %s, whose rows are decoded as they are packed; use "
                                "rows=packed",
                                specrt_dtype_name(dtype));
    specrt__window_shared *s =
        (specrt__window_shared *)specrt__base_alloc(env, sizeof(specrt__window_shared));
    if (!s) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "window: out of memory");
    s->env = *env;
    s->params.size = request->size;
    s->params.mode = options[SPECRT__WINDOW_OPTION_MODE];
    s->params.positions = options[SPECRT__WINDOW_OPTION_POSITIONS];
    s->params.only = options[SPECRT__WINDOW_OPTION_ONLY];
    s->params.kpre = options[SPECRT__WINDOW_OPTION_KPRE];
    s->params.kver = options[SPECRT__WINDOW_OPTION_KVER];
    s->params.emitted = options[SPECRT__WINDOW_OPTION_EMITTED];
    s->params.min = options[SPECRT__WINDOW_OPTION_MIN];
    if (s->params.min > request->size) s->params.min = request->size;
    s->params.frequent = request->frequent;
    s->params.n_frequent = request->n_frequent;
    out->data = s;
    out->bound = request->size;
    out->reads_prompt = s->params.kpre > 0;
    out->reads_tree = s->params.positions == SPECRT__WINDOW_POSITIONS_TREE && s->params.kver > 0 &&
                      s->params.only != SPECRT__WINDOW_CTX;
    return SPECRT_STATUS_OK;
}

static void specrt__window_unshare(void *shared) {
    specrt_env env = ((specrt__window_shared *)shared)->env;
    specrt__base_free(&env, shared);
}

/* --- a session's --- */

static void specrt__window_list_clear(specrt__window *w) {
    w->n_list = 0;
    w->older[w->list_size] = w->newer[w->list_size] = w->list_size;
}

SPECRT__INTERNAL specrt__window *specrt__window_create(specrt__pool *pool,
                                                       const specrt__window_params *params,
                                                       int32_t n_logits, const specrt_env *env) {
    bool stream = params->mode == SPECRT__WINDOW_STREAM;
    size_t n_ids = (size_t)pool->n_ids, size = (size_t)params->size;
    size_t list = (size < n_ids ? size : n_ids) + 1;
    size_t words = 3 * list + n_ids + (stream ? size + n_ids : 0);
    size_t bytes = sizeof(specrt__window) + words * sizeof(int32_t);
    specrt__window *w = (specrt__window *)specrt__base_alloc(env, bytes);
    if (!w) return NULL;
    memset(w, 0, bytes);
    w->env = *env;
    w->params = *params;
    w->pool = pool;
    w->bit = specrt__pool_register(pool);
    w->n_logits = n_logits;
    w->list_size = (int32_t)list - 1;
    w->ids = (int32_t *)(void *)(w + 1);
    w->older = w->ids + list;
    w->newer = w->older + list;
    w->places = w->newer + list;
    w->ring = stream ? w->places + n_ids : NULL;
    w->counts = stream ? w->ring + size : NULL;
    memset(w->places, 0xff, n_ids * sizeof *w->places);
    return w;
}

/* Drafts need topk rows, and more than are fixed or packed at most there cannot be. */
static void *specrt__window_open(void *shared, const specrt__source_session *with) {
    specrt__window_params params = ((const specrt__window_shared *)shared)->params;
    if (params.min < with->topk) params.min = with->topk;
    if (params.min > with->bound) params.min = with->bound;
    return specrt__window_create(with->pool, &params, with->n_logits, with->env);
}

SPECRT__INTERNAL void specrt__window_close(void *state) {
    specrt_env env = ((specrt__window *)state)->env;
    specrt__base_free(&env, state);
}

/* Only what the list and the ring name is not as created. */
SPECRT__INTERNAL void specrt__window_begin(void *state) {
    specrt__window *w = (specrt__window *)state;
    for (int32_t i = 0; i < w->n_list; i++) w->places[w->ids[i]] = -1;
    for (int32_t i = 0; i < w->n_ring; i++) w->counts[w->ring[i]] = 0;
    specrt__window_list_clear(w);
    w->ring_begin = w->n_ring = w->n_seed = w->n_fill = 0;
}

/* --- pushing --- */

/* To the new end of the list. @return the token that leaves it, or -1. */
SPECRT__INTERNAL int32_t specrt__window_touch(specrt__window *w, int32_t id) {
    int32_t end = w->list_size, place = w->places[id], evicted = -1;
    if (place < 0 && w->n_list == w->list_size) {
        place = w->newer[end];
        evicted = w->ids[place];
        w->places[evicted] = -1;
    }
    if (place < 0) {
        place = w->n_list++;
    } else {
        w->newer[w->older[place]] = w->newer[place];
        w->older[w->newer[place]] = w->older[place];
    }
    w->ids[place] = id;
    w->places[id] = place;
    w->older[place] = w->older[end];
    w->newer[place] = end;
    w->newer[w->older[end]] = place;
    w->older[end] = place;
    return evicted;
}

/* One more element of the stream; the oldest leaves a full window. */
SPECRT__INTERNAL void specrt__window_append(specrt__window *w, int32_t id) {
    int32_t size = w->params.size;
    if (w->n_ring == size) {
        int32_t oldest = w->ring[w->ring_begin];
        if (--w->counts[oldest] == 0) specrt__pool_drop(w->pool, oldest, w->bit);
        w->ring_begin = w->ring_begin + 1 == size ? 0 : w->ring_begin + 1;
        w->n_ring--;
    }
    int32_t end = w->ring_begin < size - w->n_ring ? w->ring_begin + w->n_ring
                                                   : w->ring_begin - (size - w->n_ring);
    w->ring[end] = id;
    w->n_ring++;
    if (w->counts[id]++ == 0) specrt__pool_want(w->pool, id, w->bit);
}

/* A single element. */
static void specrt__window_push(specrt__window *w, int32_t id) {
    if (!specrt__pool_valid(w->pool, id)) return;
    if (w->params.mode == SPECRT__WINDOW_STREAM) {
        specrt__window_append(w, id);
        return;
    }
    int32_t evicted = specrt__window_touch(w, id);
    specrt__pool_want(w->pool, id, w->bit);
    if (evicted >= 0) specrt__pool_drop(w->pool, evicted, w->bit);
}

/* An element of a set. The stream takes sets as tuples without repetition, ordered by last
 * occurrence; of more than `size` elements only the last could stay, so the list may forget. */
static void specrt__window_add(specrt__window *w, int32_t id) {
    if (w->params.mode != SPECRT__WINDOW_STREAM)
        specrt__window_push(w, id);
    else if (specrt__pool_valid(w->pool, id))
        specrt__window_touch(w, id);
}

/* The set is complete. */
static void specrt__window_flush(specrt__window *w) {
    if (w->params.mode != SPECRT__WINDOW_STREAM) return;
    for (int32_t at = w->newer[w->list_size]; at != w->list_size; at = w->newer[at]) {
        specrt__window_append(w, w->ids[at]);
        w->places[w->ids[at]] = -1;
    }
    specrt__window_list_clear(w);
}

/* --- what is pushed --- */

SPECRT__INTERNAL void specrt__window_prefill(void *state, const int32_t *tokens, int32_t n,
                                             const specrt_target_rows *rows) {
    specrt__window *w = (specrt__window *)state;
    bool ext = w->params.only == SPECRT__WINDOW_EXT;
    for (int32_t i = 0; i < n; i++) {
        if (!ext) specrt__window_push(w, tokens[i]);
        w->n_seed = specrt__shortlist_target_best(rows, i, w->n_logits, w->params.kpre, w->seed);
        for (int32_t j = 0; j < w->n_seed && !ext; j++) specrt__window_add(w, w->seed[j]);
    }
}

static int32_t specrt__window_frequent(const specrt__window *w, int32_t rank) {
    return w->params.frequent ? w->params.frequent[rank] : rank;
}

/* Tokens by frequency make up for a short window, and give way as it grows: the shortest prefix of the
 * list that reaches the least number of rows, found from the one before. */
static void specrt__window_fill(specrt__window *w) {
    specrt__pool *pool = w->pool;
    int32_t n_wanted = w->params.min - pool->n_fixed;
    while (w->n_fill > 0) {
        int32_t id = specrt__window_frequent(w, w->n_fill - 1);
        if (specrt__pool_valid(pool, id)) {
            specrt__pool_drop(pool, id, SPECRT__POOL_FILL);
            if (pool->n_wanted < n_wanted) {
                specrt__pool_want(pool, id, SPECRT__POOL_FILL);
                break;
            }
        }
        w->n_fill--;
    }
    while (w->n_fill < w->params.n_frequent && pool->n_wanted < n_wanted) {
        int32_t id = specrt__window_frequent(w, w->n_fill++);
        if (specrt__pool_valid(pool, id)) specrt__pool_want(pool, id, SPECRT__POOL_FILL);
    }
}

/* The prompt is complete, and `token` follows it. */
SPECRT__INTERNAL void specrt__window_start(void *state, int32_t token) {
    specrt__window *w = (specrt__window *)state;
    if (w->params.only == SPECRT__WINDOW_EXT)
        for (int32_t j = 0; j < w->n_seed; j++) specrt__window_add(w, w->seed[j]);
    specrt__window_flush(w);
    if (w->params.emitted && w->params.only != SPECRT__WINDOW_CTX) specrt__window_push(w, token);
    specrt__window_fill(w);
}

static void specrt__window_add_row(specrt__window *w, const specrt_target_rows *rows,
                                   int32_t node) {
    int32_t best[SPECRT_LOGITS_MAX_K];
    int32_t n = specrt__shortlist_target_best(rows, node, w->n_logits, w->params.kver, best);
    for (int32_t j = 0; j < n; j++) specrt__window_add(w, best[j]);
}

/* The tree, then the target's best at the verified positions, then what was emitted. */
static void specrt__window_learn(specrt__window *w, const specrt__source_cycle *cycle) {
    const specrt_draft *draft = cycle->draft;
    const specrt_verdict *verdict = cycle->verdict;
    for (int32_t i = 1; i < draft->n; i++) specrt__window_add(w, draft->tokens[i]);
    specrt__window_flush(w);
    if (w->params.positions == SPECRT__WINDOW_POSITIONS_TREE) {
        for (int32_t i = 0; i < draft->n; i++) specrt__window_add_row(w, cycle->rows, i);
    } else {
        int32_t first = w->params.positions == SPECRT__WINDOW_POSITIONS_LAST ? verdict->n - 1 : 0;
        for (int32_t i = first; i < verdict->n; i++)
            specrt__window_add_row(w, cycle->rows, verdict->nodes[i]);
    }
    specrt__window_flush(w);
    for (int32_t i = 0; i < verdict->n && w->params.emitted; i++)
        specrt__window_push(w, verdict->tokens[i]);
}

/* Filled up in any case: a prompt may have grown since the last time, and other sources may have. */
SPECRT__INTERNAL void specrt__window_observe(void *state, const specrt__source_cycle *cycle) {
    specrt__window *w = (specrt__window *)state;
    if (w->params.only != SPECRT__WINDOW_CTX) specrt__window_learn(w, cycle);
    specrt__window_fill(w);
}

/* --- saved sessions --- */

/* The list by recency, of a stream the set that is not appended yet; the stream's elements; the target's
 * best at the latest prompt position. */
enum {
    SPECRT__WINDOW_SAVED_LIST,
    SPECRT__WINDOW_SAVED_RING,
    SPECRT__WINDOW_SAVED_SEED,
    SPECRT__WINDOW_SAVED
};

static void specrt__window_limits(const void *state, int32_t *most) {
    const specrt__window *w = (const specrt__window *)state;
    most[SPECRT__WINDOW_SAVED_LIST] = w->list_size;
    most[SPECRT__WINDOW_SAVED_RING] = w->ring ? w->params.size : 0;
    most[SPECRT__WINDOW_SAVED_SEED] = SPECRT_LOGITS_MAX_K;
}

static void specrt__window_save(const void *state, specrt__save *out) {
    const specrt__window *w = (const specrt__window *)state;
    int32_t left = w->params.size - w->ring_begin; /* elements up to the ring's end */
    specrt__save_header(out, SPECRT__SAVED_FILL, &w->n_fill, sizeof w->n_fill);
    specrt__save_word(out, w->n_list);
    for (int32_t at = w->newer[w->list_size]; at != w->list_size; at = w->newer[at])
        specrt__save_word(out, w->ids[at]);
    specrt__save_word(out, w->n_ring);
    for (int32_t i = 0; i < w->n_ring; i++)
        specrt__save_word(out, w->ring[i < left ? w->ring_begin + i : i - left]);
    specrt__save_list(out, w->seed, w->n_seed);
}

static const char *specrt__window_load(void *state, const specrt__saved *in) {
    specrt__window *w = (specrt__window *)state;
    const specrt__saved_list *tokens = &in->lists[SPECRT__WINDOW_SAVED_LIST];
    const specrt__saved_list *ring = &in->lists[SPECRT__WINDOW_SAVED_RING];
    const specrt__saved_list *seed = &in->lists[SPECRT__WINDOW_SAVED_SEED];
    int32_t n_fill = (int32_t)specrt__base_load32(in->header + SPECRT__SAVED_FILL);
    if (n_fill < 0 || n_fill > w->params.n_frequent) return "fill";
    if (!specrt__saved_within(tokens, w->pool->n_ids) ||
        !specrt__saved_within(ring, w->pool->n_ids))
        return "tokens";
    for (int32_t i = 0; i < tokens->n; i++) {
        int32_t id = specrt__saved_word(tokens, i);
        if (!specrt__pool_valid(w->pool, id) || w->places[id] >= 0) return "window";
        specrt__window_touch(w, id);
        if (!w->ring) specrt__pool_want(w->pool, id, w->bit);
    }
    for (int32_t i = 0; i < ring->n; i++) {
        int32_t id = specrt__saved_word(ring, i);
        if (!specrt__pool_valid(w->pool, id)) return "window";
        specrt__window_append(w, id);
    }
    w->n_seed = seed->n;
    for (int32_t i = 0; i < seed->n; i++) w->seed[i] = specrt__saved_word(seed, i);
    for (; w->n_fill < n_fill; w->n_fill++) {
        int32_t id = specrt__window_frequent(w, w->n_fill);
        if (specrt__pool_valid(w->pool, id)) specrt__pool_want(w->pool, id, SPECRT__POOL_FILL);
    }
    return NULL;
}

SPECRT__INTERNAL const specrt__source specrt__window_source = {
    /* options = */ specrt__window_options,
    /* n_options = */ SPECRT__WINDOW_OPTIONS,
    /* share = */ specrt__window_share,
    /* unshare = */ specrt__window_unshare,
    /* open = */ specrt__window_open,
    /* close = */ specrt__window_close,
    /* route = */ NULL,
    /* begin = */ specrt__window_begin,
    /* prefill = */ specrt__window_prefill,
    /* start = */ specrt__window_start,
    /* observe = */ specrt__window_observe,
    /* settle = */ NULL,
    /* n_lists = */ SPECRT__WINDOW_SAVED,
    /* always_saved = */ true,
    /* limits = */ specrt__window_limits,
    /* save = */ specrt__window_save,
    /* load = */ specrt__window_load,
};
