/* test_counts_damage.c : what the readers of count files say of damage in every place. */
#include "damage.h"

#include "counts/counts.h"
#include "counts/pairs.h"

/* What was read, written again; false: no memory. */
static specrt_status add_counts(const counts *c, uint64_t *content, specrt_error *err) {
    char *text = NULL;
    size_t n = 0;
    out_file out = {.f = open_memstream(&text, &n), .path = (char *)(uintptr_t) "memory"};
    specrt_status status = sl_counts_write(c, &out, err);
    fclose(out.f);
    damage_add(content, text, n);
    free(text);
    return status;
}

static specrt_status read_counts(const void *bytes, size_t n, uint64_t *content,
                                 specrt_error *err) {
    counts c = {0};
    specrt_status status = sl_counts_read_memory(&c, bytes, n, "damaged", err);
    if (!status) status = add_counts(&c, content, err);
    sl_counts_free(&c);
    return status;
}

static specrt_status add_pairs(pairs *p, const pairs_header *header, uint64_t *content,
                               specrt_error *err) {
    char *text = NULL;
    size_t n = 0;
    out_file out = {.f = open_memstream(&text, &n), .path = (char *)(uintptr_t) "memory"};
    specrt_status status = sl_pairs_write(p, 1, header, &out, err);
    fclose(out.f);
    damage_add(content, text, n);
    free(text);
    return status;
}

static specrt_status read_pairs(const void *bytes, size_t n, uint64_t *content, specrt_error *err) {
    pairs *p = NULL;
    pairs_header header = {0};
    specrt_status status = sl_pairs_create(0, 0, 1, ".", &p, err);
    if (!status) status = sl_pairs_read_memory(p, &header, bytes, n, "damaged", err);
    if (!status) status = add_pairs(p, &header, content, err);
    sl_pairs_free(p);
    return status;
}

static void test_damage(void) {
    static const char *const of_counts[] = {"joined", "one", NULL}, *const of_pairs[] = {"small",
                                                                                         NULL};
    damage_seeds("fuzz_counts", of_counts, read_counts);
    damage_seeds("fuzz_pairs", of_pairs, read_pairs);
    approved_compare("tests/counts/counts_damage.exact");
}

static const test_case cases[] = {
    {"damage", "of every byte of small count files", test_damage},
};
TEST_MAIN(cases)
