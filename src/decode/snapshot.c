/* snapshot.c : owns saved sessions (docs/FORMAT.md, "Saved sessions"): a header, the policy's text, then
 * lists of words of 32 bits, each with its length. Refuses bytes of another version, policy or
 * vocabulary, damaged ones, and lists that no session could have: whatever is in them, indices stay
 * within their arrays. */
#include "decode/snapshot.h"
#include "core/base.h"
#include "core/pool.h"
#include "sources/window.h"
#include "sources/arc.h"
#include "sources/retrieve.h"
#include "decode/policy.h"
#include "decode/session.h"

/* What ids mean to a policy: its fixed rows, the order that windows are filled up in, what may not be
 * proposed, what ends a text. */
static uint64_t specrt__snapshot_digest(const specrt_session *s) {
    const specrt_policy *p = s->policy;
    const int32_t sizes[6] = {p->n_vocab,    s->pool->n_ids, p->fixed.n_rows,
                              p->n_frequent, p->n_invalid,   p->n_ends};
    uint64_t h = specrt_hash64(sizes, sizeof sizes, 0);
    if (p->fixed.n_rows > 0) h = specrt_hash64(p->fixed.ids, 4 * (size_t)p->fixed.n_rows, h);
    if (p->frequent) h = specrt_hash64(p->frequent, 4 * (size_t)p->n_frequent, h);
    if (p->n_invalid > 0) h = specrt_hash64(p->invalid, 4 * (size_t)p->n_invalid, h);
    return specrt_hash64(p->ends, 4 * (size_t)p->n_ends, h);
}

static size_t specrt__snapshot_text(const specrt_session *s) {
    return (size_t)specrt__base_align(strlen(s->policy->text), 4);
}

/* The most that a save takes. */
static size_t specrt__snapshot_bound(const specrt_session *s) {
    size_t words = SPECRT__SNAPSHOT_LISTS + (size_t)s->pool->capacity + SPECRT_LOGITS_MAX_K;
    words += (1 + SPECRT_LOGITS_MAX_K) * (size_t)SPECRT_TREE_MAX_NODES;
    if (s->window) words += (size_t)s->window->list_size + (size_t)s->window->params.size;
    if (s->retrieve) words += 4 * (size_t)s->retrieve->arc.capacity;
    return SPECRT__SNAPSHOT_HEADER + specrt__snapshot_text(s) + 4 * words;
}

/* --- writing --- */

typedef struct specrt__snapshot_writer {
    uint8_t *bytes; /* NULL: only counted */
    size_t n;
} specrt__snapshot_writer;

static void specrt__snapshot_put(specrt__snapshot_writer *w, int32_t word) {
    if (w->bytes) memcpy(w->bytes + w->n, &word, 4);
    w->n += 4;
}

static void specrt__snapshot_put_all(specrt__snapshot_writer *w, const int32_t *words, int32_t n) {
    specrt__snapshot_put(w, n);
    for (int32_t i = 0; i < n; i++) specrt__snapshot_put(w, words[i]);
}

static void specrt__snapshot_put_window(specrt__snapshot_writer *w, const specrt__window *window) {
    int32_t end = window ? window->list_size : 0, size = window ? window->params.size : 0;
    specrt__snapshot_put(w, window ? window->n_list : 0);
    for (int32_t at = window ? window->newer[end] : end; at != end; at = window->newer[at])
        specrt__snapshot_put(w, window->ids[at]);
    specrt__snapshot_put(w, window ? window->n_ring : 0);
    for (int32_t i = 0; window && i < window->n_ring; i++) {
        int32_t left = size - window->ring_begin; /* elements up to the ring's end */
        specrt__snapshot_put(w, window->ring[i < left ? window->ring_begin + i : i - left]);
    }
    specrt__snapshot_put_all(w, window ? window->seed : NULL, window ? window->n_seed : 0);
}

