/* test_tokenizer.c : whole tokenizers against published vectors, an independent count, and a merger
 * that follows the definition. */
#include <json-c/json.h>
#include <utf8proc.h>
#include "base/parallel.h"
#include "folder.h"
#include "base/utf8.h"
#include "tokenizer/worker.h"
#include "tok_vectors.h"

static tokenizer *open_data(const char *relative) {
    return open_tokenizer(test_data(relative));
}

/* ---- published vectors ---- */

static void check_published(const char *tokenizer_file, const char *name) {
    char inp[60];
    snprintf(inp, sizeof inp, "tokenizers/gguf/ggml-vocab-%s.gguf.inp", name);
    char *vectors = strdup(test_data(inp));
    REQUIRE(vectors);
    vectors[strlen(vectors) - strlen(".inp")] = 0;
    check_vectors(test_data(tokenizer_file), vectors, false);
    free(vectors);
}

TEST(vectors_llama3, "published vectors of Llama-3") {
    check_published("tokenizers/llama3/tokenizer.model", "llama-bpe");
}
TEST(vectors_qwen2, "published vectors of Qwen2") {
    check_published("tokenizers/qwen/qwen.tiktoken", "qwen2");
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
        REQUIRE(sl_tok_count(w, json_object_get_string(output),
                             (size_t)json_object_get_string_len(output), counts, n_tokens) == 0);
    }
    json_object_put(array);
}

TEST(count_llama3, "Llama-3 tokens of 15,295 answers") {
    LEFT_TO_ALL();
    tokenizer *tok = open_data("tokenizers/llama3/tokenizer.model");
    tok_worker *w = worker_of(tok);
    uint64_t *counts = calloc((size_t)sl_tokenizer_n_vocab(tok), sizeof *counts), n_tokens = 0,
             sum = 0;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        char path[256];
        snprintf(path, sizeof path, "generations/llama3/%s.json", answers[i]);
        count_outputs(w, test_data(path), counts, &n_tokens);
    }
    for (int32_t id = 0; id < sl_tokenizer_n_vocab(tok); id++) sum += counts[id];
    CHECK_INT(n_tokens, 6787530);
    CHECK_INT(sum, n_tokens);
    free(counts);
    sl_tok_worker_free(w);
    sl_tokenizer_close(tok);
}

/* ---- published vocabularies ---- */

static void check_token(const tokenizer *tok, int32_t id, const char *text, token_type type) {
    size_t n;
    const uint8_t *bytes = sl_tokenizer_bytes(tok, id, &n);
    CHECK(n == strlen(text) && memcmp(bytes, text, n) == 0);
    CHECK_INT(sl_tokenizer_type(tok, id), type);
    CHECK_INT(sl_tokenizer_find(tok, text, strlen(text)), id);
}

static void check_terminators(const tokenizer *tok, const int32_t *expected, int32_t n_expected) {
    int32_t n;
    const int32_t *ids = sl_tokenizer_terminators(tok, &n);
    CHECK_INT(n, n_expected);
    for (int32_t i = 0; i < n && i < n_expected; i++) CHECK_INT(ids[i], expected[i]);
}

TEST(specials_llama3, "names, types and terminators of Llama-3") {
    tokenizer *tok = open_data("tokenizers/llama3/tokenizer.model");
    CHECK_STR(sl_tokenizer_name(tok), "llama3 (tiktoken)");
    CHECK_INT(sl_tokenizer_n_vocab(tok), 128256);
    CHECK_INT(sl_tokenizer_n_normal(tok), 128000);
    check_token(tok, 128000, "<|begin_of_text|>", TOKEN_SPECIAL);
    check_token(tok, 128002, "<|reserved_special_token_0|>", TOKEN_RESERVED);
    check_token(tok, 128005, "<|reserved_special_token_2|>", TOKEN_RESERVED);
    check_token(tok, 128006, "<|start_header_id|>", TOKEN_SPECIAL);
    check_token(tok, 128010, "<|python_tag|>", TOKEN_SPECIAL);
    check_token(tok, 128255, "<|reserved_special_token_247|>", TOKEN_RESERVED);
    check_token(tok, 279, " the", TOKEN_NORMAL);
    CHECK_INT(sl_tokenizer_find(tok, "no such token", 13), -1);
    CHECK_INT(sl_tokenizer_type(tok, 128256), TOKEN_RESERVED);
    check_terminators(tok, (int32_t[]){128001, 128008, 128009}, 3);
    sl_tokenizer_close(tok);
}

