/* snapshot.c : owns saved sessions (docs/FORMAT.md, "Saved sessions"): a header, the policy's text, then
 * lists of words of 32 bits, each with its length. Refuses bytes of another version, policy or
 * vocabulary, damaged ones, and lists that no session could have: whatever is in them, indices stay
 * within their arrays. */
#include "decode/snapshot.h"
#include "core/base.h"
#include "core/pool.h"
#include "sources/source.h"
#include "sources/saved.h"
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

/* --- lists --- */

/* A source whose lists a save has. */
typedef struct specrt__snapshot_part {
    const specrt__source *source;
    void *state; /* NULL: the policy does not have it, and its lists are empty */
} specrt__snapshot_part;

/* The parts in the order of the table: of sources that the policy has, and of those that are always saved.
 * @return how many. */
static int specrt__snapshot_parts(const specrt_session *s, specrt__snapshot_part *parts) {
    int n = 0;
    for (int kind = 0; kind < (int)SPECRT__POLICY_KINDS; kind++) {
        const specrt__source *source = specrt__policy_kinds[kind].source;
        if (!source || source->n_lists == 0) continue;
        parts[n].source = source;
        parts[n].state = specrt__session_state(s, kind);
        n += parts[n].state || source->always_saved;
    }
    return n;
}

/* The most words that each list may have. @return how many lists there are. */
static int specrt__snapshot_limits(const specrt_session *s, int32_t most[SPECRT__SNAPSHOT_LISTS]) {
    specrt__snapshot_part parts[SPECRT__SNAPSHOT_PARTS];
    int n_parts = specrt__snapshot_parts(s, parts), n = 0;
    memset(most, 0, SPECRT__SNAPSHOT_LISTS * sizeof *most);
    most[n++] = s->pool->capacity;
    for (int i = 0; i < n_parts; n += parts[i++].source->n_lists)
        if (parts[i].state) parts[i].source->limits(parts[i].state, most + n);
    most[n++] = SPECRT_TREE_MAX_NODES;
    most[n++] = SPECRT_TREE_MAX_NODES * SPECRT_LOGITS_MAX_K;
    return n;
}

/* The most that a save takes. */
static size_t specrt__snapshot_bound(const specrt_session *s) {
    int32_t most[SPECRT__SNAPSHOT_LISTS];
    int n = specrt__snapshot_limits(s, most);
    size_t words = (size_t)n;
    for (int i = 0; i < n; i++) words += (size_t)most[i];
    return SPECRT__SAVED_HEADER + specrt__snapshot_text(s) + 4 * words;
}

/* --- writing --- */

/* Packed tokens by slot; the parts; a chain that waits for its last token, and the target's best there. */
static void specrt__snapshot_put_lists(specrt__save *out, const specrt_session *s) {
    specrt__snapshot_part parts[SPECRT__SNAPSHOT_PARTS];
    const specrt__session_open *open = &s->open;
    int n_parts = specrt__snapshot_parts(s, parts);
    specrt__save_list(out, s->pool->ids, s->pool->n_rows);
    for (int i = 0; i < n_parts; i++) {
        if (parts[i].state) parts[i].source->save(parts[i].state, out);
        for (int j = 0; j < parts[i].source->n_lists && !parts[i].state; j++)
            specrt__save_word(out, 0);
    }
    specrt__save_list(out, open->tokens, open->n);
    specrt__save_list(out, open->ids,
                      open->n > 0 && open->told ? open->n * SPECRT_LOGITS_MAX_K : 0);
}

/* What sources keep in the header is there already. */
static void specrt__snapshot_put_header(uint8_t *h, const specrt_session *s, size_t n_bytes) {
    uint32_t version = SPECRT__SNAPSHOT_VERSION, n = (uint32_t)n_bytes, at = (uint32_t)s->at;
    uint32_t n_text = (uint32_t)strlen(s->policy->text);
    uint64_t digest = specrt__snapshot_digest(s);
    memcpy(h, "SPECRSES", 8);
    memcpy(h + 8, &version, 4);
    memcpy(h + 12, &n, 4);
    memcpy(h + 24, &digest, 8);
    memcpy(h + 32, &s->position, 8);
    memcpy(h + 40, &s->cycle, 8);
    memcpy(h + 48, &s->generation, 8);
    memcpy(h + 56, &s->verifier->sampling.generation, 8);
    memcpy(h + 72, &at, 4);
    memcpy(h + 76, &s->tree->root, 4);
    memcpy(h + 88, &s->open.n_accepted, 4);
    memcpy(h + 92, &n_text, 4);
    memcpy(h + SPECRT__SAVED_HEADER, s->policy->text, n_text);
    uint64_t sum =
        specrt_hash64(h + SPECRT__SNAPSHOT_CHECKED, n_bytes - SPECRT__SNAPSHOT_CHECKED, 0);
    memcpy(h + 16, &sum, 8);
}

