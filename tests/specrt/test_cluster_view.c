/* test_cluster_view.c : the view of a section of clusters, and every way to damage it. */
#include "opened.h"

enum { M = 3, N_ROWS = 9, N_COLS = 2, N_MEMBERS = 6, N_HIDDEN = 2, N_EMBED = 1 };

/* Clusters 1 4 | 0 | 5 6 8, with a router of two layers. */
typedef struct section {
    specrt_clusters_header header;
    uint32_t offsets[M + 1];
    int32_t ids[N_MEMBERS];
    int32_t schedule[2];
    uint16_t w1[N_HIDDEN][N_EMBED + N_COLS], b1[N_HIDDEN], w2[M][N_HIDDEN], b2[M];
} section;

enum { SECTION_BYTES = offsetof(section, b2) + sizeof(uint16_t[M]) };

static section good(void) {
    section s = {.header = {.n_rows = N_ROWS,
                            .n_cols = N_COLS,
                            .n_clusters = M,
                            .n_members = N_MEMBERS,
                            .router = SPECRT_ROUTER_DYNASPEC,
                            .n_embed = N_EMBED,
                            .n_state = N_COLS,
                            .n_hidden = N_HIDDEN,
                            .n_schedule = 2},
                 .offsets = {0, 2, 3, 6},
                 .ids = {1, 4, 0, 5, 6, 8},
                 .schedule = {3, 1},
                 .w1 = {{1, 2, 3}, {4, 5, 6}},
                 .b1 = {7, 8},
                 .w2 = {{9, 10}, {11, 12}, {13, 14}},
                 .b2 = {15, 16, 17}};
    return s;
}

/* What opening it says; the bundle, one at a time, is left open. */
static specrt_status view_of(const section *s, size_t n_bytes, const char *tag,
                             specrt_bundle **bundle, specrt_clusters *view, specrt_error *err) {
    static uint64_t memory[512] __attribute__((aligned(16))); /* the bundle borrows it */
    size_t n;
    fixture_section part = {tag, 1, SPECRT_SECTION_DEPENDS_HEAD, s, n_bytes, n_bytes};
    uint8_t *bytes = fixture_bundle(&part, 1, &n);
    REQUIRE(n <= sizeof memory);
    memcpy(memory, bytes, n);
    free(bytes);
    *bundle = open_memory(memory, n);
    return specrt_bundle_clusters(*bundle, tag, view, err);
}

TEST(view, "every array where the format says, under each tag") {
    const char *tags[] = {"cluster", "group", "centroid"};
    for (int i = 0; i < 3; i++) {
        section s = good();
        specrt_bundle *bundle;
        specrt_clusters c;
        REQUIRE(view_of(&s, SECTION_BYTES, tags[i], &bundle, &c, NULL) == SPECRT_STATUS_OK);
        CHECK_INT(c.offsets[M], N_MEMBERS);
        CHECK_INT(c.ids[5], 8);
        CHECK_INT(c.schedule[1], 1);
        CHECK_INT(c.w1[5], 6);
        CHECK_INT(c.b1[1], 8);
        CHECK_INT(c.w2[5], 14);
        CHECK_INT(c.b2[2], 17);
        specrt_bundle_close(bundle);
    }
}

TEST(kinds, "routers of one layer and of none") {
    section s = good();
    specrt_bundle *bundle;
    specrt_clusters c;
    size_t without = offsetof(section, w1);
    s.header.router = SPECRT_ROUTER_CENTROID;
    s.header.n_embed = s.header.n_hidden = 0;
    memmove(s.w1, s.w2, sizeof s.w2);
    memmove((uint8_t *)s.w1 + sizeof s.w2, s.b2, sizeof s.b2);
    REQUIRE(view_of(&s, without + sizeof s.w2 + sizeof s.b2, "centroid", &bundle, &c, NULL) ==
            SPECRT_STATUS_OK);
    CHECK(c.w1 == NULL && c.b1 == NULL);
    CHECK_INT(c.w2[0], 9);
    CHECK_INT(c.b2[2], 17);
    specrt_bundle_close(bundle);
    s.header.router = SPECRT_ROUTER_NONE;
    s.header.n_state = 0;
    REQUIRE(view_of(&s, without, "cluster", &bundle, &c, NULL) == SPECRT_STATUS_OK);
    CHECK(c.w1 == NULL && c.w2 == NULL && c.b2 == NULL);
    specrt_bundle_close(bundle);
}

