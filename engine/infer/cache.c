/* cache.c : one sequence's keys and values, and the scratch of its passes. */
#include "specrt_tools.h"
#include "engine/infer/engine_impl.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"

/* Rows that begin where a line of the CPU's cache does are multiplied faster. */
enum { LINE = 64 };

/* All rows of scratch in one block: *at advances past n rows of `width` floats. */
static float *carve(float *block, size_t *at, size_t n, size_t width) {
    const size_t line = LINE / sizeof(float);
    float *rows = block ? block + *at : NULL;
    *at += (n * width + line - 1) / line * line;
    return rows;
}

/* Lay the arrays out over `block`; with NULL only count. @return floats needed. */
static size_t lay_arrays(engine_cache *c, float *block) {
    const engine_config *k = &c->m->config;
    size_t at = 0, rows = ENGINE_MAX_BATCH, d = (size_t)k->d_model, ffn = (size_t)k->d_ffn;
    size_t q = (size_t)k->n_heads * (size_t)k->d_head;
    size_t kv = (size_t)k->n_kv_heads * (size_t)k->d_head, slots = (size_t)c->n_slots;
    c->keys = carve(block, &at, (size_t)k->n_layers * slots, kv);
    c->values = carve(block, &at, (size_t)k->n_layers * slots, kv);
    c->x = carve(block, &at, rows, d);
    c->normed = carve(block, &at, rows, d);
    c->q = carve(block, &at, rows, q);
    c->k = carve(block, &at, rows, kv);
    c->v = carve(block, &at, rows, kv);
    c->attended = carve(block, &at, rows, q);
    c->gate = carve(block, &at, rows, ffn);
    c->up = carve(block, &at, rows, ffn);
    c->rope = carve(block, &at, rows, (size_t)k->d_head);
    c->window_rope = carve(block, &at, k->window ? rows : 0, (size_t)k->d_head);
    c->input = carve(block, &at, rows, (size_t)c->m->d_input);
    c->low = carve(block, &at, rows, ENGINE_MAX_RANK);
    c->scores = carve(block, &at, (size_t)c->n_attend, engine_attend_floats(c->m, c->n_slots));
    return at;
}

specrt_status engine_cache_create(const engine_model *m, int32_t n_context, engine_cache **out,
                                  specrt_error *err) {
    *out = NULL;
    if (n_context == 0) n_context = m->config.n_context;
    if (n_context < ENGINE_LEAST_CONTEXT || n_context > m->config.n_context)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "context: expected %d to %d positions, found %d",
                                ENGINE_LEAST_CONTEXT, m->config.n_context, n_context);
    engine_cache *c = (engine_cache *)calloc(1, sizeof *c);
    if (c) {
        c->m = m;
        c->n_context = n_context;
        c->n_slots = n_context + ENGINE_MAX_OPEN;
        c->n_attend = 2 * sl_parallel_pool_threads(m->pool);
        size_t floats = lay_arrays(c, NULL);
        void *block;
        if (posix_memalign(&block, LINE, floats * sizeof(float)) == 0) {
            lay_arrays(c, (float *)block);
            *out = c;
            return SPECRT_STATUS_OK;
        }
    }
    free(c);
    return sl_error_no_memory_for(err, "a cache of %d positions", n_context);
}

void engine_cache_close(engine_cache *c) {
    if (!c) return;
    free(c->keys); /* the block begins with them */
    free(c);
}

int32_t engine_cache_length(const engine_cache *c) {
    return c->length;
}

void engine_cache_truncate(engine_cache *c, int32_t n_tokens) {
    if (n_tokens < c->length) c->length = n_tokens;
    c->n_open = 0;
}

void engine_tap(engine_cache *c, const int32_t *layers, int32_t n_layers, float *out) {
    c->tap_layers = layers;
    c->n_tap = out ? n_layers : 0;
    c->tap = out;
}

void engine_capture(engine_cache *c, bool pairs, float *out) {
    c->captured = out;
    c->capture_pairs = pairs;
}

/* Nodes ascend along a path and node i of the path is at least i, so copying forward in place never
 * overwrites what is still to be read. */
void engine_keep(engine_cache *c, const int32_t *nodes, int32_t n) {
    const engine_config *k = &c->m->config;
    size_t d = (size_t)k->d_head;
    int64_t n_rows = (int64_t)k->n_layers * k->n_kv_heads;
    for (int64_t row = 0; row < n_rows; row++) {
        float *keys = c->keys + ((size_t)row * (size_t)c->n_slots + (size_t)c->length) * d;
        float *values = c->values + ((size_t)row * (size_t)c->n_slots + (size_t)c->length) * d;
        for (int32_t i = 0; i < n; i++) {
            if (nodes[i] == i) continue;
            memcpy(keys + (size_t)i * d, keys + (size_t)nodes[i] * d, d * sizeof *keys);
            memcpy(values + (size_t)i * d, values + (size_t)nodes[i] * d, d * sizeof *values);
        }
    }
    c->length += n;
    c->n_open = 0;
}

specrt_status engine_prefill(engine_cache *c, const int32_t *tokens, int32_t n, float *hidden,
                             float *logits, void (*each)(void *user, const float *rows, int32_t k),
                             void *user) {
    int32_t nodes[ENGINE_MAX_BATCH];
    int32_t d = c->m->config.d_model;
    for (int32_t i = 0; i < ENGINE_MAX_BATCH; i++) nodes[i] = i;
    c->n_open = 0;
    if (n < 1 || n > c->n_context - c->length) return SPECRT_STATUS_BAD_ARG;
    for (int32_t done = 0; done < n;) {
        int32_t k = n - done < ENGINE_MAX_BATCH ? n - done : ENGINE_MAX_BATCH;
        specrt_status status = engine_forward(c, tokens + done, k, NULL, NULL, NULL);
        if (status != SPECRT_STATUS_OK) return status;
        if (each) each(user, c->normed, k);
        done += k;
        engine_keep(c, nodes, k);
        if (done == n) {
            const float *last = c->normed + (int64_t)(k - 1) * d;
            if (hidden) memcpy(hidden, last, sizeof(float) * (size_t)d);
            if (logits) engine_score(c->m, last, 1, logits);
        }
    }
    return SPECRT_STATUS_OK;
}