TEST(specials_others, "the same of Qwen and o200k") {
    tokenizer *qwen = open_data("tokenizers/qwen/qwen.tiktoken");
    CHECK_INT(sl_tokenizer_n_vocab(qwen), 151851);
    check_token(qwen, 151644, "<|im_start|>", TOKEN_SPECIAL);
    check_token(qwen, 151646, "<|extra_0|>", TOKEN_RESERVED);
    check_token(qwen, 151850, "<|extra_204|>", TOKEN_RESERVED);
    check_terminators(qwen, (int32_t[]){151643, 151645}, 2);
    sl_tokenizer_close(qwen);
    tokenizer *o200k = open_data("tokenizers/openai/o200k_base.tiktoken.gz");
    size_t n;
    CHECK_INT(sl_tokenizer_n_vocab(o200k), 200019);
    CHECK_INT(sl_tokenizer_n_normal(o200k), 199998);
    check_token(o200k, 199999, "<|endoftext|>", TOKEN_SPECIAL);
    check_token(o200k, 200018, "<|endofprompt|>", TOKEN_SPECIAL);
    CHECK(sl_tokenizer_bytes(o200k, 200000, &n) == NULL && n == 0);
    CHECK_INT(sl_tokenizer_type(o200k, 200000), TOKEN_RESERVED);
    check_terminators(o200k, (int32_t[]){199999}, 1);
    sl_tokenizer_close(o200k);
}

/* ---- random numbers and text ---- */

static uint64_t random_state = 7;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

/* The bytes of the ids, one after the other, are the text; also for bytes that are not UTF-8. */
static void check_round_trip(const tokenizer *tok, tok_worker *w, const char *text, size_t n) {
    id_list ids = {0};
    REQUIRE(sl_tok_encode(w, text, n, &ids) == SPECRT_STATUS_OK);
    size_t at = 0;
    for (size_t i = 0; i < ids.n; i++) {
        size_t len;
        const uint8_t *bytes = sl_tokenizer_bytes(tok, ids.ids[i], &len);
        REQUIRE(bytes && at + len <= n && memcmp(bytes, text + at, len) == 0);
        at += len;
    }
    CHECK_INT(at, n);
    free(ids.ids);
}

static void round_trips(const char *relative) {
    tokenizer *tok = open_data(relative);
    tok_worker *w = worker_of(tok);
    static char text[1 << 20];
    check_round_trip(tok, w, "", 0);
    check_round_trip(tok, w, "\0\0 \0", 4);
    for (int t = 0; t < 300; t++) {
        size_t n = random_below(2000);
        uint32_t letters = 2 + random_below(25), foreign = random_below(3) ? 0 : 20;
        for (size_t i = 0; i < n; i++)
            text[i] = (char)(random_below(100) < foreign ? random_below(256)
                             : random_below(6)           ? 'a' + random_below(letters)
                                                         : ' ');
        check_round_trip(tok, w, text, n);
    }
    memset(text, 'a', sizeof text); /* a megabyte without a space */
    check_round_trip(tok, w, text, sizeof text);
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + random_below(26));
    check_round_trip(tok, w, text, sizeof text);
    sl_tok_worker_free(w);
    sl_tokenizer_close(tok);
}
TEST(round_trip_llama3, "tokens concatenate to the text") {
    round_trips("tokenizers/llama3/tokenizer.model");
}
TEST(round_trip_o200k, "the same for o200k") {
    LEFT_TO_ALL();
    round_trips("tokenizers/openai/o200k_base.tiktoken.gz");
}

/* ---- merging against the definition ---- */

