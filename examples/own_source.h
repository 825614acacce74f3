/* own_source.h : a source of your own, `recent:N`: the last N distinct tokens of the output. A program that
 * includes this file in place of specrt.h may name the source in its policies, as in
 * "static:2048+recent:64". CONTRIBUTING.md, "To add a source", says what else a source may do. Names that
 * begin with specrt__ may change in any version.
 */
#ifndef OWN_SOURCE_H
#define OWN_SOURCE_H

/* Its line of the table: number, name, how many sizes a policy may give, the size when it gives none,
 * functions; whether a section of the bundle was made of the very head that drafts, and whether sizes may
 * be shares in %. */
extern const struct specrt__source recent_source;
#define SPECRT__MORE_SOURCES(SOURCE) SOURCE(RECENT, "recent", 1, 64, &recent_source, false, false)

#define SPECRT_IMPLEMENTATION
#include "specrt.h"

/* --- what the sessions of a policy share --- */

typedef struct recent_shared {
    specrt_env env;
    int32_t size;
} recent_shared;

static specrt_status recent_share(const specrt__source_request *request, specrt__source_shared *out,
                                  specrt_error *err) {
    const specrt_env *env = &request->head->compute.env;
    recent_shared *s = (recent_shared *)specrt__base_alloc(env, sizeof *s);
    if (!s) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "recent: out of memory");
    s->env = *env;
    s->size = request->size;
    out->data = s;
    out->bound = s->size;
    return SPECRT_STATUS_OK;
}

static void recent_unshare(void *shared) {
    specrt_env env = ((recent_shared *)shared)->env;
    specrt__base_free(&env, shared);
}

/* --- a session's --- */

typedef struct recent {
    specrt_env env;
    specrt__pool *pool;
    int32_t bit; /* by which it wants tokens of the pool */
    int32_t n, size;
    int32_t *ids; /* [size] oldest first */
} recent;

static void *recent_open(void *shared, const specrt__source_session *with) {
    int32_t size = ((const recent_shared *)shared)->size;
    size_t bytes = sizeof(recent) + (size_t)size * sizeof(int32_t);
    recent *r = (recent *)specrt__base_alloc(with->env, bytes);
    if (!r) return NULL;
    r->env = *with->env;
    r->pool = with->pool;
    r->bit = specrt__pool_register(with->pool);
    r->n = 0;
    r->size = size;
    r->ids = (int32_t *)(void *)(r + 1);
    return r;
}

static void recent_close(void *state) {
    specrt_env env = ((recent *)state)->env;
    specrt__base_free(&env, state);
}

/* The pool was emptied. */
static void recent_begin(void *state) {
    ((recent *)state)->n = 0;
}

static void recent_leave(recent *r, int32_t i) {
    memmove(r->ids + i, r->ids + i + 1, (size_t)(--r->n - i) * sizeof *r->ids);
}

static void recent_push(void *state, int32_t id) {
    recent *r = (recent *)state;
    int32_t i = 0;
    if (!specrt__pool_valid(r->pool, id)) return;
    while (i < r->n && r->ids[i] != id) i++;
    if (i < r->n) recent_leave(r, i);
    if (r->n == r->size) {
        specrt__pool_drop(r->pool, r->ids[0], r->bit);
        recent_leave(r, 0);
    }
    r->ids[r->n++] = id;
    specrt__pool_want(r->pool, id, r->bit);
}

static void recent_observe(void *state, const specrt__source_cycle *cycle) {
    for (int32_t i = 0; i < cycle->verdict->n; i++) recent_push(state, cycle->verdict->tokens[i]);
}

/* --- saved sessions: one list --- */

static void recent_limits(const void *state, int32_t *most) {
    *most = ((const recent *)state)->size;
}

static void recent_save(const void *state, specrt__save *out) {
    const recent *r = (const recent *)state;
    specrt__save_list(out, r->ids, r->n);
}

static const char *recent_load(void *state, const specrt__saved *in) {
    for (int32_t i = 0; i < in->lists->n; i++) recent_push(state, specrt__saved_word(in->lists, i));
    return ((recent *)state)->n == in->lists->n ? NULL : "recent";
}

const specrt__source recent_source = {
    SPECRT__SOURCE_HAS_NO_OPTIONS,
    /* share = */ recent_share,
    /* unshare = */ recent_unshare,
    /* open = */ recent_open,
    /* close = */ recent_close,
    /* route = */ NULL,
    /* begin = */ recent_begin,
    /* prefill = */ NULL,
    /* start = */ recent_push,
    /* observe = */ recent_observe,
    /* settle = */ NULL,
    /* n_lists = */ 1,
    /* always_saved = */ false,
    /* limits = */ recent_limits,
    /* save = */ recent_save,
    /* load = */ recent_load,
};

#endif
