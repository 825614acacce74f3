/* test_frame.c : where text is cut into units. */
#include "gather.h"
#include "tokenizer/tokenizer.h"

static bool letter(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The rule of corpus.h, spelt out: letter, space, letter; or visible, line feed, letter. */
static bool safe(const uint8_t *p, size_t at, size_t n) {
    if (at < 4 || at + 1 >= n) return false;
    if (letter(p[at - 1]) && p[at] == ' ' && letter(p[at + 1])) return true;
    if (p[at - 1] != '\n' || p[at - 2] <= ' ' || p[at - 2] == 127) return false;
    bool after = letter(p[at]) || (p[at] >= 0xC3 && p[at] <= 0xE0) ||
                 (p[at] >= 0xE3 && p[at] <= 0xED && memcmp(p + at, "\xE3\x80", 2) != 0);
    bool rare = p[at - 2] >= 0x80 && (p[at - 3] == 0xC2 || p[at - 4] == 0xE1 || p[at - 4] == 0xE2 ||
                                      memcmp(p + at - 4, "\xE3\x80\x80", 3) == 0);
    return after && !rare;
}

static size_t list_cuts(const char *text, size_t n, size_t *cuts) {
    size_t n_cuts = 0;
    for (size_t from = 65536; from < n; from += 65536) {
        size_t at = from;
        while (at < n && !safe((const uint8_t *)text, at, n)) at++;
        if (at < n && (n_cuts == 0 || cuts[n_cuts - 1] != at)) cuts[n_cuts++] = at;
    }
    return n_cuts;
}

static void check_units(const gathered *g, const char *text, size_t n, const size_t *cuts,
                        size_t n_cuts) {
    CHECK_INT(g->status, SPECRT_STATUS_OK);
    CHECK_INT(g->stats.n_records, n_cuts + 1);
    CHECK_INT(g->n_text, n);
    CHECK(g->n_text == n && memcmp(g->text, text, n) == 0);
    REQUIRE(g->n_docs == n_cuts + 1);
    for (size_t i = 0; i < n_cuts; i++) CHECK_INT(g->ends[i], cuts[i]);
    for (size_t i = 0; i < g->n_docs; i++) CHECK(g->continues[i] == (i > 0));
}

TEST(units, "text is cut where the rule says, packed or not") {
    draw_state = 1;
    size_t cuts[128];
    for (int round = 0; round < 6; round++) {
        size_t n = 2500000 + draw(1500000), n_cuts, m;
        char *text = make_text(n);
        while (sl_utf8_valid(text, n) != n) n--;
        n_cuts = list_cuts(text, n, cuts);
        gathered plain = gather_memory("a.txt", text, n, NULL);
        check_units(&plain, text, n, cuts, n_cuts);
        for (int i = 0; i < 2; i++) {
            uint8_t *packed = pack(i ? "zst" : "gz", text, n, 300000, &m);
            gathered g = gather_memory("a.txt", packed, m, NULL); /* told by content */
            check_units(&g, text, n, cuts, n_cuts);
            CHECK(g.sum == plain.sum && g.digest == plain.digest);
            gather_free(&g), free(packed);
        }
        gathered file = gather(put_file("units.md", text, n), NULL, 1);
        check_units(&file, text, n, cuts, n_cuts);
        CHECK(file.digest == plain.digest);
        gather_free(&plain), gather_free(&file), free(text);
    }
    clear_folder();
}

TEST(text_bytes, "NULs, CRLF, byte-order marks, invalid bytes") {
    check_bytes("a\r\nb\r\n", 6, "a\r\nb\r\n", 6, 0);
    check_bytes("a\0b", 3, "a\0b", 3, 0);
    check_bytes("\xEF\xBB\xBF"
                "bom",
                6, "bom", 3, 0);
    check_bytes("\xEF\xBB\xBF", 3, "", 0, 0);
    check_bytes("a\xE4\xB8z\xFF", 5, "a\xEF\xBF\xBDz\xEF\xBF\xBD", 8, 2);
    check_bytes("{\"text\": 1}", 11, "{\"text\": 1}", 11, 0); /* the name says text */
}

TEST(forced, "Three-byte characters without a break: forced at 64 MiB, on a character") {
    size_t n = (64u << 20) + 300000;
    LEFT_TO_ALL();
    n -= n % 3;
    char *text = (char *)malloc(n);
    for (size_t i = 0; i < n; i++) text[i] = "\xE4\xB8\xAD"[i % 3];
    gathered g = gather_memory("x", text, n, NULL);
    CHECK_INT(g.n_docs, 2);
    CHECK_INT(g.stats.n_forced_cuts, 1);
    CHECK_INT(g.stats.n_replaced, 0);
    CHECK_INT(g.n_text, n);
    if (g.n_docs == 2) CHECK_INT(g.ends[0], (64u << 20) + 2);
    gather_free(&g);
    free(text);
}

/* Cut at every safe place, the parts must give the very ids of the whole. */
static void check_safe_places(const char *tokenizer_path, const char *text, size_t n) {
    specrt_error err = {0};
    tokenizer *tok;
    tok_worker *w;
    id_list whole = {0}, parts = {0};
    if (sl_tokenizer_open(tokenizer_path, &tok, &err)) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(err.status == SPECRT_STATUS_OK &&
            sl_tok_worker_create(tok, &w, &err) == SPECRT_STATUS_OK);
    CHECK(sl_tok_encode(w, text, n, &whole) == SPECRT_STATUS_OK);
    size_t start = 0, n_cuts = 0;
    for (size_t at = 4; at <= n; at++) {
        if (at < n && !safe((const uint8_t *)text, at, n)) continue;
        size_t before = parts.n;
        CHECK(sl_tok_encode(w, text + start, at - start, &parts) == SPECRT_STATUS_OK);
        bool same = parts.n <= whole.n && memcmp(parts.ids + before, whole.ids + before,
                                                 (parts.n - before) * sizeof *parts.ids) == 0;
        if (!same) fprintf(stderr, "%s: \"%.*s\"\n", tokenizer_path, 40, text + start);
        REQUIRE(same);
        start = at;
        n_cuts++;
    }
    CHECK_INT(parts.n, whole.n);
    CHECK(n_cuts > 100);
    free(whole.ids), free(parts.ids);
    sl_tok_worker_free(w);
    sl_tokenizer_close(tok);
}

TEST(safe_places, "cuts at safe places change no token") {
    static const char *const tokenizers[] = {
        "llama3/tokenizer.model",      "openai/o200k_base.tiktoken.gz",
        "qwen/qwen.tiktoken",          "gguf/ggml-vocab-gpt-2.gguf",
        "gguf/ggml-vocab-falcon.gguf", "gguf/ggml-vocab-deepseek-llm.gguf"};
    gathered g = gather(test_data("generations/qwen/Qwen1.5-1.8B-Chat.json"), NULL, 1);
    size_t most = test_quick() ? 40000 : 300000, n = g.n_text < most ? g.n_text : most;
    while (sl_utf8_valid(g.text, n) != n) n--;
    draw_state = 2;
    char *made = make_text(most);
    size_t n_made = sl_utf8_valid(made, most);
    for (size_t i = 0; i < sizeof tokenizers / sizeof tokenizers[0]; i += test_quick() ? 2 : 1) {
        char path[128];
        snprintf(path, sizeof path, "tokenizers/%s", tokenizers[i]);
        check_safe_places(test_data(path), g.text, n);
        check_safe_places(test_data(path), made, n_made);
    }
    free(made);
    gather_free(&g);
}