static void specrt__snapshot_put_cache(specrt__snapshot_writer *w, const specrt__retrieve *r) {
    const specrt__arc *a = r ? &r->arc : NULL;
    for (int list = SPECRT__ARC_T1; list <= SPECRT__ARC_B2; list++) {
        specrt__snapshot_put(w, a ? a->sizes[list] : 0);
        for (int32_t id = a ? specrt__arc_oldest(a, list) : 0; a && id < a->n_ids;
             id = a->newer[id])
            specrt__snapshot_put(w, id);
    }
    specrt__snapshot_put(w, a ? a->sizes[SPECRT__ARC_T1] + a->sizes[SPECRT__ARC_T2] : 0);
    for (int list = SPECRT__ARC_T1; a && list <= SPECRT__ARC_T2; list++)
        for (int32_t id = specrt__arc_oldest(a, list); id < a->n_ids; id = a->newer[id]) {
            int32_t age = r->n_cycles - a->births[id]; /* more than enough is as good as enough */
            specrt__snapshot_put(w, age < SPECRT__ARC_RESIDENCY ? age : SPECRT__ARC_RESIDENCY);
        }
}

static void specrt__snapshot_put_lists(specrt__snapshot_writer *w, const specrt_session *s) {
    const specrt__session_open *open = &s->open;
    specrt__snapshot_put_all(w, s->pool->ids, s->pool->n_rows);
    specrt__snapshot_put_window(w, s->window);
    specrt__snapshot_put_cache(w, s->retrieve);
    specrt__snapshot_put_all(w, open->tokens, open->n);
    specrt__snapshot_put_all(w, open->ids,
                             open->n > 0 && open->told ? open->n * SPECRT_LOGITS_MAX_K : 0);
}

static void specrt__snapshot_put_header(uint8_t *h, const specrt_session *s, size_t n_bytes) {
    const specrt__retrieve *r = s->retrieve;
    uint32_t version = SPECRT__SNAPSHOT_VERSION, n = (uint32_t)n_bytes, named = s->sequence_named;
    uint32_t n_text = (uint32_t)strlen(s->policy->text);
    uint64_t digest = specrt__snapshot_digest(s);
    int32_t n_fill = s->window ? s->window->n_fill : 0, n_events = r ? r->n_events : 0;
    double p = r ? r->arc.p : 0;
    if (n_events > SPECRT__SNAPSHOT_EVENTS) n_events = SPECRT__SNAPSHOT_EVENTS;
    memset(h, 0, SPECRT__SNAPSHOT_HEADER + specrt__snapshot_text(s));
    memcpy(h, "SPECRSES", 8);
    memcpy(h + 8, &version, 4);
    memcpy(h + 12, &n, 4);
    memcpy(h + 24, &digest, 8);
    memcpy(h + 32, &s->position, 8);
    memcpy(h + 40, &s->cycle, 8);
    memcpy(h + 48, &s->sequence, 8);
    memcpy(h + 56, &s->verifier->sampling.sequence, 8);
    memcpy(h + 64, &p, 8);
    memcpy(h + 72, &named, 4);
    memcpy(h + 76, &s->tree->root, 4);
    memcpy(h + 80, &n_fill, 4);
    memcpy(h + 84, &n_events, 4);
    memcpy(h + 88, &s->open.n_accepted, 4);
    memcpy(h + 92, &n_text, 4);
    memcpy(h + SPECRT__SNAPSHOT_HEADER, s->policy->text, n_text);
    uint64_t sum =
        specrt_hash64(h + SPECRT__SNAPSHOT_CHECKED, n_bytes - SPECRT__SNAPSHOT_CHECKED, 0);
    memcpy(h + 16, &sum, 8);
}

/* What was learnt is all taken over, and what is wanted packed. */
static void specrt__snapshot_settle(specrt_session *s) {
    if (s->retrieve) {
        specrt__retrieve_settle(s->retrieve);
        specrt__retrieve_finish(s->retrieve);
        specrt__retrieve_take(s->retrieve);
    }
    if (s->pool->n_changed > 0) specrt__session_pack(s);
}

