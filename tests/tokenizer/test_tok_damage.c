/* test_tok_damage.c : what the readers of tokenizer files say of damage in every place, and what text becomes
 * where they read it; and opening files of every kind without memory. */
#include "damage.h"
#include "gguf_build.h"
#include "test.h"
#include "tok_vectors.h"
#include "tokenizer/tokenizer_impl.h"

/* Characters of every class, composed and not, and each byte value that begins one. */
static const char text[] = "Caf\u00e9 e\u0301 \uac01\u1100\u1161 <tool> \t12,345 \u6f22\u5b57 "
                           "\U0001F600 don't\n\n  x\x7f!?";

static specrt_status add_ids(const tokenizer *tok, uint64_t *content, specrt_error *err) {
    tok_worker *w = NULL;
    id_list ids = {0};
    int32_t *bytes = NULL, n = 0;
    specrt_status status = sl_tok_worker_create(tok, &w, err);
    if (!status) status = sl_tok_encode(w, text, strlen(text), &ids);
    if (!status) sl_tok_worker_continue(w, true);
    if (!status) status = sl_tok_encode(w, text, strlen(text), &ids);
    if (!status) status = sl_tokenizer_byte_tokens(tok, &bytes, &n, err);
    damage_add(content, ids.ids, ids.n * sizeof *ids.ids);
    damage_add_int(content, n);
    if (n > 0 && bytes) damage_add(content, bytes, (size_t)n * sizeof *bytes);
    free(bytes);
    free(ids.ids);
    sl_tok_worker_free(w);
    return status;
}

static void add_tokens(const tokenizer *tok, uint64_t *content) {
    int32_t n = 0;
    uint8_t sha256[32];
    const int32_t *ends = sl_tokenizer_terminators(tok, &n);
    damage_add(content, ends, (size_t)n * sizeof *ends);
    sl_tokenizer_fingerprint(tok, sha256);
    damage_add(content, sha256, sizeof sha256);
    damage_add(content, sl_tokenizer_name(tok), strlen(sl_tokenizer_name(tok)));
    for (int32_t id = 0; id < sl_tokenizer_n_vocab(tok); id++)
        damage_add_int(content, sl_tokenizer_type(tok, id));
}

typedef specrt_status (*loader)(tokenizer *, const file_view *, specrt_error *);

static specrt_status read_with(loader load, const void *bytes, size_t n, uint64_t *content,
                               specrt_error *err) {
    file_view view = {(const uint8_t *)bytes, n, false};
    tokenizer *tok = (tokenizer *)calloc(1, sizeof *tok);
    if (!tok) return SPECRT_STATUS_NO_MEMORY;
    tok->path = "damaged";
    tok->unknown_id = TOK_NONE;
    specrt_status status = load(tok, &view, err);
    if (status == SPECRT_STATUS_UNSUPPORTED && strstr(err->msg, "family"))
        status = SPECRT_STATUS_OK;
    if (!status) status = sl_tokenizer_finish(tok, err);
    if (!status) status = add_ids(tok, content, err);
    if (!status) add_tokens(tok, content);
    sl_tokenizer_close(tok);
    return status;
}

static specrt_status read_json(const void *bytes, size_t n, uint64_t *content, specrt_error *err) {
    return read_with(sl_tok_load_json, bytes, n, content, err);
}

static specrt_status read_gguf(const void *bytes, size_t n, uint64_t *content, specrt_error *err) {
    return read_with(sl_tok_load_gguf, bytes, n, content, err);
}

static specrt_status read_ranks(const void *bytes, size_t n, uint64_t *content, specrt_error *err) {
    return read_with(sl_tok_load_tiktoken, bytes, n, content, err);
}

static void damage_spm(void) {
    static const char *const tokens[] = {"<unk>",   "<s>", "</s>", "<0x41>", "\u2581", "a",
                                         "\u2581a", "b",   "ab",   "!x",     NULL};
    static const float scores[] = {0, 0, 0, 0, -1, -2, -0.5f, -4, -3, 0};
    static const int32_t types[] = {2, 3, 3, 6, 1, 1, 1, 1, 1, 4};
    const uint8_t yes = 1;
    begin();
    put_string("tokenizer.ggml.model", "llama");
    put_strings("tokenizer.ggml.tokens", tokens);
    put_floats("tokenizer.ggml.scores", scores, 10);
    put_ints("tokenizer.ggml.token_type", types, 10);
    put_int("tokenizer.ggml.eos_token_id", 2);
    put_int("tokenizer.ggml.unknown_token_id", 0);
    put_key("tokenizer.ggml.add_space_prefix", GGUF_BOOL), put(&yes, 1);
    damage_everywhere("spm", file, n_file, read_gguf);
}

TEST(damage, "of every byte of small tokenizer files") {
    static const char *const of_json[] = {"bytes", "metaspace", "spm", NULL};
    static const char *const of_gguf[] = {"bytes", NULL};
    static const char *const of_ranks[] = {"crlf_no_end", "two_lines", NULL};
    if (test_brief()) SKIP("takes its time: make test-all");
    damage_changes = 2;
    damage_seeds("fuzz_tokenizer_json", of_json, read_json);
    damage_seeds("fuzz_tokenizer_gguf", of_gguf, read_gguf);
    damage_spm();
    damage_seeds("fuzz_tiktoken", of_ranks, read_ranks);
    approved_compare("tests/tokenizer/tok_damage.exact");
}

/* ---- files of every kind ---- */

static int open_and_cut(void *arg) {
    specrt_error err = {0};
    uint64_t content = 0;
    tokenizer *tok = NULL;
    specrt_status status = sl_tokenizer_open((const char *)arg, &tok, &err);
    if (!status) status = add_ids(tok, &content, &err);
    sl_tokenizer_close(tok);
    return status;
}

TEST(no_memory, "every allocation of opening one and of cutting text") {
    static const char *const names[] = {"bytes_forms", "bytes_nfc", "chars", "spm", "spm_gemma"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (test_quick() && i != 2) continue;
        char path[100];
        snprintf(path, sizeof path, "tests/golden/tokenizers/%s.json", names[i]);
        starve_own = true; /* json-c has no status for it */
        test_starve(open_and_cut, path, SPECRT_STATUS_NO_MEMORY);
    }
}
