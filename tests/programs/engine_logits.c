/* engine_logits.c : our side of interoperability tests of the engine. Reads prompts, a line of
 * token ids each, from standard input and writes raw numbers to standard output.
 *   engine_logits MODEL         f32 [n, n_vocab] for each prompt of n tokens
 *   engine_logits MODEL LENGTH  i32 [LENGTH], its greedy continuation */
#include "engine/infer/engine.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_LINE = 1 << 16, MAX_PROMPT = 4096 };

static void fail(const char *what) {
    fprintf(stderr, "engine_logits: %s\n", what);
    exit(1);
}

static int32_t read_prompt(char *line, int32_t *tokens) {
    int32_t n = 0;
    char *end;
    for (long id; n < MAX_PROMPT; line = end) {
        id = strtol(line, &end, 10);
        if (end == line) return n;
        tokens[n++] = (int32_t)id;
    }
    return n;
}

static void write_all(const void *data, size_t size, size_t n) {
    if (fwrite(data, size, n, stdout) != n) fail("short write");
}

static void score(engine_cache *c, const int32_t *tokens, int32_t n, int32_t n_vocab,
                  float *logits) {
    const int32_t first = 0;
    for (int32_t i = 0; i < n; i++) {
        if (engine_forward(c, &tokens[i], 1, NULL, NULL, logits)) fail("cannot run the prompt");
        engine_keep(c, &first, 1);
        write_all(logits, sizeof *logits, (size_t)n_vocab);
    }
}

static void continue_greedily(engine_cache *c, const int32_t *tokens, int32_t n, int32_t n_vocab,
                              int32_t length, float *logits) {
    int32_t best;
    if (engine_prefill(c, tokens, n, NULL, logits, NULL, NULL)) fail("cannot run the prompt");
    for (int32_t i = 0; i < length; i++) {
        best = 0;
        for (int32_t v = 1; v < n_vocab; v++)
            if (logits[v] > logits[best]) best = v;
        write_all(&best, sizeof best, 1);
        if (engine_prefill(c, &best, 1, NULL, logits, NULL, NULL)) fail("the context is full");
    }
}

int main(int argc, char **argv) {
    static char line[MAX_LINE];
    static int32_t tokens[MAX_PROMPT];
    engine_model *m;
    engine_cache *c;
    specrt_error err;
    if (argc < 2) fail("usage: engine_logits MODEL [LENGTH]");
    if (engine_open(argv[1], 1, &m, &err) || engine_cache_create(m, 0, &c, &err)) fail(err.msg);
    int32_t n_vocab = engine_get_config(m)->n_vocab;
    float *logits = (float *)malloc((size_t)n_vocab * sizeof *logits);
    if (!logits) fail("out of memory");
    while (fgets(line, sizeof line, stdin)) {
        int32_t n = read_prompt(line, tokens);
        engine_cache_truncate(c, 0);
        if (argc > 2)
            continue_greedily(c, tokens, n, n_vocab, atoi(argv[2]), logits);
        else
            score(c, tokens, n, n_vocab, logits);
    }
    free(logits);
    engine_cache_close(c);
    engine_close(m);
    return 0;
}
