/* test_tok_gguf.c : vocabularies in GGUF files: published vectors, small files built here, bad ones. */
#include <math.h>
#include <unistd.h>
#include "formats/gguf.h"
#include "folder.h"
#include "test.h"
#include "tokenizer/from_json.h"
#include "tokenizer/split.h"
#include "tok_vectors.h"

#include "gguf_build.h"

/* ---- published vectors ---- */

TEST(vectors, "published vectors of five vocabularies") {
    static const char *const names[] = {"llama-spm", "gpt-2", "deepseek-llm", "falcon", "phi-3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[100];
        snprintf(path, sizeof path, "tokenizers/gguf/ggml-vocab-%s.gguf", names[i]);
        const char *found = test_data(path);
        check_vectors(found, found, false);
    }
}

/* All vocabularies that llama.cpp's sources have vectors for, where `make llama-fetch` put them. */
TEST(llama_vectors, "all that llama.cpp's sources have") {
    static const char *const names[] = {
        "gemma-4",   "qwen35",    "llama-bpe", "qwen2", "command-r",      "mpt",          "refact",
        "starcoder", "llama-spm", "phi-3",     "gpt-2", "deepseek-coder", "deepseek-llm", "falcon"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[100];
        snprintf(path, sizeof path, "build/llama/src/models/ggml-vocab-%s.gguf", names[i]);
        if (access(path, R_OK)) SKIP("no llama.cpp sources: make llama-fetch");
        check_vectors(path, path, strcmp(names[i], "qwen35") == 0);
    }
}

/* ---- small files ---- */

/* The built file through the loader. */
static tokenizer *load(specrt_error *err) {
    file_view view = {file, n_file, false};
    tokenizer *tok = calloc(1, sizeof *tok);
    REQUIRE(tok);
    tok->path = "test.gguf";
    tok->unknown_id = TOK_NONE;
    specrt_status status = sl_tok_load_gguf(tok, &view, err);
    if (!status) status = sl_tokenizer_finish(tok, err);
    if (!status) return tok;
    sl_tokenizer_close(tok);
    return NULL;
}

static tokenizer *require_loaded(void) {
    specrt_error err = {0};
    tokenizer *tok = load(&err);
    if (!tok) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(tok);
    return tok;
}

/* ---- byte-level ---- */

static const char *const byte_tokens[] = {"a",
                                          "b",
                                          "\xC4\xA0",
                                          "ab",
                                          "\xC4\xA0"
                                          "ab",
                                          "<|endoftext|>",
                                          "<tool>",
                                          "[PAD7]",
                                          "1",
                                          "'",
                                          "s",
                                          NULL};
static const int32_t byte_types[] = {1, 1, 1, 1, 1, 3, 4, 5, 1, 1, 1};
static const char *const byte_merges[] = {"a b", "\xC4\xA0 ab", NULL};

static void build_byte_level(const char *pre) {
    begin();
    put_string("tokenizer.ggml.model", "gpt2");
    put_string("tokenizer.ggml.pre", pre);
    put_string("general.name", "Small");
    put_strings("tokenizer.ggml.tokens", byte_tokens);
    put_ints("tokenizer.ggml.token_type", byte_types, 11);
    put_strings("tokenizer.ggml.merges", byte_merges);
    put_int("tokenizer.ggml.eos_token_id", 5);
}

TEST(byte_level, "types, merges, user-defined tokens, terminators") {
    build_byte_level("gpt-2");
    tokenizer *tok = require_loaded();
    tok_worker *w = worker_of(tok);
    int32_t n;
    CHECK_STR(sl_tokenizer_name(tok), "Small (gguf)");
    CHECK_INT(sl_tokenizer_n_vocab(tok), 11);
    CHECK_INT(sl_tokenizer_n_normal(tok), 8);
    CHECK_INT(sl_tokenizer_type(tok, 5), TOKEN_SPECIAL);
    CHECK_INT(sl_tokenizer_type(tok, 6), TOKEN_SPECIAL);
    CHECK_INT(sl_tokenizer_type(tok, 7), TOKEN_RESERVED);
    CHECK_INT(sl_tokenizer_find(tok, " ab", 3), 4);
    CHECK(sl_tokenizer_terminators(tok, &n)[0] == 5 && n == 1);
    check_ids(w, "ab ab a", " 3 4 2 0");
    check_ids(w, "a<tool>b", " 0 6 1");
    check_ids(w, "a<|endoftext|>b", " 0 1"); /* a special's letters are text, and have no tokens */
    check_ids(w, "a's", " 0 9 10");
    sl_tok_worker_free(w);
    sl_tokenizer_close(tok);
}

