/* test_tokenizer.c : whole tokenizers against published vectors, an independent count, and a merger
 * that follows the definition. */
#include <json-c/json.h>
#include "../tools/common/tok_bpe.h"
#include "../tools/common/tok_normalise.h"
#include "io.h"
#include "test.h"
#include "tokenizer.h"

static tokenizer *open_data(const char *relative) {
    specrt_error err = {0};
    tokenizer *tok = NULL;
    if (tokenizer_open(test_data(relative), &tok, &err)) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(tok != NULL);
    return tok;
}

static tok_worker *worker_of(const tokenizer *tok) {
    tok_worker *w = NULL;
    REQUIRE(tok_worker_create(tok, &w, NULL) == SPECRT_STATUS_OK);
    return w;
}

/* ---- published vectors ---- */

#define SEPARATOR "\n__ggml_vocab_test__\n"

/* One text of an .inp file against one line of its .out file. */
static void check_vector(tok_worker *w, const char *text, size_t n, const char *expected) {
    id_list ids = {0};
    REQUIRE(tok_encode(w, text, n, &ids) == SPECRT_STATUS_OK);
    char *line = calloc(1, ids.n * 12 + 1), *end = line;
    for (size_t i = 0; i < ids.n; i++) end += sprintf(end, " %d", ids.ids[i]);
    CHECK_STR(line, expected);
    free(line);
    free(ids.ids);
}

static void check_vectors(const char *tokenizer_file, const char *vectors) {
    tokenizer *tok = open_data(tokenizer_file);
    tok_worker *w = worker_of(tok);
    char path[256];
    file_view inp, out;
    snprintf(path, sizeof path, "tokenizers/gguf/%s.inp", vectors);
    REQUIRE(file_map(test_data(path), &inp, NULL) == 0);
    snprintf(path, sizeof path, "tokenizers/gguf/%s.out", vectors);
    REQUIRE(file_map(test_data(path), &out, NULL) == 0);
    int n_vectors = 0;
    const char *text = (const char *)inp.bytes, *text_end = text + inp.n;
    const char *line = (const char *)out.bytes, *lines_end = line + out.n;
    while (text < text_end && line < lines_end) {
        const char *end = memmem(text, (size_t)(text_end - text), SEPARATOR, strlen(SEPARATOR));
        const char *line_end = memchr(line, '\n', (size_t)(lines_end - line));
        REQUIRE(line_end);
        if (!end) end = text_end;
        char *expected = strndup(line, (size_t)(line_end - line));
        check_vector(w, text, (size_t)(end - text), expected);
        free(expected);
        n_vectors++;
        text = end + strlen(SEPARATOR);
        line = line_end + 1;
    }
    CHECK(n_vectors >= 46);
    file_unmap(&inp);
    file_unmap(&out);
    tok_worker_free(w);
    tokenizer_close(tok);
}

static void test_vectors_llama3(void) {
    check_vectors("tokenizers/llama3/tokenizer.model", "ggml-vocab-llama-bpe.gguf");
}
static void test_vectors_qwen2(void) {
    check_vectors("tokenizers/qwen/qwen.tiktoken", "ggml-vocab-qwen2.gguf");
}

/* ---- an independent count ---- */

static const char *const answers[] = {"FuseChat-Llama-3.1-8B-Instruct",
                                      "FuseChat-Llama-3.2-1B-Instruct",
                                      "FuseChat-Llama-3.2-3B-Instruct",
                                      "GPO-Llama-3-8B-Instruct-GPM-2B",
                                      "Infinity-Instruct-3M-0613-Llama3-70B",
                                      "Infinity-Instruct-3M-0625-Llama3-8B",
                                      "Infinity-Instruct-7M-Gen-Llama3_1-70B",
                                      "Infinity-Instruct-7M-Gen-Llama3_1-8B",
                                      "Llama-3-8B-Instruct-SkillMix",
                                      "Llama-3-Instruct-8B-RainbowPO",
                                      "Llama-3-Instruct-8B-WPO-HB-v2",
                                      "Llama3-PBM-Nova-70B",
                                      "Meta-Llama-3-70B-Instruct",
                                      "Meta-Llama-3-8B-Instruct",
                                      "Meta-Llama-3.1-405B-Instruct-Turbo",
                                      "Meta-Llama-3.1-8B-Instruct-Turbo",
                                      "REBEL-Llama-3-8B-Instruct-Armo",
                                      "SPPO-Llama-3-8B-Instruct-GPM-2B",
                                      "SPPO-Llama-3-Instruct-8B-PairRM"};

static void count_outputs(tok_worker *w, const char *path, uint64_t *counts, uint64_t *n_tokens) {
    json_object *array = json_object_from_file(path);
    REQUIRE(array);
    for (size_t i = 0; i < json_object_array_length(array); i++) {
        json_object *output;
        REQUIRE(json_object_object_get_ex(json_object_array_get_idx(array, i), "output", &output));
        REQUIRE(tok_count(w, json_object_get_string(output),
                          (size_t)json_object_get_string_len(output), counts, n_tokens) == 0);
    }
    json_object_put(array);
}

static void test_count_llama3(void) {
    tokenizer *tok = open_data("tokenizers/llama3/tokenizer.model");
    tok_worker *w = worker_of(tok);
    uint64_t *counts = calloc((size_t)tokenizer_n_vocab(tok), sizeof *counts), n_tokens = 0,
             sum = 0;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        char path[256];
        snprintf(path, sizeof path, "generations/llama3/%s.json", answers[i]);
        count_outputs(w, test_data(path), counts, &n_tokens);
    }
    for (int32_t id = 0; id < tokenizer_n_vocab(tok); id++) sum += counts[id];
    CHECK_INT(n_tokens, 6787530);
    CHECK_INT(sum, n_tokens);
    free(counts);
    tok_worker_free(w);
    tokenizer_close(tok);
}

static const test_case cases[] = {
    {"vectors_llama3", "published vectors of Llama-3", test_vectors_llama3},
    {"vectors_qwen2", "published vectors of Qwen2", test_vectors_qwen2},
    {"count_llama3", "Llama-3 tokens of 15,295 answers", test_count_llama3},
};
TEST_MAIN(cases)