SPECRT_API specrt_status specrt_session_save(specrt_session *s, void *bytes, size_t capacity,
                                             size_t *n_bytes) {
    specrt__snapshot_writer w = {NULL, SPECRT__SNAPSHOT_HEADER + specrt__snapshot_text(s)};
    *n_bytes = specrt__snapshot_bound(s);
    bool drafting = s->tree->level > 0 && s->open.n == 0;
    if (drafting || *n_bytes > UINT32_MAX) return SPECRT_STATUS_BAD_ARG;
    if (capacity == 0) return SPECRT_STATUS_OK;
    specrt__snapshot_settle(s);
    specrt__snapshot_put_lists(&w, s);
    *n_bytes = w.n;
    if (!bytes || capacity < w.n) return SPECRT_STATUS_BAD_ARG;
    w.bytes = (uint8_t *)bytes;
    w.n = SPECRT__SNAPSHOT_HEADER + specrt__snapshot_text(s);
    specrt__snapshot_put_lists(&w, s); /* the checksum in the header is of them too */
    specrt__snapshot_put_header(w.bytes, s, w.n);
    return SPECRT_STATUS_OK;
}

/* --- reading --- */

typedef struct specrt__snapshot_list {
    const uint8_t *words;
    int32_t n;
} specrt__snapshot_list;

typedef struct specrt__snapshot {
    const uint8_t *bytes;
    size_t n;
    specrt__snapshot_list lists[SPECRT__SNAPSHOT_LISTS];
} specrt__snapshot;

static int32_t specrt__snapshot_word(const specrt__snapshot_list *list, int32_t i) {
    return (int32_t)specrt__base_load32(list->words + 4 * (size_t)i);
}

static specrt_status specrt__snapshot_damaged(const char *what, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_SESSION_DAMAGED,
                            "session: %s: expected what a session saved, found something else; "
                            "begin anew",
                            what);
}

/* What can be told before anything in it is believed. */
static specrt_status specrt__snapshot_check(const specrt__snapshot *in, specrt_error *err) {
    if (in->n < 8 || memcmp(in->bytes, "SPECRSES", 8) != 0)
        return specrt_error_set(err, SPECRT_STATUS_SESSION_MAGIC,
                                "session: expected bytes of specrt_session_save(), found others");
    if (in->n < SPECRT__SNAPSHOT_HEADER) return specrt__snapshot_damaged("header", err);
    uint32_t version = specrt__base_load32(in->bytes + 8);
    if (version != SPECRT__SNAPSHOT_VERSION)
        return specrt_error_set(err, SPECRT_STATUS_SESSION_VERSION,
                                "session: version: expected %d, found %u; save it anew",
                                (int)SPECRT__SNAPSHOT_VERSION, (unsigned)version);
    if (specrt__base_load32(in->bytes + 12) != in->n)
        return specrt_error_set(err, SPECRT_STATUS_SESSION_DAMAGED,
                                "session: expected %u bytes, found %llu; begin anew",
                                (unsigned)specrt__base_load32(in->bytes + 12),
                                (unsigned long long)in->n);
    if (specrt_hash64(in->bytes + SPECRT__SNAPSHOT_CHECKED, in->n - SPECRT__SNAPSHOT_CHECKED, 0) !=
        specrt__base_load64(in->bytes + 16))
        return specrt__snapshot_damaged("checksum", err);
    return SPECRT_STATUS_OK;
}