static tokenizer *new_tokenizer(void) {
    tokenizer *tok = calloc(1, sizeof *tok);
    REQUIRE(tok);
    tok->path = "test";
    tok->unknown_id = TOK_NONE;
    return tok;
}

static void add_token(tokenizer *tok, const char *bytes, size_t n) {
    REQUIRE(sl_tok_set_token(tok, tok->n_vocab, bytes, n, TOKEN_NORMAL, 0, NULL) == 0);
}

static void add_bytes(tokenizer *tok) {
    for (int b = 0; b < 256; b++) add_token(tok, &(char){(char)b}, 1);
}

static bool holds_token(const tokenizer *tok, const uint8_t *bytes, size_t n) {
    for (int32_t id = 0; id < tok->n_vocab; id++)
        if (tok->tokens[id].n == n && memcmp(tok->pool + tok->tokens[id].offset, bytes, n) == 0)
            return true;
    return false;
}

/* A vocabulary of random concatenations of its own tokens, over three letters. */
static tokenizer *random_tokenizer(tok_merge_order order) {
    tokenizer *tok = new_tokenizer();
    tok->merge_order = order;
    add_bytes(tok);
    while (tok->n_vocab < 340) {
        int32_t left = tok->n_vocab > 300 || random_below(2) ? 256 : 0;
        left = tok->n_vocab > 260 && left
                   ? 256 + (int32_t)random_below((uint32_t)tok->n_vocab - 256)
                   : 'a' + (int32_t)random_below(3);
        int32_t right = 'a' + (int32_t)random_below(3);
        if (random_below(3) == 0 && tok->n_vocab > 256)
            right = 256 + (int32_t)random_below((uint32_t)tok->n_vocab - 256);
        const tok_token *a = &tok->tokens[left], *b = &tok->tokens[right];
        uint8_t bytes[TOK_MAX_TOKEN_BYTES];
        if (a->n + b->n > 12) continue;
        memcpy(bytes, tok->pool + a->offset, a->n);
        memcpy(bytes + a->n, tok->pool + b->offset, b->n);
        bool known = holds_token(tok, bytes, a->n + b->n);
        if (known && order != TOK_MERGE_LISTED) continue;
        if (!known) add_token(tok, (char *)bytes, a->n + b->n);
        if (!known && order == TOK_MERGE_LISTED)
            REQUIRE(sl_tok_add_merge(tok, left, right, tok->n_vocab - 1, NULL) == 0);
    }
    for (int32_t id = 0; order == TOK_MERGE_BY_SCORE && id < tok->n_vocab; id++)
        REQUIRE(sl_tok_set_score(tok, id, (float)random_below(20), NULL) == 0); /* many ties */
    REQUIRE(sl_tokenizer_finish(tok, NULL) == 0);
    return tok;
}

/* What merging a pair would cost, lower first; no merge: infinite. Looks everything up in the plain
 * lists. */
static double pair_cost(const tokenizer *tok, int32_t left, int32_t right, int32_t *merged) {
    if (tok->merge_order == TOK_MERGE_LISTED) {
        for (size_t m = 0; m < tok->n_merges; m++)
            if (tok->merges[m].left == left && tok->merges[m].right == right)
                return *merged = tok->merges[m].merged, (double)m;
        return INFINITY;
    }
    const tok_token *a = &tok->tokens[left], *b = &tok->tokens[right];
    uint8_t bytes[2 * TOK_MAX_TOKEN_BYTES];
    memcpy(bytes, tok->pool + a->offset, a->n);
    memcpy(bytes + a->n, tok->pool + b->offset, b->n);
    for (int32_t id = 0; id < tok->n_vocab; id++)
        if (tok->tokens[id].n == a->n + b->n &&
            memcmp(tok->pool + tok->tokens[id].offset, bytes, a->n + b->n) == 0)
            return *merged = id,
                   tok->merge_order == TOK_MERGE_BY_ID ? id : -(double)tok->scores[id];
    return INFINITY;
}