TEST(one_fingerprint, "the same vocabulary as a tokenizer.json: one fingerprint, one result") {
    static const char json[] =
        "{\"added_tokens\":[{\"id\":5,\"content\":\"<|endoftext|>\",\"special\":true},"
        "{\"id\":6,\"content\":\"<tool>\",\"special\":false,\"normalized\":false}],"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"model\":{\"type\":"
        "\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"\xC4\xA0\":2,\"ab\":3,\"\xC4\xA0"
        "ab\":4,\"1\":8,\"'\":9,\"s\":10},\"merges\":[[\"a\",\"b\"],[\"\xC4\xA0\",\"ab\"]]}}";
    file_view view = {(const uint8_t *)json, sizeof json - 1, false};
    specrt_error err = {0};
    tokenizer *other = calloc(1, sizeof *other);
    REQUIRE(other);
    other->path = "test.json";
    other->unknown_id = TOK_NONE;
    CHECK(sl_tok_load_json(other, &view, &err) == SPECRT_STATUS_OK);
    CHECK(sl_tokenizer_finish(other, &err) == SPECRT_STATUS_OK);
    build_byte_level("gpt-2");
    tokenizer *tok = require_loaded();
    uint8_t a[32], b[32], expected[32];
    sl_tokenizer_fingerprint(tok, a);
    sl_tokenizer_fingerprint(other, b);
    CHECK(memcmp(a, b, 32) == 0);
    specrt_sha256 sha;
    static const char *const normal[] = {"a",  "b",  " ", "ab", " ab", NULL,
                                         NULL, NULL, "1", "'",  "s"};
    specrt_sha256_init(&sha);
    for (int32_t id = 0; id < 11; id++)
        if (normal[id]) specrt_tokenizer_hash_token(&sha, id, normal[id], strlen(normal[id]));
    specrt_sha256_final(&sha, expected);
    CHECK(memcmp(a, expected, 32) == 0);
    tok_worker *w = worker_of(other);
    check_ids(w, "ab ab a<tool>b's", " 3 4 2 0 6 1 9 10");
    sl_tok_worker_free(w);
    sl_tokenizer_close(tok);
    sl_tokenizer_close(other);
}

TEST(pre_tokenizer_names, "every name of the table loads, the ones with steps of their own too") {
    static const char *const names[] = {
        "gpt-2",     "mpt",       "llama-bpe",      "llama3", "llama-v3",     "dbrx",
        "qwen2",     "qwen35",    "gpt-4o",         "falcon", "deepseek-llm", "deepseek-v3",
        "starcoder", "command-r", "deepseek-coder", "tekken", "refact",       "stablelm2",
        "glm4",      "glm5",      "kormo",          "talkie", "minimax-m2",   "hunyuan-dense",
        "joyai-llm", "hy_v4",     "mellum2",        "mellum", "midm-2.0",     "gigachat"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        build_byte_level(names[i]);
        tokenizer *tok = require_loaded();
        tok_worker *w = worker_of(tok);
        check_ids(w, "ab ab", " 3 4");
        /* qwen2 and starcoder take digits one by one; all letters stay together. */
        check_ids(w, "ab 11", " 3 2 8 8");
        sl_tok_worker_free(w);
        sl_tokenizer_close(tok);
    }
}

/* GLM looks whole pieces up first, as llama.cpp's glm4 does: " ab" is a token that no merge makes. */
TEST(whole_pieces, "pieces that are tokens, unmerged") {
    static const char *const merges[] = {"a b", NULL};
    static const struct {
        const char *pre, *ids;
    } expected[] = {{"glm4", " 4"}, {"chatglm-bpe", " 4"}, {"llama-bpe", " 4"}, {"dbrx", " 2 3"}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        begin();
        put_string("tokenizer.ggml.model", "gpt2");
        put_string("tokenizer.ggml.pre", expected[i].pre);
        put_strings("tokenizer.ggml.tokens", byte_tokens);
        put_ints("tokenizer.ggml.token_type", byte_types, 11);
        put_strings("tokenizer.ggml.merges", merges);
        tokenizer *tok = require_loaded();
        tok_worker *w = worker_of(tok);
        check_ids(w, " ab", expected[i].ids);
        sl_tok_worker_free(w);
        sl_tokenizer_close(tok);
    }
}

