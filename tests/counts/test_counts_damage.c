/* test_counts_damage.c : what the readers of count files say of damage in every place. */
#include "damage.h"

#include "counts/counts.h"
#include "counts/pairs.h"

/* What was read is written again, and counts as its content. */
typedef struct rewriting {
    char *text;
    size_t n;
    out_file out;
} rewriting;

static void begin_rewriting(rewriting *r) {
    r->out = (out_file){.f = open_memstream(&r->text, &r->n), .path = (char *)(uintptr_t) "memory"};
}

static void end_rewriting(rewriting *r, uint64_t *content) {
    fclose(r->out.f);
    damage_add(content, r->text, r->n);
    free(r->text);
}

static specrt_status read_counts(const void *bytes, size_t n, uint64_t *content,
                                 specrt_error *err) {
    counts c = {0};
    specrt_status status = sl_counts_read_memory(&c, bytes, n, "damaged", err);
    if (!status) {
        rewriting r = {0};
        begin_rewriting(&r);
        status = sl_counts_write(&c, &r.out, err);
        end_rewriting(&r, content);
    }
    sl_counts_free(&c);
    return status;
}

static specrt_status read_pairs(const void *bytes, size_t n, uint64_t *content, specrt_error *err) {
    pairs *p = NULL;
    pairs_header header = {0};
    specrt_status status = sl_pairs_create(0, 0, 1, ".", &p, err);
    if (!status) status = sl_pairs_read_memory(p, &header, bytes, n, "damaged", err);
    if (!status) {
        rewriting r = {0};
        begin_rewriting(&r);
        status = sl_pairs_write(p, 1, &header, &r.out, err);
        end_rewriting(&r, content);
    }
    sl_pairs_free(p);
    return status;
}

TEST(damage, "of every byte of small count files") {
    LEFT_TO_ALL();
    static const char *const of_counts[] = {"joined", "one", "folds", NULL}, *const of_pairs[] = {
                                                                                 "small", NULL};
    damage_seeds("fuzz_counts", of_counts, read_counts);
    damage_seeds("fuzz_pairs", of_pairs, read_pairs);
    approved_compare("tests/counts/counts_damage.exact");
}
