/* bench_engine.c : the CPU engine on a real pair: prefill and passes over a batch as a share of one
 * core's peak, and where the time of a decoding cycle goes.
 *   bench_engine [TARGET.gguf DRAFT]   without them, weights/pair128k in $SPECRT_DATA */
#include "engine/infer/decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../tests/fixture.h"
#include "base/measure.h"
#include "machine.h"

enum { N_PROMPT = 512, N_TOKENS = 96, REPEATS = 7 };

__attribute__((noreturn)) static void fail(const char *what) {
    fprintf(stderr, "bench_engine: %s\n", what);
    exit(1);
}

/* ---- the machine ----------------------------------------------------------------------------- */

/* GB/s of one core over n bytes. */
static double measure_bandwidth(size_t bytes) {
    uint64_t *words = (uint64_t *)malloc(bytes);
    double best = 1e9;
    if (!words) fail("out of memory");
    for (size_t i = 0; i < bytes / 8; i++) words[i] = i;
    for (int i = 0; i < REPEATS; i++) machine_read_time(words, bytes, &best);
    free(words);
    return (double)bytes / best * 1e-9;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* Multiply-adds of a token's products with the layers, head apart. */
static double layer_products(const engine_config *k) {
    double d = k->d_model, q = (double)k->n_heads * k->d_head,
           kv = (double)k->n_kv_heads * k->d_head;
    return k->n_layers * (d * (2 * q + 2 * kv) + 3.0 * d * k->d_ffn);
}

static double attention_products(const engine_config *k, double n_keys) {
    return 2.0 * k->n_layers * k->n_heads * k->d_head * n_keys;
}

static void fill_prompt(const engine_model *m, int32_t *tokens) {
    uint64_t state = 3;
    uint32_t n = (uint32_t)engine_get_config(m)->n_vocab;
    for (int i = 0; i < N_PROMPT; i++) tokens[i] = (int32_t)((fixture_random(&state) >> 32) % n);
}

static void bench_prefill(const char *path, int threads) {
    engine_model *m;
    engine_cache *c;
    specrt_error err;
    int32_t tokens[N_PROMPT];
    double best = 1e9;
    if (engine_open(path, threads, &m, &err) || engine_cache_create(m, 0, &c, &err)) fail(err.msg);
    const engine_config *k = engine_get_config(m);
    int32_t n = k->n_context < N_PROMPT ? k->n_context : N_PROMPT;
    fill_prompt(m, tokens);
    for (int i = 0; i < REPEATS; i++) {
        engine_cache_truncate(c, 0);
        double start = sl_measure_seconds();
        if (engine_prefill(c, tokens, n, NULL, NULL, NULL, NULL)) fail("prefill");
        keep_least(&best, start);
    }
    double flops = 2 * n * (layer_products(k) + attention_products(k, 0.5 * n));
    double peak = 1e-9 * machine_peak();
    printf("prefill %d tokens, %d threads: %.0f tokens/s, %.1f GFLOP/s, %.0f%% of %d cores' peak\n",
           (int)n, threads, n / best, flops / best * 1e-9,
           100 * flops / best * 1e-9 / (peak * threads), threads);
    engine_cache_close(c);
    engine_close(m);
}

/* Passes of the target with logits, against reading its weights once. */
static void bench_passes(const engine_model *m, double bytes, double bandwidth) {
    static const int32_t batches[] = {1, 8, 60};
    engine_cache *c;
    specrt_error err;
    int32_t tokens[N_PROMPT];
    const engine_config *k = engine_get_config(m);
    float *logits = (float *)malloc(60 * (size_t)k->n_vocab * sizeof *logits);
    if (!logits || engine_cache_create(m, 0, &c, &err)) fail("no memory");
    fill_prompt(m, tokens);
    if (engine_prefill(c, tokens, 128, NULL, NULL, NULL, NULL)) fail("prefill");
    for (int b = 0; b < 3; b++) {
        double best = 1e9, flops;
        for (int i = 0; i < REPEATS; i++) {
            engine_cache_truncate(c, 128);
            double start = sl_measure_seconds();
            if (engine_forward(c, tokens, batches[b], NULL, NULL, logits)) fail("forward");
            keep_least(&best, start);
        }
        double peak = 1e-9 * machine_peak();
        flops = 2 * batches[b] * (layer_products(k) + (double)k->n_vocab * k->d_model);
        printf(
            "pass of %2d tokens, 1 thread: %6.2f ms, %.1f GFLOP/s (%.0f%% of peak); reading %.0f "
            "MB of weights at %.1f GB/s takes %.2f ms\n",
            (int)batches[b], 1e3 * best, flops / best * 1e-9, 100 * flops / best * 1e-9 / peak,
            bytes * 1e-6, bandwidth, 1e3 * bytes * 1e-9 / bandwidth);
    }
    free(logits);
    engine_cache_close(c);
}

/* ---- a cycle --------------------------------------------------------------------------------- */

static void print_cycle(const char *name, const engine_decoder *d, int64_t n_tokens,
                        double seconds) {
    const engine_decode_times *t = engine_decoder_times(d);
    double n = (double)(n_tokens - 1);
    specrt_session_stats stats = {0};
    if (engine_decoder_session(d)) {
        specrt_session_get_stats(engine_decoder_session(d), &stats);
        n = (double)stats.n_cycles;
    }
    printf(
        "%-28s %5.2f ms/token; a cycle of %.2f tokens: draft %.2f, head %.2f, target %.2f, verify "
        "%.2f, update %.2f ms\n",
        name, 1e3 * seconds / (double)(n_tokens - 1), (double)(n_tokens - 1) / n,
        1e3 * t->draft / n, 1e3 * t->head / n, 1e3 * t->target / n, 1e3 * t->verify / n,
        1e3 * t->update / n);
}

static void bench_cycle(const engine_model *m, const engine_drafter *drafter, const char *text,
                        const char *name, specrt_tree_params tree) {
    specrt_session_params params = {.tree = tree};
    specrt_policy_desc desc = {.text = text};
    specrt_policy *policy = NULL;
    specrt_head *head = NULL;
    specrt_head_desc rows;
    specrt_error err;
    engine_decoder *d;
    const int32_t *out;
    int32_t tokens[N_PROMPT], k;
    if (text) {
        engine_drafter_head(drafter, &rows);
        if (specrt_head_bind(NULL, &rows, NULL, &head, &err) ||
            specrt_policy_create(NULL, head, &desc, &policy, &err))
            fail(err.msg);
    }
    if (engine_decoder_create(m, text ? drafter : NULL, policy, &params, 0, &d, &err))
        fail(err.msg);
    fill_prompt(m, tokens);
    for (int i = 0; i < 2; i++) { /* the first run warms the caches */
        int64_t n = 0;
        if (engine_decoder_begin(d, tokens, 64, &err)) fail(err.msg);
        double start = sl_measure_seconds();
        for (k = 1; n < N_TOKENS && k > 0; n += k)
            if (engine_decoder_next(d, &out, &k)) fail("decode");
        if (i > 0) print_cycle(name, d, n, sl_measure_seconds() - start);
    }
    engine_decoder_free(d);
    specrt_policy_close(policy);
    specrt_head_close(head);
}

static const char *data_path(const char *relative) {
    static char paths[2][1024];
    static int turn;
    const char *root = getenv("SPECRT_DATA");
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", root && *root ? root : "../shared/data", relative);
    return path;
}

int main(int argc, char **argv) {
    const char *target = argc > 2 ? argv[1] : data_path("weights/pair128k/target.gguf");
    const char *draft = argc > 2 ? argv[2] : data_path("weights/pair128k/draft.safetensors");
    specrt_tree_params chain = {.num_steps = 3, .topk = 1, .num_draft_tokens = 4};
    engine_model *m;
    engine_drafter *drafter;
    specrt_error err;
    struct stat info;
    if (stat(target, &info) != 0) return printf("skipped: no %s\n", target), 0;
    if (engine_open(target, 1, &m, &err) || engine_drafter_open(draft, m, &drafter, &err))
        fail(err.msg);
    double peak = 1e-9 * machine_peak(), bandwidth = measure_bandwidth(256u << 20);
    printf("one core: %.0f GFLOP/s f32 multiply-add, %.1f GB/s read\n", peak, bandwidth);
    for (int threads = 1; threads <= 2; threads++) bench_prefill(target, threads);
    bench_passes(m, (double)info.st_size, bandwidth);
    bench_cycle(m, NULL, NULL, "plain", chain);
    bench_cycle(m, drafter, "full", "full, chain of 3", chain);
    bench_cycle(m, drafter, "microspec", "microspec, chain of 3", chain);
    bench_cycle(m, drafter, "microspec", "microspec, tree 6/10/60", (specrt_tree_params){0});
    engine_drafter_close(drafter);
    engine_close(m);
    return 0;
}
