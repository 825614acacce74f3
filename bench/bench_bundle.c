/* bench_bundle.c : opening a bundle that ranks a 128,256-token vocabulary, best of many. */
#include "specrt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/measure.h"
#include "formats/bundle_write.h"

enum { N_VOCAB = 128256, REPEATS = 50 };

/* Ids in random order with counts that fall as 1 / rank, as a corpus gives them. */
static void fill(int32_t *ids, uint64_t *counts) {
    uint64_t random = 88172645463325252u;
    for (int32_t i = 0; i < N_VOCAB; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        int32_t j = (int32_t)(random % (uint64_t)(i + 1));
        ids[i] = ids[j], ids[j] = i;
        counts[i] = 40000000u / (uint64_t)(i + 1);
    }
}

static void write_bundle(const char *path, bool raw) {
    static int32_t ids[N_VOCAB];
    static uint64_t counts[N_VOCAB];
    specrt_ranks_header header = {.n_vocab = N_VOCAB,
                                  .n_ranked = N_VOCAB,
                                  .n_forced = 256,
                                  .n_valid = N_VOCAB,
                                  .n_default = 32768};
    bundle_part part;
    specrt_error err;
    fill(ids, counts);
    bundle_update update = {.parts = &part, .n_parts = 1, .raw = raw};
    if (sl_bundle_ranks(&header, ids, counts, &part, &err) != SPECRT_STATUS_OK ||
        sl_bundle_write(path, &update, &err) != SPECRT_STATUS_OK)
        fprintf(stderr, "%s\n", err.msg), exit(1);
    free((void *)(uintptr_t)part.data);
}

static void time_open(const char *path, const char *what) {
    double best = 1e9;
    size_t n_bytes = 0;
    for (int i = 0; i < REPEATS; i++) {
        specrt_bundle *bundle;
        double start = sl_measure_seconds();
        if (specrt_bundle_open(path, NULL, &bundle, NULL) != SPECRT_STATUS_OK) exit(1);
        double seconds = sl_measure_seconds() - start;
        if (seconds < best) best = seconds;
        int32_t n;
        n_bytes = (size_t)specrt_bundle_sections(bundle, &n)->stored_bytes;
        specrt_bundle_close(bundle);
    }
    printf("open, %s: %.2f ms (%zu bytes of ranks)\n", what, 1e3 * best, n_bytes);
}

int main(void) {
    char path[] = "/tmp/specrt-bench-XXXXXX";
    for (int raw = 0; raw < 2; raw++) {
        close(mkstemp(path));
        unlink(path);
        write_bundle(path, raw);
        time_open(path, raw ? "raw" : "zstd");
        unlink(path);
        memcpy(path + strlen(path) - 6, "XXXXXX", 6);
    }
    return 0;
}
