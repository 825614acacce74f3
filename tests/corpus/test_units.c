/* test_units.c : a long text that is counted in units gives the counts of the whole, under
 * tokenizers that put something before a text as under those that do not. */
#include "corpus/corpus.h"
#include "test.h"
#include "tokenizer/tokenizer.h"

enum { N_TEXT = 400000 };

/* Prose, code and newlines, with places to cut and without. */
static char *make_text(void) {
    static const char *const parts[] = {"the quick brown fox", "jumps over", "\nLazy dogs sleep.",
                                        " (see Fig. 3)",       "\n\n",       "    int x = 12;\n",
                                        "\xc3\xa9t\xc3\xa9",   " word"};
    char *text = (char *)malloc(N_TEXT + 64);
    uint64_t state = 1;
    size_t n = 0;
    while (n < N_TEXT) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const char *part = parts[(state >> 33) % 8];
        n += (size_t)sprintf(text + n, "%s%s", (state >> 40) % 3 ? " " : "", part);
    }
    return text;
}

static void check_units(const char *path) {
    tokenizer *tok;
    tok_worker *w;
    corpus *c;
    corpus_batch batch = {0};
    specrt_error err = {SPECRT_STATUS_OK, ""};
    uint64_t n_whole = 0, n_units = 0;
    bool end = false;
    int n_docs = 0;
    REQUIRE(sl_tokenizer_open(path, &tok, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_tok_worker_create(tok, &w, &err) == SPECRT_STATUS_OK);
    size_t n_vocab = (size_t)sl_tokenizer_n_vocab(tok);
    uint64_t *whole = (uint64_t *)calloc(n_vocab, sizeof *whole);
    uint64_t *units = (uint64_t *)calloc(n_vocab, sizeof *units);
    char *text = make_text();
    CHECK_INT(sl_tok_count(w, text, strlen(text), whole, &n_whole), SPECRT_STATUS_OK);
    REQUIRE(!sl_corpus_open_memory("text.txt", text, strlen(text), &(corpus_options){0}, &c, &err));
    while (!end) {
        REQUIRE(sl_corpus_next(c, &batch, &end, &err) == SPECRT_STATUS_OK);
        for (int64_t i = 0; i < batch.n_docs; i++, n_docs++) {
            sl_tok_worker_continue(w, batch.docs[i].continues);
            sl_tok_count(w, batch.docs[i].text, batch.docs[i].n_bytes, units, &n_units);
        }
    }
    CHECK(n_docs > 3);
    CHECK_INT(n_units, n_whole);
    CHECK(memcmp(units, whole, n_vocab * sizeof *units) == 0);
    sl_corpus_batch_free(&batch);
    sl_corpus_close(c);
    sl_tok_worker_free(w);
    sl_tokenizer_close(tok);
    free(text);
    free(whole);
    free(units);
}

TEST(units_byte_level, "llama3, gpt-2") {
    check_units(test_data("tokenizers/llama3/tokenizer.model"));
    check_units(test_data("tokenizers/gguf/ggml-vocab-gpt-2.gguf"));
}

TEST(units_sentencepiece, "llama, phi-3: a space is put before a text") {
    check_units(test_data("tokenizers/gguf/ggml-vocab-llama-spm.gguf"));
    check_units(test_data("tokenizers/gguf/ggml-vocab-phi-3.gguf"));
}