static size_t merge_by_definition(const tokenizer *tok, int32_t *ids, size_t n) {
    for (;;) {
        double best = INFINITY;
        size_t at = 0;
        int32_t merged = 0, candidate = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            double cost = pair_cost(tok, ids[i], ids[i + 1], &candidate);
            if (cost < best) best = cost, at = i, merged = candidate;
        }
        if (best == (double)INFINITY) return n;
        ids[at] = merged;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

static void check_merging(tok_merge_order order) {
    tok_bpe_scratch scratch = {0};
    for (int v = 0; v < 8; v++) {
        tokenizer *tok = random_tokenizer(order);
        for (int t = 0; t < 60; t++) {
            uint8_t piece[100];
            int32_t expected[100], a[100], b[100];
            size_t n = 1 + random_below(t % 10 ? TOK_SHORT_PIECE : 100);
            for (size_t i = 0; i < n; i++) piece[i] = (uint8_t)('a' + random_below(3));
            for (size_t i = 0; i < n; i++) expected[i] = piece[i];
            size_t count = merge_by_definition(tok, expected, n);
            CHECK_INT(sl_tok_bpe_long(tok, &scratch, piece, n, a), count);
            CHECK(memcmp(a, expected, count * sizeof *a) == 0);
            if (n > TOK_SHORT_PIECE) continue;
            CHECK_INT(sl_tok_bpe_short(tok, piece, n, b), count);
            CHECK(memcmp(b, expected, count * sizeof *b) == 0);
        }
        sl_tokenizer_close(tok);
    }
    sl_tok_bpe_scratch_free(&scratch);
}
TEST(merge_by_id, "merging against its definition, tiktoken") {
    check_merging(TOK_MERGE_BY_ID);
}
TEST(merge_listed, "the same, listed merges") {
    check_merging(TOK_MERGE_LISTED);
}
TEST(merge_by_score, "the same, scores with ties") {
    check_merging(TOK_MERGE_BY_SCORE);
}

/* ---- code points, byte tokens, unknown ---- */

/* " a b é ab éx" are tokens; x occurs only inside éx; the bytes of U+20AC have byte tokens. */
static tokenizer *small_spm(bool byte_tokens) {
    static const char *const pieces[] = {"<unk>",    " ",  "a",         "b",
                                         "\xC3\xA9", "ab", "\xC3\xA9x", " a"};
    tokenizer *tok = new_tokenizer();
    tok->merge_order = TOK_MERGE_BY_SCORE;
    tok->chars = tok->spm_spaces = tok->byte_fallback = true;
    tok->unknown_id = 0;
    tok->prefix = TOK_PREFIX_ALWAYS;
    for (int32_t id = 0; id < 8; id++) {
        REQUIRE(sl_tok_set_token(tok, id, pieces[id], strlen(pieces[id]),
                                 id ? TOKEN_NORMAL : TOKEN_SPECIAL, 0, NULL) == 0);
        REQUIRE(sl_tok_set_score(tok, id, (float)-id, NULL) == 0);
    }
    for (int i = 0; byte_tokens && i < 4; i++)
        REQUIRE(sl_tok_set_token(tok, 8 + i, &"\xE2\x82\xACx"[i], 1, TOKEN_NORMAL, TOK_FLAG_BYTE,
                                 NULL) == 0);
    REQUIRE(sl_tok_set_token(tok, 12, "<tag>", 5, TOKEN_SPECIAL, 0, NULL) == 0);
    REQUIRE(sl_tok_set_token(tok, 13, "<tag> ", 6, TOKEN_SPECIAL, 0, NULL) == 0);
    REQUIRE(sl_tok_add_raw(tok, 12, "<tag>", 5, 0, NULL) == 0);
    REQUIRE(sl_tok_add_raw(tok, 13, "<tag> ", 6, 0, NULL) == 0);
    return tok;
}

/* Met for the first time, and out of the cache. */
static void check_twice(tokenizer *tok, const char *text, const char *expected) {
    tok_worker *w = worker_of(tok);
    for (int cached = 0; cached < 2; cached++) check_ids(w, text, expected);
    sl_tok_worker_free(w);
}

TEST(code_points, "byte fallback, unknown, spaces, raw tokens") {
    tokenizer *tok = small_spm(true);
    REQUIRE(sl_tokenizer_finish(tok, NULL) == 0);
    CHECK_INT(tok->split, TOK_SPLIT_CUSTOM); /* cut where no token reaches across */
    check_twice(tok, "", "");
    check_twice(tok, "ab", " 1 5");
    check_twice(tok, "a", " 7");
    check_twice(tok,
                "a\xE2\x96\x81"
                "a",
                " 7 7");                             /* U+2581 is a space */
    check_twice(tok, "\xC3\xA9x\xC3\xA9", " 1 6 4"); /* x is a symbol, though no token... */
    check_twice(tok, "xa", " 1 11 2");               /* ...and falls back to its byte */
    check_twice(tok, "\xE2\x82\xAC", " 1 8 9 10");   /* byte tokens */
    check_twice(tok,
                "\xE2\x82\xBF"
                "zb",
                " 1 0 0 3");                                  /* a byte token is missing: unknown */
    check_twice(tok, "b<tag>b<tag> b", " 1 3 12 1 3 13 1 3"); /* raw tokens, the longest */
    CHECK_INT(sl_tokenizer_find(tok, "x", 1), 11);
    sl_tokenizer_close(tok);
    tok = small_spm(false);
    tok->fuse_unknown = tok->prefix_every_segment = true;
    REQUIRE(sl_tokenizer_finish(tok, NULL) == 0);
    check_twice(tok, "xyzbz", " 1 0 3 0");
    check_twice(tok, "b<tag>b", " 1 3 12 1 3");
    sl_tokenizer_close(tok);
    tok = small_spm(false);
    tok->unknown_id = TOK_NONE;
    tok->prefix = TOK_PREFIX_IF_MISSING;
    REQUIRE(sl_tokenizer_finish(tok, NULL) == 0);
    check_twice(tok, "xyzbz", " 1 3");
    check_twice(tok, " b", " 1 3");
    check_twice(tok,
                "\xE2\x96\x81"
                "b",
                " 1 3");
    sl_tokenizer_close(tok);
}

/* A single word stands beside no letter, digit or what else Rust's \\w holds. */
TEST(single_word, "a token that stands alone, or not") {
    static const struct {
        uint32_t cp;
        bool is_word;
    } neighbours[] = {
        {'b', true},      {'_', true},      {'0', true},      {'-', false},     {' ', false},
        {0xe9, true},     {0xb2, false},    {0x300, true},    {0x1c5, true},    {0x2b0, true},
        {0x903, true},    {0x488, true},    {0x2160, true},   {0x203f, true},   {0x200b, false},
        {0x200c, true},   {0x200d, true},   {0x200e, false},  {0x24b5, false},  {0x24b6, true},
        {0x24e9, true},   {0x24ea, false},  {0x1f12f, false}, {0x1f130, true},  {0x1f149, true},
        {0x1f14a, false}, {0x1f14f, false}, {0x1f150, true},  {0x1f169, true},  {0x1f16a, false},
        {0x1f16f, false}, {0x1f170, true},  {0x1f189, true},  {0x1f18a, false},
    };
    tokenizer *tok = new_tokenizer();
    add_token(tok, "a", 1);
    REQUIRE(sl_tok_add_raw(tok, 0, "xy", 2, TOK_RAW_SINGLE_WORD, NULL) == 0);
    REQUIRE(sl_tokenizer_finish(tok, NULL) == 0);
    tok_worker *w = worker_of(tok);
    for (size_t i = 0; i < sizeof neighbours / sizeof neighbours[0]; i++) {
        char text[16] = "";
        utf8proc_encode_char((utf8proc_int32_t)neighbours[i].cp, (utf8proc_uint8_t *)text);
        strcat(text, "xy");
        char *ids = ids_of(w, text, strlen(text));
        CHECK_INT(strstr(ids, " 0") == NULL, neighbours[i].is_word);
        free(ids);
    }
    sl_tok_worker_free(w);
    sl_tokenizer_close(tok);
}

/* ---- NFC ---- */

TEST(nfc, "normalisation against utf8proc") {
    /* Bases, marks of several classes, composites, Hangul in parts and whole, exclusions. */
    static const uint32_t points[] = {
        'a',    'e',    ' ',   0xE9,  0x1EA1, 0x300,   0x301,   0x323,    0x327,  0x345,  0x344,
        0x958,  0x915,  0x93C, 0x9C7, 0x9BE,  0xAC00,  0xAC01,  0x1100,   0x1161, 0x11A8, 0x212B,
        0x2126, 0xFB1D, 0x5D9, 0x5B4, 0x4E2D, 0x1F600, 0x1D15E, 0x10FFFF, 0x1E9B, 0xFDFA};
    tokenizer *tok = small_spm(false);
    REQUIRE(sl_tok_add_normal(tok, TOK_NORMAL_NFC, "", 0, "", 0, NULL) == 0);
    tok->spm_spaces = false;
    tok->prefix = TOK_PREFIX_NONE;
    REQUIRE(sl_tokenizer_finish(tok, NULL) == 0);
    tok_normaliser work = {0};
    for (int t = 0; t < 20000; t++) {
        utf8proc_uint8_t text[64 * 4 + 1];
        size_t n = 0;
        for (uint32_t i = random_below(12) + 1; i > 0; i--)
            n += (size_t)utf8proc_encode_char(
                (utf8proc_int32_t)points[random_below(sizeof points / sizeof points[0])], text + n);
        text[n] = 0;
        utf8proc_uint8_t *expected = utf8proc_NFC(text);
        const uint8_t *got = text;
        REQUIRE(sl_tok_normalise(tok, &work, &got, &n));
        CHECK(n == strlen((char *)expected) && memcmp(got, expected, n) == 0);
        free(expected);
    }
    /* A megabyte of marks in the wrong order, which a sort by neighbours would take hours for. */
    size_t n = 0;
    uint8_t *marks = malloc(1 << 20);
    while (n + 4 < 1 << 20) n += (size_t)utf8proc_encode_char(n % 4 ? 0x301 : 0x323, marks + n);
    const uint8_t *got = marks;
    CHECK(sl_tok_normalise(tok, &work, &got, &n));
    free(marks);
    sl_tok_normaliser_free(&work);
    sl_tokenizer_close(tok);
}

/* ---- cache and threads ---- */

TEST(cache, "many more pieces than the cache holds, long ones too, give what merging alone gives") {
    tokenizer *tok = random_tokenizer(TOK_MERGE_BY_ID);
    tok_cache cache;
    REQUIRE(sl_tok_cache_init(&cache));
    size_t n_records = 0;
    for (uint32_t i = 0; i < 60000; i++) {
        uint8_t piece[256] = {0};
        uint32_t number = i % 20000;
        size_t n = number % 3 ? 15 : 200 + number % 50, n_ids = number % 7;
        memcpy(piece, &number, sizeof number);
        tok_key key = tok_key_make(piece, n, sizeof piece);
        const tok_slot *slot = tok_cache_find(&cache, key, tok_cache_set(key));
        if (!slot) {
            int32_t ids[8];
            for (size_t k = 0; k < n_ids; k++) ids[k] = (int32_t)(number + k);
            sl_tok_cache_put(&cache, key, piece, n, ids, n_ids);
            continue;
        }
        const int32_t *ids = slot->ids;
        size_t count = slot->n_ids;
        if (slot->n_ids == TOK_CACHE_RECORD)
            ids = sl_tok_cache_ids(&cache, slot, piece, n, &count), n_records++;
        REQUIRE(ids);
        CHECK_INT(count, n_ids);
        for (size_t k = 0; k < count; k++) CHECK_INT(ids[k], number + k);
    }
    CHECK(n_records > 1000);
    sl_tok_cache_free(&cache);
    sl_tokenizer_close(tok);
}

typedef struct shared_job {
    const tokenizer *tok;
    const char *text;
    size_t n;
    uint64_t counts[2][512], n_tokens[2];
} shared_job;

static void count_shared(void *arg, int worker) {
    shared_job *job = arg;
    tok_worker *w = NULL;
    if (sl_tok_worker_create(job->tok, &w, NULL)) return;
    sl_tok_count(w, job->text, job->n, job->counts[worker], &job->n_tokens[worker]);
    sl_tok_worker_free(w);
}

TEST(threads, "two workers on one tokenizer") {
    tokenizer *tok = random_tokenizer(TOK_MERGE_BY_ID);
    tok->split = TOK_SPLIT_LLAMA3;
    static char text[200000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = random_below(8) ? (char)('a' + random_below(3)) : ' ';
    static shared_job job;
    job = (shared_job){.tok = tok, .text = text, .n = sizeof text};
    sl_parallel_run(2, count_shared, &job);
    CHECK(job.n_tokens[0] > 0);
    CHECK_INT(job.n_tokens[0], job.n_tokens[1]);
    CHECK(memcmp(job.counts[0], job.counts[1], sizeof job.counts[0]) == 0);
    sl_tokenizer_close(tok);
}

/* ---- rank files that are wrong ---- */

static void check_refused(const char *content, size_t n, const char *part) {
    const char *path = in_folder("ranks");
    REQUIRE(!sl_out_bytes(path, true, content, n, NULL));
    tokenizer *tok = NULL;
    specrt_error err = {0};
    CHECK(sl_tokenizer_open(path, &tok, &err) != SPECRT_STATUS_OK);
    CHECK(tok == NULL);
    CHECK_HAS(err.msg, path);
    CHECK_HAS(err.msg, part);
    CHECK(strchr(err.msg, '\n') == NULL);
    clear_folder();
}

TEST(bad_rank_files, "each fault named with its line") {
    static const struct {
        const char *content, *part;
    } bad[] = {
        {"", "not a tokenizer"},
        {"hello world\n", "not a tokenizer"},
        {"\x0A\x0E<unk>", "SentencePiece"},
        {"IQ== 0\nIg==\n", "line 2 of a tiktoken file: no space"},
        {"IQ== 0\nIg= 1\n", "line 2 of a tiktoken file: bad base64"},
        {"IQ== 0\nI$== 1\n", "line 2 of a tiktoken file: bad base64"},
        {"IQ== 0\nIh== 1\n", "line 2 of a tiktoken file: bad base64"}, /* spare bits */
        {"IQ== 0\nIg==IQ== 1\n", "line 2 of a tiktoken file: bad base64"},
        {"IQ== 0\n 1\n", "line 2 of a tiktoken file: bad base64"},
        {"IQ== 0\r\nIg== x\r\n", "line 2 of a tiktoken file: bad rank"},
        {"IQ== 0\nIg== -1\n", "line 2 of a tiktoken file: bad rank"},
        {"IQ== 0\nIg== 99999999\n", "line 2 of a tiktoken file: bad rank"},
        {"IQ== 0\nIg== 9999999\n", "line 2 of a tiktoken file: rank is too large"},
        {"IQ== 0\n\nIg== \n", "line 3 of a tiktoken file: no rank"},
        {"IQ== 0\nIg== 0\n", "line 2 of a tiktoken file: rank was used before"},
        {"IQ== 0\nIg== 2\n", "rank 1 is missing"},
        {"IQ== 0\nIQ== 1\n", "lines 1 and 2 hold the same token"},
        {"IQ== 0\nIg== 1\n", "no token for the single byte 0x00"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_refused(bad[i].content, strlen(bad[i].content), bad[i].part);
    check_refused("\x1F\x8B\x08\0\0\0\0\0\0\x03\x01", 11, "gzip data is cut");
}

TEST(unknown_family, "an unknown vocabulary lists those known") {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char content[256 * 16];
    size_t n = 0;
    for (int b = 0; b < 256; b++)
        n += (size_t)sprintf(content + n, "%c%c== %d\n", digits[b >> 2], digits[b << 4 & 63], b);
    check_refused(content, n,
                  "256 ranks of an unknown tokenizer; known are llama3, qwen, o200k_base");
}