/* Whether it is of this policy, over the same lists. *at: where its own lists begin. */
static specrt_status specrt__snapshot_belongs(const specrt_session *s, const specrt__snapshot *in,
                                              size_t *at, specrt_error *err) {
    const char *text = (const char *)in->bytes + SPECRT__SNAPSHOT_HEADER;
    size_t n_text = specrt__base_load32(in->bytes + 92);
    if (n_text > in->n - SPECRT__SNAPSHOT_HEADER) return specrt__snapshot_damaged("policy", err);
    if (n_text != strlen(s->policy->text) || memcmp(text, s->policy->text, n_text) != 0)
        return specrt_error_set(err, SPECRT_STATUS_SESSION_MISMATCH,
                                "session: policy: expected '%.160s', found '%.*s'", s->policy->text,
                                n_text < 160 ? (int)n_text : 160, text);
    uint64_t expected = specrt__snapshot_digest(s), found = specrt__base_load64(in->bytes + 24);
    if (expected != found)
        return specrt_error_set(err, SPECRT_STATUS_SESSION_MISMATCH,
                                "session: policy '%.160s': expected a vocabulary and lists of "
                                "digest %016llx, found %016llx; use the bundle it was saved with",
                                s->policy->text, (unsigned long long)expected,
                                (unsigned long long)found);
    *at = SPECRT__SNAPSHOT_HEADER + specrt__snapshot_text(s);
    return SPECRT_STATUS_OK;
}

/* The most words that each list may have. */
static void specrt__snapshot_limits(const specrt_session *s, int32_t most[SPECRT__SNAPSHOT_LISTS]) {
    const specrt__window *w = s->window;
    int32_t cache = s->retrieve ? s->retrieve->arc.capacity : 0;
    most[SPECRT__SNAPSHOT_ROWS] = s->pool->capacity;
    most[SPECRT__SNAPSHOT_WINDOW] = w ? w->list_size : 0;
    most[SPECRT__SNAPSHOT_RING] = w && w->ring ? w->params.size : 0;
    most[SPECRT__SNAPSHOT_SEED] = w ? SPECRT_LOGITS_MAX_K : 0;
    for (int i = SPECRT__SNAPSHOT_T1; i <= SPECRT__SNAPSHOT_AGES; i++) most[i] = cache;
    most[SPECRT__SNAPSHOT_CHAIN] = SPECRT_TREE_MAX_NODES;
    most[SPECRT__SNAPSHOT_CHAIN_BEST] = SPECRT_TREE_MAX_NODES * SPECRT_LOGITS_MAX_K;
}

static bool specrt__snapshot_cut(const specrt_session *s, size_t at, specrt__snapshot *in) {
    int32_t most[SPECRT__SNAPSHOT_LISTS];
    specrt__snapshot_limits(s, most);
    for (int i = 0; i < SPECRT__SNAPSHOT_LISTS; i++) {
        if (at > in->n || in->n - at < 4) return false;
        uint32_t n = specrt__base_load32(in->bytes + at);
        if (n > (uint32_t)most[i] || (in->n - at) / 4 - 1 < n) return false;
        in->lists[i].n = (int32_t)n;
        in->lists[i].words = in->bytes + at + 4;
        at += 4 + 4 * (size_t)n;
    }
    return at == in->n;
}

/* Words from 0 on and below `end`. */
static bool specrt__snapshot_within(const specrt__snapshot_list *list, int32_t end) {
    for (int32_t i = 0; i < list->n; i++)
        if (specrt__snapshot_word(list, i) < 0 || specrt__snapshot_word(list, i) >= end)
            return false;
    return true;
}

/* Every index within its array, but for what the target thought best: those are looked at before use, as an
 * application's are. Who may not be there is seen when they enter. @return what is wrong, or NULL. */
