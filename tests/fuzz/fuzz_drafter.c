/* fuzz_drafter.c : an EAGLE head, MTP module or block drafter from any bytes either fails to open beside a
 * target, or drafts; so with its folder as other engines read it. The input is the length of config.json,
 * u16; config.json; the safetensors, or a GGUF. */
#include "engine/infer/engine.h"
#include "model/checkpoint.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 3, WIDTH = 4 * ENGINE_MAX_TAPS };

static engine_model *target; /* d_model 4, 5 layers, 7 tokens */
static char folder[] = "/tmp/fuzz_drafter.XXXXXX", config[64], weights[64];
static int config_fd, weights_fd; /* kept: closing a file that was emptied waits for the disk */

static int open_in_folder(const char *name, char path[64]) {
    snprintf(path, 64, "%s/%s", folder, name);
    return open(path, O_CREAT | O_WRONLY, 0600);
}

static void clean_up(void) {
    unlink(config);
    unlink(weights);
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    specrt_error err;
    (void)argc, (void)argv;
    if (engine_open("tests/fuzz/corpus/fuzz_engine/five_layers", 1, &target, &err) ||
        !mkdtemp(folder)) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    config_fd = open_in_folder("config.json", config);
    weights_fd = open_in_folder("draft.safetensors", weights);
    atexit(clean_up);
    return 0;
}

static void put(int fd, const uint8_t *bytes, size_t n) {
    if (pwrite(fd, bytes, n, 0) != (ssize_t)n || ftruncate(fd, (off_t)n)) abort();
}

static void draft_block(const engine_drafter *d, engine_cache *c, const float *features) {
    engine_block b = engine_drafter_block(d);
    float states[ENGINE_MAX_BATCH * 4];
    if (engine_block_read(d, c, features, N)) abort();
    for (int32_t n = b.size - b.first; n > 0; n--) /* the context has eight positions */
        if (engine_block_draft(d, c, 1, n, states) && n + b.first + N <= 8) abort();
}

static void draft(const engine_drafter *d) {
    static const int32_t tokens[N] = {1, 0, 2}, parents[N] = {-1, 0, 0}, path[] = {0, 2};
    static const float features[N * WIDTH];
    int32_t layers[ENGINE_MAX_TAPS];
    float hidden[N * 4], query[N * 4];
    specrt_head_desc desc;
    specrt_head *head;
    engine_cache *c;
    specrt_error err;
    engine_drafter_head(d, &desc);
    if (desc.n_cols != 4) return; /* an independent drafter of another width: fuzz_engine's */
    if (!specrt_head_bind(NULL, &desc, NULL, &head, &err)) specrt_head_close(head);
    if (engine_drafter_cache(d, 8, &c, &err)) return;
    int32_t width = engine_drafter_features(d, layers) ? 12 : 4;
    if (engine_drafter_block(d).size > 0) {
        draft_block(d, c, features);
    } else {
        if (engine_draft(d, c, tokens, features, width, N, parents, hidden, query)) abort();
        engine_keep(c, path, 2);
        if (engine_draft(d, c, tokens, hidden, 4, 1, NULL, hidden, query)) abort();
    }
    engine_cache_close(c);
}

static void look_into(void) {
    checkpoint c;
    token_map map;
    specrt_error err;
    if (sl_checkpoint_open(weights, true, &c, &err)) return;
    if (!sl_checkpoint_map(&c, TOKEN_MAP_AUTO, &map, &err)) {
        for (int32_t i = 0; i < map.n; i++)
            if (map.ids[i] < 0) abort();
        sl_token_map_free(&map);
    }
    if (sl_checkpoint_number(&c, "vocab_size") >= 0 && !c.config) abort();
    sl_checkpoint_close(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    engine_drafter *d;
    specrt_error err;
    size_t n = size < 2 ? 0 : (size_t)data[0] | (size_t)data[1] << 8;
    if (size < 2 || n > size - 2) return 0;
    put(config_fd, data + 2, n);
    put(weights_fd, data + 2 + n, size - 2 - n);
    if (!engine_drafter_open(weights, target, &d, &err)) draft(d);
    engine_drafter_close(d);
    look_into();
    return 0;
}
