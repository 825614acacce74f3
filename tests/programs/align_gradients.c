/* align_gradients.c : our side of the interoperability test of alignment.
 *   align_gradients TARGET DRAFT lora|full
 * reads raw numbers from standard input: i32 n, n_queries, positions [n], queries [n_queries, 5] (row, first,
 * n, path, n_path), f32 masters, inputs [n, width], dh [n_queries, d]; writes f32 hidden [n_queries, d], the
 * gradients, and the masters after a step of AdamW at 0.01 without clipping. */
#include "engine/train/align.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what) {
    fprintf(stderr, "align_gradients: %s\n", what);
    exit(1);
}

static void *read_all(size_t size, size_t n) {
    void *data = malloc(size * n + 1);
    if (!data || fread(data, size, n, stdin) != n) fail("short input");
    return data;
}

static void write_all(const float *data, int64_t n) {
    if (fwrite(data, sizeof *data, (size_t)n, stdout) != (size_t)n) fail("short write");
}

int main(int argc, char **argv) {
    engine_align_params params = ENGINE_ALIGN_DEFAULTS;
    engine_model *target;
    engine_drafter *drafter;
    engine_align *a;
    specrt_error err;
    const float *hidden;
    int64_t n_values;
    if (argc != 4) fail("expected TARGET DRAFT lora|full");
    params.mode = strcmp(argv[3], "full") == 0 ? ENGINE_ALIGN_FULL : ENGINE_ALIGN_LORA;
    params.rank = 8, params.alpha = 12, params.rate = 0.01f, params.clip = 0;
    if (engine_open(argv[1], 2, &target, &err)) fail(err.msg);
    if (engine_drafter_open(argv[2], target, &drafter, &err)) fail(err.msg);
    if (engine_align_create(drafter, &params, NULL, &a, &err)) fail(err.msg);
    int32_t *counts = (int32_t *)read_all(sizeof *counts, 2),
            d = engine_get_config(target)->d_model;
    size_t n = (size_t)counts[0], m = (size_t)counts[1];
    engine_align_rows rows = {.n = counts[0], .n_queries = counts[1]};
    rows.positions = (int32_t *)read_all(sizeof(int32_t), n);
    rows.queries = (engine_align_query *)read_all(sizeof(engine_align_query), m);
    float *masters = engine_align_masters(a, &n_values);
    float *given = (float *)read_all(sizeof *given, (size_t)n_values);
    memcpy(masters, given, sizeof *given * (size_t)n_values);
    rows.inputs = (float *)read_all(sizeof(float), n * (size_t)engine_align_width(a));
    float *dh = (float *)read_all(sizeof *dh, m * (size_t)d);
    if (engine_align_forward(a, &rows, &hidden)) fail("out of memory");
    write_all(hidden, (int64_t)m * d);
    engine_align_backward(a, &rows, dh);
    write_all(engine_align_gradients(a), n_values);
    if (!engine_align_step(a, 1)) fail("a gradient is not finite");
    write_all(masters, n_values);
    free(counts);
    free((void *)rows.positions);
    free((void *)rows.queries);
    free((void *)rows.inputs);
    free(given);
    free(dh);
    engine_align_free(a);
    engine_drafter_close(drafter);
    engine_close(target);
    return 0;
}