static const char *specrt__snapshot_wrong(const specrt_session *s, const specrt__snapshot *in) {
    const specrt__snapshot_list *lists = in->lists;
    const int32_t n_vocab = s->verifier->n_vocab, n_ids = s->pool->n_ids;
    int32_t root = (int32_t)specrt__base_load32(in->bytes + 76);
    int32_t n_fill = (int32_t)specrt__base_load32(in->bytes + 80);
    int32_t n_accepted = (int32_t)specrt__base_load32(in->bytes + 88);
    int32_t n_chain = lists[SPECRT__SNAPSHOT_CHAIN].n,
            n_best = lists[SPECRT__SNAPSHOT_CHAIN_BEST].n;
    for (int i = SPECRT__SNAPSHOT_ROWS; i <= SPECRT__SNAPSHOT_B2; i++)
        if (i != SPECRT__SNAPSHOT_SEED && !specrt__snapshot_within(&lists[i], n_ids))
            return "tokens";
    if (!specrt__snapshot_within(&lists[SPECRT__SNAPSHOT_AGES], SPECRT__ARC_RESIDENCY + 1) ||
        lists[SPECRT__SNAPSHOT_AGES].n !=
            lists[SPECRT__SNAPSHOT_T1].n + lists[SPECRT__SNAPSHOT_T2].n)
        return "ages";
    if (specrt__base_load64(in->bytes + 32) > INT64_MAX / 2) return "position"; /* and goes on */
    if (specrt__base_load64(in->bytes + 40) > INT64_MAX / 2) return "cycle";
    if (root < 0 || root >= n_vocab) return "root";
    if (n_fill < 0 || n_fill > (s->window ? s->window->n_frequent : 0)) return "fill";
    if (specrt__base_load32(in->bytes + 84) > SPECRT__SNAPSHOT_EVENTS) return "events";
    if (n_accepted < 0 || (n_chain > 0 && n_accepted >= n_chain) ||
        (n_best > 0 && n_best != n_chain * SPECRT_LOGITS_MAX_K) ||
        !specrt__snapshot_within(&lists[SPECRT__SNAPSHOT_CHAIN], n_vocab))
        return "chain";
    return NULL;
}

/* --- becoming what was saved: the session is as after begin --- */

static bool specrt__snapshot_enter_window(specrt__window *w, const specrt__snapshot *in) {
    const specrt__snapshot_list *tokens = &in->lists[SPECRT__SNAPSHOT_WINDOW];
    const specrt__snapshot_list *ring = &in->lists[SPECRT__SNAPSHOT_RING];
    const specrt__snapshot_list *seed = &in->lists[SPECRT__SNAPSHOT_SEED];
    int32_t n_fill = (int32_t)specrt__base_load32(in->bytes + 80);
    for (int32_t i = 0; i < tokens->n; i++) {
        int32_t id = specrt__snapshot_word(tokens, i);
        if (!specrt__active_valid(w->pool, id) || w->places[id] >= 0) return false;
        specrt__window_touch(w, id);
        if (!w->ring) specrt__active_want(w->pool, id, SPECRT__ACTIVE_WINDOW);
    }
    for (int32_t i = 0; i < ring->n; i++) {
        int32_t id = specrt__snapshot_word(ring, i);
        if (!specrt__active_valid(w->pool, id)) return false;
        specrt__window_append(w, id);
    }
    w->n_seed = seed->n;
    for (int32_t i = 0; i < seed->n; i++) w->seed[i] = specrt__snapshot_word(seed, i);
    for (; w->n_fill < n_fill; w->n_fill++) {
        int32_t id = specrt__window_frequent(w, w->n_fill);
        if (specrt__active_valid(w->pool, id))
            specrt__active_want(w->pool, id, SPECRT__ACTIVE_FILL);
    }
    return true;
}