TEST(shared_row, "a row may be in several clusters") {
    section s = good();
    specrt_bundle *bundle;
    specrt_clusters c;
    s.ids[2] = 4;
    REQUIRE(view_of(&s, SECTION_BYTES, "cluster", &bundle, &c, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(c.ids[1], 4);
    CHECK_INT(c.ids[2], 4);
    specrt_bundle_close(bundle);
}

static void refuses(const section *s, size_t n, const char *what) {
    specrt_bundle *bundle;
    specrt_clusters c;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    CHECK_INT(view_of(s, n, "cluster", &bundle, &c, &err), SPECRT_STATUS_BUNDLE_CONTENT);
    CHECK_HAS(err.msg, what);
    CHECK(c.header == NULL);
    specrt_bundle_close(bundle);
}

TEST(damage, "every field out of its range") {
    section s = good();
    refuses(&s, SECTION_BYTES - 1, "size: expected the bytes of its header's counts");
    refuses(&s, 47, "size: expected at least its header");
#define DAMAGE(change, what) (s = good(), (change), refuses(&s, SECTION_BYTES, (what)))
    DAMAGE(s.header.n_rows = 0, "n_rows, n_cols: ");
    DAMAGE(s.header.n_cols = 65537, "n_rows, n_cols: ");
    DAMAGE(s.header.n_clusters = 0, "n_clusters, n_members: ");
    DAMAGE(s.header.n_clusters = 7, "n_clusters, n_members: ");
    DAMAGE(s.header.n_members = 10, "n_clusters, n_members: ");
    DAMAGE(s.header.router = 4, "n_embed, n_state, n_hidden: ");
    DAMAGE(s.header.router = SPECRT_ROUTER_CENTROID, "n_embed, n_state, n_hidden: ");
    DAMAGE((s.header.router = SPECRT_ROUTER_CENTROID, s.header.n_hidden = 0),
           "n_embed, n_state, n_hidden: ");
    DAMAGE((s.header.router = SPECRT_ROUTER_CENTROID, s.header.n_embed = 0),
           "n_embed, n_state, n_hidden: ");
    DAMAGE(s.header.router = SPECRT_ROUTER_CORAL, "n_embed, n_state, n_hidden: ");
    DAMAGE(s.header.router = SPECRT_ROUTER_NONE, "n_embed, n_state, n_hidden: ");
    DAMAGE((s.header.router = SPECRT_ROUTER_NONE, s.header.n_embed = s.header.n_state = 0),
           "n_embed, n_state, n_hidden: ");
    DAMAGE((s.header.router = SPECRT_ROUTER_NONE, s.header.n_state = s.header.n_hidden = 0),
           "n_embed, n_state, n_hidden: ");
    DAMAGE((s.header.router = SPECRT_ROUTER_NONE, s.header.n_embed = s.header.n_hidden = 0),
           "n_embed, n_state, n_hidden: ");
    DAMAGE(s.header.n_embed = -1, "n_embed, n_state, n_hidden: ");
    DAMAGE(s.header.n_hidden = 65536, "size: expected the bytes of its header's counts");
    DAMAGE(s.header.n_schedule = 0, "n_schedule, softmax: ");
    DAMAGE(s.header.n_schedule = 33, "n_schedule, softmax: ");
    DAMAGE(s.header.softmax = 2, "n_schedule, softmax: ");
    DAMAGE(s.offsets[0] = 1, "offsets: expected 0 first and n_members last");
    DAMAGE(s.offsets[3] = 5, "offsets: expected 0 first and n_members last");
    DAMAGE(s.offsets[1] = 0, "offsets: expected ascending offsets");
    DAMAGE(s.offsets[1] = 4000000000u, "offsets: expected ascending offsets");
    DAMAGE(s.ids[5] = 9, "ids: expected ids below n_rows");
    DAMAGE(s.ids[0] = -1, "ids: expected ids below n_rows");
    DAMAGE(s.ids[1] = 1, "ids: expected ascending ids in a cluster");
    DAMAGE(s.schedule[0] = 0, "schedule: ");
    DAMAGE(s.schedule[1] = 4, "schedule: ");
    DAMAGE(s.w1[0][0] = 0x7c00, "weights: ");
    DAMAGE(s.b2[2] = 0xfe00, "weights: ");
}

TEST(missing, "a bundle without the section") {
    size_t n;
    uint8_t *bytes = fixture_ranks_bundle(9, 1, 3, &n);
    specrt_clusters c;
    specrt_error err;
    specrt_bundle *bundle = open_memory(bytes, n);
    CHECK_INT(specrt_bundle_clusters(bundle, "cluster", &c, &err),
              SPECRT_STATUS_BUNDLE_SECTION_MISSING);
    CHECK_STR(err.msg,
              "b.specb: has no section 'cluster'; cluster-build --router dynaspec builds it");
    specrt_bundle_close(bundle);
    free(bytes);
}