/* What was learnt is all taken over, and what is wanted packed. */
static void specrt__snapshot_settle(specrt_session *s) {
    for (int i = s->policy->n_sources; i-- > 0;)
        if (s->policy->sources[i].source->settle)
            s->policy->sources[i].source->settle(s->states[i]);
    if (s->pool->n_changed > 0) specrt__session_pack(s);
}

SPECRT_API specrt_status specrt_session_save(specrt_session *s, void *bytes, size_t capacity,
                                             size_t *n_bytes) {
    SPECRT__SESSION_NEEDS(s, n_bytes, "save");
    *n_bytes = 0;
    bool drafting = s->at & SPECRT__AT_DRAFTED || (s->level > 0 && s->open.n == 0);
    if (drafting && capacity > 0)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER,
                                "save: expected specrt_session_accept() or observe() first, which "
                                "end the cycle");
    specrt__save w = {NULL, SPECRT__SAVED_HEADER + specrt__snapshot_text(s)};
    *n_bytes = specrt__snapshot_bound(s);
    if (*n_bytes > UINT32_MAX)
        return specrt_error_set(&s->error, SPECRT_STATUS_UNSUPPORTED,
                                "save: expected at most %u bytes, found %llu", UINT32_MAX,
                                (unsigned long long)*n_bytes);
    if (capacity == 0) return SPECRT_STATUS_OK;
    SPECRT__SESSION_NEEDS(s, bytes, "save");
    specrt__snapshot_settle(s);
    specrt__snapshot_put_lists(&w, s);
    *n_bytes = w.n;
    if (capacity < w.n)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "save: capacity: expected at least %llu bytes, found %llu",
                                (unsigned long long)w.n, (unsigned long long)capacity);
    w.bytes = (uint8_t *)bytes;
    w.n = SPECRT__SAVED_HEADER + specrt__snapshot_text(s);
    memset(w.bytes, 0, w.n);
    specrt__snapshot_put_lists(&w, s); /* the checksum in the header is of them too */
    specrt__snapshot_put_header(w.bytes, s, w.n);
    return SPECRT_STATUS_OK;
}

/* --- reading --- */

typedef struct specrt__snapshot {
    const uint8_t *bytes;
    size_t n;
    int n_lists; /* packed tokens first, the chain and the target's best there last */
    specrt__saved_list lists[SPECRT__SNAPSHOT_LISTS];
} specrt__snapshot;

static specrt_status specrt__snapshot_damaged(const char *what, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_SESSION_DAMAGED,
                            "session: %s: expected what a session saved, found something else; "
                            "start a new sequence",
                            what);
}

