/* specrt_llama_taps.c : states of the target that a drafter reads, by llama.cpp's public API alone. Its
 * staging API hands them over; here cb_eval reads the same nodes. */
#include "specrt_llama_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ggml-backend.h"

void specrt_llama_taps_name(specrt_llama_taps *taps, int k, const char *node) {
    size_t n = strlen(taps->named);
    snprintf(taps->nodes[k], sizeof taps->nodes[k], "%s", node);
    snprintf(taps->named + n, sizeof taps->named - n, "%s%s", n > 0 ? ", " : "", node);
    taps->n_nodes = k + 1;
}

void specrt_llama_taps_layer(specrt_llama_taps *taps, int k, int32_t layer) {
    char node[24];
    snprintf(node, sizeof node, "l_out-%d", (int)layer - 1);
    specrt_llama_taps_name(taps, k, node);
}

specrt_status specrt_llama_check_taps(const specrt_llama_head *head,
                                      const struct llama_model *target, const char *key,
                                      specrt_error *err) {
    int32_t n_layers = llama_model_n_layer(target), n = head->n_target_layers;
    if (n > SPECRT_LLAMA_TAPS)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "drafter: %s: expected at most %d layers, found %d", key,
                                SPECRT_LLAMA_TAPS, (int)n);
    for (int32_t k = 0; k < n || k == 0; k++) {
        int32_t layer = n > 0 ? head->target_layers[k] : 0;
        if (layer >= 1 && layer < n_layers) continue;
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "drafter: %s: expected layers from 1 on and below the target's %d, "
                                "found %d: is its file the one whose head was opened, and the "
                                "target its own?",
                                key, (int)n_layers, (int)layer);
    }
    return SPECRT_STATUS_OK;
}

bool specrt_llama_taps_start(specrt_llama *s) {
    specrt_llama_taps *taps = &s->taps;
    size_t n = (size_t)s->n_batch, width = (size_t)taps->n_nodes * (size_t)taps->d_target;
    taps->width = (int32_t)width;
    taps->rows = (float *)malloc(n * width * sizeof(float));
    taps->waiting = (float *)malloc((n + SPECRT_TREE_MAX_NODES) * width * sizeof(float));
    return taps->rows && taps->waiting;
}

void specrt_llama_taps_close(specrt_llama_taps *taps) {
    free(taps->rows);
    free(taps->waiting);
}

/* Which of them a node is, as bits: a small target may have two of them in one layer. */
static int states_of(const specrt_llama_taps *taps, const struct ggml_tensor *t) {
    int bits = 0;
    for (int k = 0; k < taps->n_nodes; k++)
        if (strcmp(t->name, taps->nodes[k]) == 0) bits |= 1 << k;
    return bits;
}

bool specrt_llama_taps_want(const specrt_llama *s, const struct ggml_tensor *t) {
    return states_of(&s->taps, t) != 0;
}

static bool fits(const specrt_llama *s, const struct ggml_tensor *t, int64_t n_cols) {
    return t->type == GGML_TYPE_F32 && t->ne[0] == n_cols && t->ne[1] <= s->n_batch;
}

bool specrt_llama_copy_rows(const specrt_llama *s, struct ggml_tensor *t, float *to, int32_t d,
                            int64_t *n) {
    if (!fits(s, t, d)) return false;
    *n = t->ne[1];
    ggml_backend_tensor_get(t, to, 0, ggml_nbytes(t));
    return true;
}

void specrt_llama_taps_take(specrt_llama *s, struct ggml_tensor *t) {
    specrt_llama_taps *taps = &s->taps;
    int32_t d = taps->d_target, n = taps->n_nodes;
    int bits = states_of(taps, t);
    if (!fits(s, t, d)) return;
    for (int64_t i = 0; i < t->ne[1] * n; i++)
        if (bits >> i % n & 1)
            ggml_backend_tensor_get(t, taps->rows + i * d, (size_t)(i / n) * t->nb[1],
                                    (size_t)d * sizeof(float));
    taps->n_rows = t->ne[1];
    taps->found |= bits;
}

int specrt_llama_taps_saw(specrt_llama *s, int32_t n) {
    specrt_llama_taps *taps = &s->taps;
    bool all = taps->found == (1 << taps->n_nodes) - 1 && taps->n_rows == n;
    taps->found = 0;
    if (all) return 0;
    return specrt_llama_fail(s, "target: its graph has no %s of %d rows", taps->named, (int)n);
}

void specrt_llama_taps_keep(specrt_llama *s, const int32_t *nodes, int32_t n) {
    size_t width = (size_t)s->taps.width;
    float *to = s->taps.waiting + (size_t)(s->n_past - s->n_read) * width;
    for (int32_t i = 0; i < n; i++, to += width)
        memcpy(to, s->taps.rows + (size_t)(nodes ? nodes[i] : i) * width, width * sizeof *to);
}

void specrt_llama_taps_drop(specrt_llama *s, int32_t n) {
    size_t width = (size_t)s->taps.width, left = (size_t)(s->n_past - s->n_read - n);
    float *waiting = s->taps.waiting;
    memmove(waiting, waiting + (size_t)n * width, left * width * sizeof *waiting);
    s->n_read += n;
}
