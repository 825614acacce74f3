/* fuzz_engine.c : any bytes either fail to open as a model, or run. */
#include "engine/infer/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void run(const engine_model *m) {
    static const int32_t tokens[] = {0, 0, 0}, parents[] = {-1, 0, 0}, path[] = {0, 2};
    const engine_config *k = engine_get_config(m);
    engine_cache *c;
    specrt_error err;
    if ((int64_t)k->n_layers * k->n_kv_heads * k->d_head > 1 << 16) return; /* slow, not wrong */
    float *logits = (float *)malloc(3 * (size_t)k->n_vocab * sizeof *logits);
    if (logits && !engine_cache_create(m, k->n_context < 4 ? k->n_context : 4, &c, &err)) {
        if (!engine_forward(c, tokens, 3, parents, NULL, logits)) engine_keep(c, path, 2);
        engine_cache_close(c);
    }
    free(logits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    specrt_error err;
    engine_model *m;
    int fd = memfd_create("model", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    if (!engine_open(path, 1, &m, &err)) run(m);
    engine_close(m);
    close(fd);
    return 0;
}
