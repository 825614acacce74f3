/* test_cograph.c : the view of section "cograph", and every way to damage it. */
#include "opened.h"
#include <float.h>

enum { N_VOCAB = 6, N_EDGES = 5 };

/* 0 -> 3 1; 2 -> 5 0 4. */
typedef struct section {
    specrt_cograph_header header;
    uint64_t totals[N_VOCAB];
    uint32_t offsets[N_VOCAB + 1], n_rule[N_VOCAB];
    int32_t ids[N_EDGES];
    float counts[N_EDGES];
} section;

enum { SECTION_BYTES = 56 + 8 * N_VOCAB + 4 * (2 * N_VOCAB + 1) + 8 * N_EDGES };

static section good(void) {
    section s = {.header = {.n_vocab = N_VOCAB,
                            .n_sources = 2,
                            .n_edges = N_EDGES,
                            .max_degree = 4,
                            .min_count = 1,
                            .rule_degree = 64},
                 .totals = {10, 0, 9},
                 .offsets = {0, 2, 2, 5, 5, 5, 5},
                 .n_rule = {1, 0, 3},
                 .ids = {3, 1, 5, 0, 4},
                 .counts = {6, 2, 3, 2, 2}};
    return s;
}

/* What opening it says; *view and the bundle are left open on success. */
static uint8_t *bundle_bytes; /* of the bundle that was opened last */

static void bundle_close(specrt_bundle *bundle) {
    specrt_bundle_close(bundle);
    free(bundle_bytes);
}

static specrt_status view_of(const section *s, size_t n_bytes, specrt_bundle **bundle,
                             specrt_cograph *view, specrt_error *err) {
    size_t n;
    fixture_section part = {"cograph", 1, SPECRT_SECTION_DEPENDS_TOKENIZER, s, n_bytes, n_bytes};
    bundle_bytes = fixture_bundle(&part, 1, &n);
    *bundle = open_memory(bundle_bytes, n);
    return specrt_bundle_cograph(*bundle, view, err);
}

TEST(view, "successors of tokens with, without and outside") {
    section s = good();
    specrt_bundle *bundle;
    specrt_cograph g;
    const int32_t *ids;
    const float *counts;
    CHECK_INT(offsetof(section, counts) + sizeof s.counts, SECTION_BYTES);
    REQUIRE(view_of(&s, SECTION_BYTES, &bundle, &g, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(specrt_cograph_successors(&g, 2, &ids, &counts), 3);
    CHECK(ids[0] == 5 && ids[1] == 0 && ids[2] == 4 && counts[0] == 3 && g.totals[2] == 9);
    CHECK_INT(specrt_cograph_successors(&g, 0, &ids, &counts), 2);
    CHECK(ids[1] == 1 && g.n_rule[0] == 1);
    CHECK_INT(specrt_cograph_successors(&g, 1, &ids, &counts), 0);
    CHECK_INT(specrt_cograph_successors(&g, 5, &ids, &counts), 0);
    CHECK_INT(specrt_cograph_successors(&g, 6, &ids, &counts), 0);
    CHECK_INT(specrt_cograph_successors(&g, -1, &ids, &counts), 0);
    bundle_close(bundle);
    for (int32_t degree = 3; degree <= N_VOCAB; degree += N_VOCAB - 3) { /* as far as they go */
        s.header.max_degree = degree;
        s.header.rule_degree = 0;
        s.counts[0] = FLT_MAX;
        CHECK_INT(view_of(&s, SECTION_BYTES, &bundle, &g, NULL), SPECRT_STATUS_OK);
        bundle_close(bundle);
    }
}

static void refuses(const section *s, size_t n, const char *what) {
    specrt_bundle *bundle;
    specrt_cograph g;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    CHECK_INT(view_of(s, n, &bundle, &g, &err), SPECRT_STATUS_BUNDLE_CONTENT);
    CHECK_HAS(err.msg, what);
    CHECK(g.header == NULL);
    bundle_close(bundle);
}

TEST(damage, "every field out of its range") {
    section s = good();
    refuses(&s, SECTION_BYTES - 1, "size: expected the bytes of n_vocab and n_edges");
    refuses(&s, 55, "size: expected at least its header");
#define DAMAGE(change, what) (s = good(), (change), refuses(&s, SECTION_BYTES, (what)))
    DAMAGE(s.header.n_vocab = 0, "n_vocab: ");
    DAMAGE(s.header.n_vocab = 1, "size: expected the bytes of n_vocab and n_edges");
    DAMAGE(s.header.n_vocab = 1 << 24, "size: expected the bytes of n_vocab and n_edges");
    DAMAGE(s.header.n_vocab = (1 << 24) + 1, "n_vocab: ");
    DAMAGE(s.header.n_edges = UINT32_MAX, "size: expected the bytes of n_vocab and n_edges");
    DAMAGE(s.header.n_edges = (uint64_t)UINT32_MAX + 1, "n_edges: ");
    DAMAGE(s.header.n_edges = UINT64_MAX / 8, "n_edges: ");
    DAMAGE(s.header.n_edges = 4, "size: expected the bytes of n_vocab and n_edges");
    DAMAGE(s.header.max_degree = 2, "offsets: expected rows of at most max_degree edges");
    DAMAGE(s.header.max_degree = 0, "max_degree, rule_degree: ");
    DAMAGE(s.header.max_degree = N_VOCAB + 1, "max_degree, rule_degree: ");
    DAMAGE(s.header.rule_degree = -1, "max_degree, rule_degree: ");
    DAMAGE(s.offsets[0] = 1, "offsets: expected 0 first and n_edges last");
    DAMAGE(s.offsets[6] = 6, "offsets: expected 0 first and n_edges last");
    DAMAGE(s.offsets[3] = 1, "offsets: expected ascending offsets");
    DAMAGE(s.offsets[3] = 4000000000u, "offsets: expected ascending offsets");
    DAMAGE(s.n_rule[0] = 3, "n_rule: ");
    DAMAGE(s.n_rule[2] = 4, "n_rule: ");
    DAMAGE(s.ids[4] = 6, "ids: expected ids below n_vocab");
    DAMAGE(s.ids[0] = -1, "ids: expected ids below n_vocab");
    DAMAGE(s.counts[4] = 0, "counts: ");
    DAMAGE(s.counts[0] = NAN, "counts: ");
    DAMAGE(s.counts[0] = INFINITY, "counts: ");
    DAMAGE(s.counts[1] = 7, "ids: expected successors ordered by count and id");
    DAMAGE(s.ids[3] = 4, "ids: expected successors ordered by count and id");
    DAMAGE(s.totals[0] = 0, "totals: ");
}

TEST(missing, "a bundle without the section") {
    size_t n;
    uint8_t *bytes = fixture_ranks_bundle(9, 1, 3, &n);
    specrt_cograph g;
    specrt_error err;
    specrt_bundle *bundle = open_memory(bytes, n);
    CHECK_INT(specrt_bundle_cograph(bundle, &g, &err), SPECRT_STATUS_BUNDLE_SECTION_MISSING);
    CHECK_STR(err.msg, "b.specb: has no section 'cograph'; cograph-build builds it");
    specrt_bundle_close(bundle);
    free(bytes);
}