static bool specrt__snapshot_enter_cache(specrt__retrieve *r, const specrt__snapshot *in) {
    const specrt__snapshot_list *ages = &in->lists[SPECRT__SNAPSHOT_AGES];
    specrt__arc *a = &r->arc;
    double p;
    memcpy(&p, in->bytes + 64, 8);
    if (!(p >= 0 && p <= a->capacity) || ages->n > a->capacity) return false;
    for (int32_t id = 0; id < a->n_ids; id++) /* keep=on outlives begin */
        if (specrt__arc_resident(a, id)) specrt__active_drop(r->pool, id, SPECRT__ACTIVE_RETRIEVE);
    specrt__arc_reset(a, p);
    specrt__retrieve_bar(r);
    r->n_cycles = SPECRT__ARC_RESIDENCY;
    r->n_events = (int32_t)specrt__base_load32(in->bytes + 84);
    r->n_blocked = 0;
    for (int list = SPECRT__ARC_T1, age = 0; list <= SPECRT__ARC_B2; list++) {
        const specrt__snapshot_list *ids = &in->lists[SPECRT__SNAPSHOT_T1 + list - SPECRT__ARC_T1];
        for (int32_t i = 0; i < ids->n; i++) {
            int32_t id = specrt__snapshot_word(ids, i);
            if (a->lists[id] != SPECRT__ARC_NONE || r->offered[id] == SPECRT__RETRIEVE_NEVER)
                return false;
            specrt__arc_move(a, id, list);
            if (!specrt__arc_resident(a, id)) continue;
            a->births[id] = r->n_cycles - specrt__snapshot_word(ages, age++);
            specrt__active_want(r->pool, id, SPECRT__ACTIVE_RETRIEVE);
        }
    }
    return true;
}

static void specrt__snapshot_enter_rest(specrt_session *s, const specrt__snapshot *in) {
    const specrt__snapshot_list *chain = &in->lists[SPECRT__SNAPSHOT_CHAIN];
    const specrt__snapshot_list *best = &in->lists[SPECRT__SNAPSHOT_CHAIN_BEST];
    s->position = (int64_t)specrt__base_load64(in->bytes + 32);
    s->cycle = (int64_t)specrt__base_load64(in->bytes + 40);
    s->sequence = specrt__base_load64(in->bytes + 48);
    s->sequence_named = specrt__base_load32(in->bytes + 72) != 0;
    specrt_verifier_set_sequence(s->verifier, specrt__base_load64(in->bytes + 56));
    specrt_tree_begin(s->tree, (int32_t)specrt__base_load32(in->bytes + 76));
    s->open.n = chain->n;
    s->open.n_accepted = (int32_t)specrt__base_load32(in->bytes + 88);
    s->open.told = best->n > 0;
    for (int32_t i = 0; i < chain->n; i++) s->open.tokens[i] = specrt__snapshot_word(chain, i);
    for (int32_t i = 0; i < best->n; i++) s->open.ids[i] = specrt__snapshot_word(best, i);
}

static specrt_status specrt__snapshot_enter(specrt_session *s, const specrt__snapshot *in,
                                            specrt_error *err) {
    const specrt__snapshot_list *rows = &in->lists[SPECRT__SNAPSHOT_ROWS];
    if (s->window && !specrt__snapshot_enter_window(s->window, in))
        return specrt__snapshot_damaged("window", err);
    if (s->retrieve && !specrt__snapshot_enter_cache(s->retrieve, in))
        return specrt__snapshot_damaged("cache", err);
    if (!specrt__active_arrange(s->pool, rows->words, rows->n))
        return specrt__snapshot_damaged("rows", err);
    specrt__snapshot_enter_rest(s, in);
    specrt__session_pack(s);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__snapshot_load(specrt_session *s, specrt__snapshot *in,
                                           specrt_error *err) {
    size_t at = 0;
    SPECRT__TRY(specrt__snapshot_check(in, err));
    SPECRT__TRY(specrt__snapshot_belongs(s, in, &at, err));
    if (!specrt__snapshot_cut(s, at, in)) return specrt__snapshot_damaged("lists", err);
    const char *wrong = specrt__snapshot_wrong(s, in);
    return wrong ? specrt__snapshot_damaged(wrong, err) : specrt__snapshot_enter(s, in, err);
}

SPECRT_API specrt_status specrt_session_load(specrt_session *s, const void *bytes, size_t n,
                                             specrt_error *err) {
    specrt__snapshot in;
    SPECRT__CLEAR(&in, 1);
    in.bytes = (const uint8_t *)bytes;
    in.n = bytes ? n : 0;
    specrt_session_begin(s);
    specrt_status status = specrt__snapshot_load(s, &in, err);
    if (status != SPECRT_STATUS_OK) specrt_session_begin(s);
    return status;
}
