/* bundle_content.h : the bundle that tests of the container and of its writer read and write */
#ifndef TESTS_BUNDLE_CONTENT_H
#define TESTS_BUNDLE_CONTENT_H

#include <stdbool.h>
#include <zstd.h>
#include "specrt_tools.h"
#include "fixture.h"
#include "test.h"

enum { N_VOCAB = 20 };

/* The content of every bundle below: an ident, ranks over 20 ids, provenance. */
typedef struct content {
    specrt_ident ident;
    uint8_t *ranks;
    size_t n_ranks;
    const char *provenance;
} content;

static inline content content_make(void) {
    content c = {.provenance = "{\"ranks\":{\"n_tokens\":123}}"};
    c.ident.n_vocab = N_VOCAB;
    c.ident.n_normal = 18;
    c.ident.head_rows = N_VOCAB;
    c.ident.head_cols = 64;
    for (int i = 0; i < 32; i++) c.ident.tokenizer_sha256[i] = (uint8_t)(i + 1);
    for (int i = 0; i < 64; i++)
        for (int k = 0; k < 4; k++)
            c.ident.head_digest.values[i][k] = (float)((i * 37 + k * 11) % 29) / 8 - 1.75f;
    strcpy(c.ident.tokenizer_name, "golden");
    strcpy(c.ident.head_name, "golden head");
    c.ranks = fixture_ranks(N_VOCAB, 2, 8, &c.n_ranks);
    return c;
}

/* The same three sections raw, or each as a zstd frame. */
static inline uint8_t *bundle_make(bool zstd, size_t *n) {
    content c = content_make();
    fixture_section s[3] = {
        {"ident", 1, 0, &c.ident, sizeof c.ident, sizeof c.ident},
        {"prov", 1, SPECRT_SECTION_OPTIONAL, c.provenance, strlen(c.provenance),
         strlen(c.provenance)},
        {"ranks", 1, SPECRT_SECTION_DEPENDS_TOKENIZER, c.ranks, c.n_ranks, c.n_ranks}};
    static uint8_t frames[3][4096];
    for (int i = 0; zstd && i < 3; i++) {
        s[i].n_stored = ZSTD_compress(frames[i], sizeof frames[i], s[i].stored, s[i].n_raw, 3);
        s[i].stored = frames[i];
        s[i].flags |= SPECRT_SECTION_ZSTD;
    }
    uint8_t *bytes = fixture_bundle(s, 3, n);
    free(c.ranks);
    return bytes;
}

static inline void check_content(const specrt_bundle *bundle) {
    content c = content_make();
    specrt_ranks ranks;
    size_t n;
    const void *data = specrt_bundle_data(bundle, "ident", &n);
    CHECK(data && n == sizeof c.ident && memcmp(data, &c.ident, n) == 0);
    CHECK(specrt_bundle_ident(bundle) == data);
    data = specrt_bundle_data(bundle, "prov", &n);
    CHECK(data && n == strlen(c.provenance) && memcmp(data, c.provenance, n) == 0);
    data = specrt_bundle_data(bundle, "ranks", &n);
    CHECK(data && n == c.n_ranks && memcmp(data, c.ranks, n) == 0);
    CHECK((uintptr_t)data % 16 == 0);
    REQUIRE(specrt_bundle_ranks(bundle, &ranks, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(ranks.header->n_ranked, N_VOCAB);
    CHECK_INT(ranks.ids[1], 10);
    CHECK_INT(ranks.counts[1], 19000);
    CHECK(!specrt_bundle_data(bundle, "rank", &n) && n == 0);
    CHECK(!specrt_bundle_data(bundle, "ranks-and-more", &n) && n == 0);
    free(c.ranks);
}

static inline specrt_status open_path(const char *path, specrt_error *err) {
    specrt_bundle *bundle;
    specrt_status status = specrt_bundle_open(path, NULL, &bundle, err);
    CHECK((status == SPECRT_STATUS_OK) == (bundle != NULL));
    if (bundle) check_content(bundle);
    specrt_bundle_close(bundle);
    return status;
}

#endif