/* ---- SentencePiece ---- */

static const char *const pieces[] = {"<unk>",
                                     "<s>",
                                     "</s>",
                                     "<0x0A>",
                                     "<0xC3>",
                                     "<0xA9>",
                                     "\xE2\x96\x81",
                                     "a",
                                     "b",
                                     "ab",
                                     "\xE2\x96\x81"
                                     "ab",
                                     "\xE2\x96\x81\xE2\x96\x81",
                                     "<tool>",
                                     "<0x00>",
                                     "bb",
                                     "<|end|>",
                                     NULL};
static const int32_t piece_types[] = {2, 3, 4, 6, 6, 6, 1, 1, 1, 1, 1, 1, 4, 6, 1, 3};
static const float piece_scores[] = {0, 0, 0, 0, 0, 0, -9, -7, -8, -2, -3, -1, 0, 0, -2, 0};

static void build_sentencepiece(const char *name) {
    begin();
    put_string("tokenizer.ggml.model", "llama");
    put_string("general.name", name);
    put_strings("tokenizer.ggml.tokens", pieces);
    put_ints("tokenizer.ggml.token_type", piece_types, 16);
    put_floats("tokenizer.ggml.scores", piece_scores, 16);
    put_int("tokenizer.ggml.eos_token_id", 2);
    put_int("tokenizer.ggml.eot_token_id", 15);
}

static void check_one(tokenizer *tok, const char *text, const char *expected) {
    tok_worker *w = worker_of(tok);
    check_ids(w, text, expected);
    sl_tok_worker_free(w);
}

TEST(sentencepiece, "scores, bytes, prefix, spaces") {
    build_sentencepiece("SPM");
    tokenizer *tok = require_loaded();
    int32_t n;
    const int32_t *ends = sl_tokenizer_terminators(tok, &n);
    CHECK(n == 2 && ends[0] == 2 && ends[1] == 15);
    CHECK_INT(sl_tokenizer_n_normal(tok), 11);
    CHECK_INT(sl_tokenizer_find(tok, " ab", 3), 10);
    check_one(tok, "", "");
    check_one(tok, "ab", " 10");              /* a space in front */
    check_one(tok, " ab", " 11 9");           /* two spaces score best */
    check_one(tok, "abb", " 10 8");           /* "ab" and "bb" score alike: the left one merges */
    check_one(tok, "bab", " 6 8 9");          /* " b" is no token, so b stands alone */
    check_one(tok, "\xC3\xA9\n", " 6 4 5 3"); /* byte tokens */
    check_one(tok, "\xC3\xA8", " 6 0");       /* one byte token is missing: unknown */
    check_one(tok,
              "a\xE2\x96\x81"
              "ab",
              " 6 7 10");                               /* U+2581 is a space */
    check_one(tok, "a<tool>ab<s>", " 6 7 12 10 0 0 0"); /* a prefix behind it; <s> is text */
    check_one(tok, "a</s> ab", " 6 7 2 11 9");
    sl_tokenizer_close(tok);
}

/* Gemma 4: merges in the order listed, whatever the scores; no prefix, and no splitter. */
TEST(gemma4, "SentencePiece's spelling with listed merges") {
    static const char *const merges[] = {"b b", "a b", "\xE2\x96\x81 ab",
                                         "\xE2\x96\x81 \xE2\x96\x81", NULL};
    begin();
    put_string("tokenizer.ggml.model", "gemma4");
    put_strings("tokenizer.ggml.tokens", pieces);
    put_ints("tokenizer.ggml.token_type", piece_types, 16);
    put_floats("tokenizer.ggml.scores", piece_scores, 16);
    put_strings("tokenizer.ggml.merges", merges);
    put_int("tokenizer.ggml.unknown_token_id", 0);
    tokenizer *tok = require_loaded();
    check_one(tok, "ab", " 9");
    check_one(tok, " ab", " 10");
    check_one(tok, "  ab", " 6 10");             /* " ab" is listed before two spaces */
    check_one(tok, "abb", " 7 14");              /* and "bb" before "ab" */
    check_one(tok, "\xC3\xA9\n", " 4 5 3");      /* byte tokens */
    check_one(tok, "a<tool>ab<s>", " 7 12 9 0"); /* <s> is text; unknown characters fuse */
    sl_tokenizer_close(tok);
}

