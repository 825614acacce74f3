/* test_corpus_damage.c : what becomes of small corpora and prompt files with damage in every place. */
#include "damage.h"

#include "corpus/corpus.h"
#include "corpus/prompts.h"
#include "folder.h"

/* ---- corpora: the first byte of a seed says what it is called and how it is read ---- */

static void add_document(const corpus_doc *doc, uint64_t *content) {
    damage_add_int(content, doc->domain * 4 + doc->completion * 2 + doc->continues);
    damage_add_int(content, (int64_t)doc->unit_hash);
    if (doc->text) damage_add(content, doc->text, doc->n_bytes);
    if (doc->ids) damage_add(content, doc->ids, doc->n_ids * sizeof *doc->ids);
}

static void add_stats(corpus *c, uint64_t *content) {
    corpus_stats s;
    sl_corpus_get_stats(c, &s);
    damage_add_int(content, (int64_t)sl_corpus_digest(c, 0));
    damage_add_int(content, (int64_t)(s.n_records + 1000 * s.n_docs));
    damage_add_int(content, (int64_t)(s.n_bad_records + 1000 * s.n_replaced));
    damage_add_int(content, (int64_t)(s.n_text_bytes + 1000 * s.n_forced_cuts));
    for (int i = 0; i < CORPUS_EXAMPLES; i++) {
        damage_cut_words(s.bad_examples[i]);
        damage_add(content, s.bad_examples[i], strlen(s.bad_examples[i]));
    }
}

static specrt_status read_corpus(const void *bytes, size_t n, uint64_t *content,
                                 specrt_error *err) {
    static const char *const names[] = {"x.txt", "x.jsonl", "x.json", "x", "x.bin", "x.npy"};
    const uint8_t *data = (const uint8_t *)bytes;
    if (n == 0) return SPECRT_STATUS_OK;
    corpus_options options = {.all_messages = data[0] & 64, .strict = data[0] & 128, .id_bytes = 2};
    if (data[0] & 32) options.field = "a.b";
    const char *name = names[data[0] % 6];
    options.token_ids = data[0] % 6 > 3;
    corpus *c = NULL;
    corpus_batch batch = {0};
    bool end = false;
    specrt_status status = sl_corpus_open_memory(name, data + 1, n - 1, &options, &c, err);
    while (!status && !end) {
        status = sl_corpus_next(c, &batch, &end, err);
        for (int64_t i = 0; !status && !end && i < batch.n_docs; i++)
            add_document(&batch.docs[i], content);
    }
    if (!status) add_stats(c, content);
    sl_corpus_batch_free(&batch);
    sl_corpus_close(c);
    return status;
}

/* ---- prompts ---- */

static const char prompts[] = "{\"prompt\":\"a\",\"category\":\"math\"}\n"
                              "{\"turns\":[\"b\",\"c\"]}\n{\"instruction\":\"d\",\"input\":\"e\"}\n"
                              "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":"
                              "\"user\",\"content\":\"u\"}]}\n"
                              "{\"prompt_ids\":[1,2,300]}\n{\"text\":\"\"}\n";

static void add_text(uint64_t *content, const char *text) {
    damage_add_int(content, text != NULL);
    if (text) damage_add(content, text, strlen(text));
}

static specrt_status read_prompts(const void *bytes, size_t n, uint64_t *content,
                                  specrt_error *err) {
    const char *path = in_folder("prompts.jsonl");
    prompt_list list = {0};
    damage_write_file(path, bytes, n);
    specrt_status status = sl_prompts_read(path, NULL, &list, err);
    for (int i = 0; !status && i < list.n; i++) {
        const prompt *p = &list.items[i];
        add_text(content, p->place);
        add_text(content, p->system);
        add_text(content, p->domain);
        for (int k = 0; k < p->n_turns; k++) add_text(content, p->turns[k]);
        damage_add(content, p->ids, (size_t)p->n_ids * sizeof *p->ids);
    }
    add_text(content, list.first_empty);
    damage_add_int(content, list.n_empty);
    sl_prompts_free(&list);
    damage_cut_folder(err->msg, "prompts.jsonl");
    return status;
}

TEST(damage, "of every byte of small corpora and prompt files") {
    LEFT_TO_ALL();
    static const char *const seeds[] = {"array", "bin",      "concatenated", "field", "messages",
                                        "npy",   "sharegpt", "text",         NULL};
    damage_seeds("fuzz_corpus", seeds, read_corpus);
    damage_changes = 2;
    damage_everywhere("prompts", prompts, sizeof prompts - 1, read_prompts);
    approved_compare("tests/corpus/corpus_damage.exact");
    CHECK_INT(clear_folder(), 1);
}