/* What can be told before anything in it is believed. */
static specrt_status specrt__snapshot_check(const specrt__snapshot *in, specrt_error *err) {
    if (in->n < 8 || memcmp(in->bytes, "SPECRSES", 8) != 0)
        return specrt_error_set(err, SPECRT_STATUS_SESSION_MAGIC,
                                "session: expected bytes of specrt_session_save(), found others");
    if (in->n < SPECRT__SAVED_HEADER) return specrt__snapshot_damaged("header", err);
    uint32_t version = specrt__base_load32(in->bytes + 8);
    if (version < 1 || version > SPECRT__SNAPSHOT_VERSION)
        return specrt_error_set(err, SPECRT_STATUS_SESSION_VERSION,
                                "session: version: expected 1 to %d, found %u; save it again",
                                (int)SPECRT__SNAPSHOT_VERSION, (unsigned)version);
    if (specrt__base_load32(in->bytes + 12) != in->n)
        return specrt_error_set(err, SPECRT_STATUS_SESSION_DAMAGED,
                                "session: expected %u bytes, found %llu; start a new sequence",
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
    const char *text = (const char *)in->bytes + SPECRT__SAVED_HEADER;
    size_t n_text = specrt__base_load32(in->bytes + 92);
    if (n_text > in->n - SPECRT__SAVED_HEADER) return specrt__snapshot_damaged("policy", err);
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
    *at = SPECRT__SAVED_HEADER + specrt__snapshot_text(s);
    return SPECRT_STATUS_OK;
}

static bool specrt__snapshot_cut(const specrt_session *s, size_t at, specrt__snapshot *in) {
    int32_t most[SPECRT__SNAPSHOT_LISTS];
    in->n_lists = specrt__snapshot_limits(s, most);
    for (int i = 0; i < in->n_lists; i++) {
        if (at > in->n || in->n - at < 4) return false;
        uint32_t n = specrt__base_load32(in->bytes + at);
        if (n > (uint32_t)most[i]) return false;
        in->lists[i].n = (int32_t)n;
        in->lists[i].words = in->bytes + at + 4;
        at += 4 + 4 * (size_t)n;
    }
    return at == in->n;
}

/* Where the session was in the order of calls; 0: nowhere. Version 1 does not say, so its sessions may do
 * whatever such bytes allow: continue the prompt, or the tree that they have. */
static int specrt__snapshot_at(const specrt__snapshot *in) {
    uint32_t at = specrt__base_load32(in->bytes + 72);
    bool open = in->lists[in->n_lists - 2].n > 0;
    if (specrt__base_load32(in->bytes + 8) == 1)
        return open ? SPECRT__AT_OPEN : SPECRT__AT_PROMPT | SPECRT__AT_READ | SPECRT__AT_DRAFT;
    const uint32_t places = SPECRT__AT_CREATED | SPECRT__AT_PROMPT | SPECRT__AT_READ |
                            SPECRT__AT_OPEN | SPECRT__AT_DRAFT | SPECRT__AT_ENDED;
    return (at & ~places) == 0 && open == ((at & SPECRT__AT_OPEN) != 0) ? (int)at : 0;
}

/* Every index within its array, but for what the target thought best: those are checked before use, as an
 * application's are. Sources check their own lists. @return what is wrong, or NULL. */
static const char *specrt__snapshot_wrong(const specrt_session *s, const specrt__snapshot *in) {
    const specrt__saved_list *chain = &in->lists[in->n_lists - 2];
    const int32_t n_vocab = s->verifier->n_vocab, n_best = in->lists[in->n_lists - 1].n;
    int32_t root = (int32_t)specrt__base_load32(in->bytes + 76);
    int32_t n_accepted = (int32_t)specrt__base_load32(in->bytes + 88);
    if (!specrt__saved_within(&in->lists[0], s->pool->n_ids)) return "tokens";
    if (specrt__base_load64(in->bytes + 32) > INT64_MAX / 2) return "position"; /* and goes on */
    if (specrt__base_load64(in->bytes + 40) > INT64_MAX / 2) return "cycle";
    if (root < 0 || root >= n_vocab) return "root";
    if (specrt__snapshot_at(in) == 0) return "place in the order of calls";
    if (n_accepted < 0 || (chain->n > 0 && n_accepted >= chain->n) ||
        (n_best > 0 && n_best != chain->n * SPECRT_LOGITS_MAX_K) ||
        !specrt__saved_within(chain, n_vocab))
        return "chain";
    return NULL;
}

/* --- becoming what was saved: the session is as after begin --- */

static void specrt__snapshot_enter_rest(specrt_session *s, const specrt__snapshot *in) {
    const specrt__saved_list *chain = &in->lists[in->n_lists - 2], *best = chain + 1;
    s->position = (int64_t)specrt__base_load64(in->bytes + 32);
    s->cycle = (int64_t)specrt__base_load64(in->bytes + 40);
    s->at = specrt__snapshot_at(in);
    s->generation = specrt__base_load64(in->bytes + 48);
    specrt_verifier_set_generation(s->verifier, specrt__base_load64(in->bytes + 56));
    specrt_tree_begin(s->tree, (int32_t)specrt__base_load32(in->bytes + 76));
    s->open.n = chain->n;
    s->open.n_accepted = (int32_t)specrt__base_load32(in->bytes + 88);
    s->open.told = best->n > 0;
    memcpy(s->open.tokens, chain->words, 4 * (size_t)chain->n);
    memcpy(s->open.ids, best->words, 4 * (size_t)best->n);
}

static specrt_status specrt__snapshot_enter(specrt_session *s, const specrt__snapshot *in,
                                            specrt_error *err) {
    specrt__snapshot_part parts[SPECRT__SNAPSHOT_PARTS];
    specrt__saved own = {in->bytes, in->lists + 1};
    int n_parts = specrt__snapshot_parts(s, parts);
    for (int i = 0; i < n_parts; own.lists += parts[i++].source->n_lists) {
        const char *wrong = parts[i].state ? parts[i].source->load(parts[i].state, &own) : NULL;
        if (wrong) return specrt__snapshot_damaged(wrong, err);
    }
    if (!specrt__pool_arrange(s->pool, in->lists[0].words, in->lists[0].n))
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

SPECRT_API specrt_status specrt_session_load(specrt_session *s, const void *bytes, size_t n) {
    specrt__snapshot in;
    SPECRT__SESSION_NEEDS(s, bytes, "load");
    SPECRT__CLEAR(&in, 1);
    in.bytes = (const uint8_t *)bytes;
    in.n = n;
    specrt__session_reset(s);
    specrt_status status = specrt__snapshot_load(s, &in, &s->error);
    if (status != SPECRT_STATUS_OK) specrt__session_reset(s);
    return status;
}