TEST(phi3, "Phi-3's user-defined tokens take the white space behind them along") {
    build_sentencepiece("My Phi-3 mini");
    tokenizer *tok = require_loaded();
    check_one(tok, "a</s>  \n ab", " 6 7 2 10");
    sl_tokenizer_close(tok);
}

TEST(no_prefix, "add_space_prefix false") {
    build_sentencepiece("SPM");
    put_int("tokenizer.ggml.add_space_prefix", 0);
    tokenizer *tok = require_loaded();
    check_one(tok, "ab ab<tool>ab", " 9 10 12 9");
    sl_tokenizer_close(tok);
}

/* Text in words and text in one piece: the same ids. */
static void check_uncut(tokenizer *tok, const char *text, size_t n) {
    CHECK_INT(tok->split, TOK_SPLIT_CUSTOM);
    tok_worker *w = worker_of(tok);
    char *cut = ids_of(w, text, n);
    sl_tok_worker_free(w);
    tok->split = TOK_SPLIT_NONE;
    w = worker_of(tok);
    char *whole = ids_of(w, text, n);
    sl_tok_worker_free(w);
    tok->split = TOK_SPLIT_CUSTOM;
    CHECK_STR(cut, whole);
    free(cut);
    free(whole);
}

static uint32_t next_random(uint32_t *state) {
    return *state = *state * 1664525u + 1013904223u;
}

TEST(uncut, "words cut apart give the ids of the uncut text") {
    static const char *const parts[] = {" ",
                                        "  ",
                                        "a",
                                        "b",
                                        "the",
                                        "ing",
                                        " of",
                                        "\n",
                                        "\t",
                                        "_",
                                        "\xC3\xA9",
                                        "\xE2\x96\x81",
                                        "1",
                                        "23",
                                        ".",
                                        ",\n",
                                        "\xE6\xBC\xA2",
                                        "Th",
                                        "er",
                                        "</",
                                        "s>",
                                        "\xF0\x9F\xA6\x99",
                                        "    ",
                                        "ab",
                                        "</s>"};
    tokenizer *tok = open_tokenizer(test_data("tokenizers/gguf/ggml-vocab-llama-spm.gguf"));
    uint32_t state = 1;
    for (int round = 0; round < 300; round++) {
        char text[2000];
        size_t n = 0, n_parts = 1 + (next_random(&state) >> 16) % 200;
        for (size_t i = 0; i < n_parts; i++) {
            const char *part =
                parts[(next_random(&state) >> 16) % (sizeof parts / sizeof parts[0])];
            n += (size_t)sprintf(text + n, "%s", part);
        }
        check_uncut(tok, text, n);
    }
    file_view license;
    REQUIRE(sl_file_map(test_data("tokenizers/llama3/LICENSE"), &license, NULL) ==
            SPECRT_STATUS_OK);
    check_uncut(tok, (const char *)license.bytes, license.n);
    sl_file_unmap(&license);
    sl_tokenizer_close(tok);
}

TEST(inner_space, "a token with a space inside: no cut there any more, though elsewhere") {
    const char *inner[17];
    size_t ends[8];
    memcpy(inner, pieces, sizeof inner);
    inner[14] = "b\xE2\x96\x81"
                "a";
    begin();
    put_string("tokenizer.ggml.model", "llama");
    put_strings("tokenizer.ggml.tokens", inner);
    put_ints("tokenizer.ggml.token_type", piece_types, 16);
    put_floats("tokenizer.ggml.scores", piece_scores, 16);
    put_int("tokenizer.ggml.unknown_token_id", 0);
    tokenizer *tok = require_loaded();
    REQUIRE(tok->split == TOK_SPLIT_CUSTOM);
    const uint8_t *text = (const uint8_t *)"ab a a ab";
    CHECK_INT(tok->custom.next(tok->custom.state, NULL, text, 9, 0, ends, 8), 3);
    CHECK(ends[0] == 4 && ends[1] == 6 && ends[2] == 9);
    check_one(tok, "ab a", " 10 6 7");
    sl_tokenizer_close(tok);
}

/* ---- falcon's scanner against the steps it stands for ---- */

static const char falcon[] =
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Punctuation\",\"behavior\":"
    "\"Contiguous\"},"
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},{\"type\":\"Digits\","
    "\"individual_digits\":false},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[0-9][0-9][0-9]\"},"
    "\"behavior\":\"Isolated\"}]}";

TEST(falcon, "the hand-written splitter against the steps it stands for") {
    static const char *const parts[] = {" ",
                                        "  ",
                                        "a",
                                        "Z",
                                        "12",
                                        "3",
                                        "4567",
                                        "'s",
                                        "'",
                                        "!",
                                        "+-",
                                        "\n",
                                        "\t",
                                        "\xC2\xBD",
                                        "\xC2\xB2",
                                        "\xC3\xA9",
                                        "\xEF\xBF\xBD",
                                        "\xE2\x80\xA6",
                                        "\xE6\xBC\xBE",
                                        "\xE3\x80\x80",
                                        "\xD9\xA3",
                                        "\xE2\xB9\x83",
                                        "$",
                                        "\xC2\xA0"};
    specrt_error err = {0};
    tok_spelling spelling;
    tokenizer tok = {.path = "test", .unknown_id = TOK_NONE};
    json_object *spec = json_tokener_parse(falcon);
    REQUIRE(sl_tok_json_pre_tokenizer(&tok, spec, &spelling, &err) == SPECRT_STATUS_OK);
    REQUIRE(tok.split == TOK_SPLIT_CUSTOM);
    tok.unicode = sl_tok_unicode_new();
    REQUIRE(tok.unicode);
    void *scratch = tok.custom.scratch_new(tok.custom.state);
    uint32_t state = 5;
    for (int round = 0; round < 3000; round++) {
        char text[200];
        size_t n = 0, n_parts = 1 + (next_random(&state) >> 16) % 30;
        for (size_t i = 0; i < n_parts; i++)
            n += (size_t)sprintf(
                text + n, "%s",
                parts[(next_random(&state) >> 16) % (sizeof parts / sizeof parts[0])]);
        for (size_t from = 0, a, b; from < n; from = a) {
            const uint8_t *bytes = (const uint8_t *)text;
            REQUIRE(sl_tok_split(tok.unicode, TOK_SPLIT_FALCON, bytes, n, from, &a, 1) == 1);
            REQUIRE(tok.custom.next(tok.custom.state, scratch, bytes, n, from, &b, 1) == 1);
            if (a != b) fprintf(stderr, "\"%s\" from %zu\n", text, from);
            REQUIRE(a == b);
        }
    }
    tok.custom.scratch_free(scratch);
    tok.custom.state_free(tok.custom.state);
    sl_tok_unicode_free(tok.unicode);
    json_object_put(spec);
}

/* ---- bad files ---- */

static void expect_error(specrt_status status, const char *part) {
    specrt_error err = {0};
    tokenizer *tok = load(&err);
    CHECK(!tok);
    CHECK_INT(err.status, status);
    CHECK_HAS(err.msg, "test.gguf: ");
    CHECK_HAS(err.msg, part);
    sl_tokenizer_close(tok);
}

static void begin_model(const char *model, const char *pre) {
    begin();
    put_string("tokenizer.ggml.model", model);
    if (pre) put_string("tokenizer.ggml.pre", pre);
}

TEST(unsupported, "kinds refused by name") {
    static const char *const models[] = {"bert", "t5", "rwkv", "plamo2"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char found[60];
        begin_model(models[i], NULL);
        put_strings("tokenizer.ggml.tokens", byte_tokens);
        snprintf(found, sizeof found, "is \"%s\"; supported: gpt2 gemma4 llama", models[i]);
        expect_error(SPECRT_STATUS_UNSUPPORTED, found);
    }
    build_byte_level("jais-2");
    expect_error(SPECRT_STATUS_UNSUPPORTED, "tokenizer.ggml.pre is \"jais-2\"; supported: gpt-2 ");
    begin_model("gpt2", NULL);
    put_strings("tokenizer.ggml.tokens", byte_tokens);
    expect_error(SPECRT_STATUS_UNSUPPORTED,
                 "tokenizer.ggml.pre is \"\"; supported: gpt-2 phi-2 exaone4 gigachat a.x-4.0 "
                 "mellum jais trillion granite-docling mpt olmo llama-bpe");
}

TEST(bad, "wrong types, lengths, ids") {
    static const char *const bad_merges[] = {"a b", "a x", NULL};
    float scores[16];
    memcpy(scores, piece_scores, sizeof scores);
    begin();
    expect_error(SPECRT_STATUS_BAD_INPUT, "no tokenizer in this GGUF");
    begin_model("gpt2", "gpt-2");
    put_strings("tokenizer.ggml.tokens", byte_tokens);
    expect_error(SPECRT_STATUS_BAD_INPUT, "tokenizer.ggml.merges; expected an array of strings");
    begin_model("gpt2", "gpt-2");
    put_strings("tokenizer.ggml.tokens", byte_tokens);
    put_ints("tokenizer.ggml.token_type", byte_types, 10);
    expect_error(SPECRT_STATUS_BAD_INPUT,
                 "token_type; expected an array of i32 with one element for");
    begin_model("gpt2", "gpt-2");
    put_strings("tokenizer.ggml.tokens", byte_tokens);
    put_strings("tokenizer.ggml.merges", bad_merges);
    expect_error(SPECRT_STATUS_BAD_INPUT, "merges[1] is \"a x\"; expected two tokens");
    begin_model("llama", NULL);
    put_strings("tokenizer.ggml.tokens", pieces);
    expect_error(SPECRT_STATUS_BAD_INPUT, "tokenizer.ggml.scores is missing");
    scores[9] = NAN;
    begin_model("llama", NULL);
    put_strings("tokenizer.ggml.tokens", pieces);
    put_floats("tokenizer.ggml.scores", scores, 16);
    expect_error(SPECRT_STATUS_BAD_INPUT, "tokenizer.ggml.scores[9] is not a number");
    build_byte_level("gpt-2");
    put_int("tokenizer.ggml.eot_token_id", 11);
    expect_error(SPECRT_STATUS_BAD_INPUT,
                 "tokenizer.ggml.eot_token_id is 11; expected an id below 11");
}

TEST(empty_tokens, "tokens without text keep their ids, also the last one") {
    static const char *const tokens[] = {"a", "", "b", "ab", "", NULL}, *const merges[] = {"a b",
                                                                                           NULL};
    static const token_type types[] = {TOKEN_NORMAL, TOKEN_RESERVED, TOKEN_NORMAL, TOKEN_NORMAL,
                                       TOKEN_RESERVED};
    begin_model("gpt2", "gpt-2");
    put_strings("tokenizer.ggml.tokens", tokens);
    put_strings("tokenizer.ggml.merges", merges);
    tokenizer *tok = require_loaded();
    CHECK_INT(sl_tokenizer_n_vocab(tok), 5);
    CHECK_INT(sl_tokenizer_n_normal(tok), 3);
    for (int32_t id = 0; id < 5; id++) CHECK_INT(sl_tokenizer_type(tok, id), types[id]);
    check_one(tok, "abb", " 3 2");
    sl_tokenizer_close(tok);
}

/* The tokenizer of a model: of the file that was built, or of the folder that the file is in. */
static void check_model(bool in_its_folder, specrt_status expected, bool found) {
    tokenizer *tok;
    specrt_error err = {0};
    REQUIRE(sl_out_bytes(in_folder("m.gguf"), true, file, n_file, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(sl_tokenizer_of_model(in_its_folder ? folder() : in_folder("m.gguf"), &tok, &err),
              expected);
    CHECK((tok != NULL) == found);
    sl_tokenizer_close(tok);
}

TEST(of_model, "a model with a vocabulary, without one, with a bad one") {
    static const char *const none[] = {"no_vocab", "none", "no_vocabs", "gone"};
    tokenizer *tok;
    CHECK_INT(sl_tokenizer_of_model(folder(), &tok, NULL), SPECRT_STATUS_OK);
    CHECK(!tok);
    for (int f = 0; f < 2; f++) {
        build_byte_level("gpt-2");
        check_model(f, SPECRT_STATUS_OK, true);
        begin();
        check_model(f, SPECRT_STATUS_OK, false);
        put_string("tokenizer.ggml.model", "gpt2");
        check_model(f, SPECRT_STATUS_BAD_INPUT, false);
        begin();
        put_strings("tokenizer.ggml.tokens", byte_tokens);
        check_model(f, SPECRT_STATUS_BAD_INPUT, false);
        for (int i = 0; i < 4; i++) {
            begin();
            put_string("tokenizer.ggml.model", none[i]);
            put_strings("tokenizer.ggml.tokens", byte_tokens);
            check_model(f, i < 2 ? SPECRT_STATUS_OK : SPECRT_STATUS_UNSUPPORTED, false);
        }
        n_file = 8; /* a damaged one is refused, not passed over */
        check_model(f, SPECRT_STATUS_BAD_INPUT, false);
    }
    memcpy(file, "weights", n_file = 7);
    check_model(false, SPECRT_STATUS_OK, false);
    CHECK_INT(clear_folder(), 1);
}
