/* test_bundle_write.c : bundles written, added to and written over; what is refused leaves no file behind. */
#include "bundle_content.h"
#include "folder.h"

#include <sys/wait.h>
#include "formats/bundle_write.h"
#include "base/io.h"

static specrt_status write_ranks(const char *path, bool force, specrt_error *err) {
    content c = content_make();
    bundle_part part = {"ranks", 1,         SPECRT_SECTION_DEPENDS_TOKENIZER,
                        c.ranks, c.n_ranks, "{\"n_tokens\": 123}"};
    bundle_update u = {.parts = &part, .n_parts = 1, .ident = &c.ident, .force = force};
    specrt_status status = sl_bundle_write(path, &u, err);
    free(c.ranks);
    return status;
}

/* Adds the optional section `tag` whose content is its own name. */
static specrt_status write_tag(const char *path, const char *tag, bool force, specrt_error *err) {
    char provenance[64];
    snprintf(provenance, sizeof provenance, "{\"z\": 1.50, \"a\": [{\"d\": \"%s\", \"c\": 2}]}",
             tag);
    bundle_part part = {tag, 1, SPECRT_SECTION_OPTIONAL, tag, strlen(tag), provenance};
    bundle_update u = {.parts = &part, .n_parts = 1, .force = force};
    return sl_bundle_write(path, &u, err);
}

/* The tags of a bundle in order, each followed by a space; "" when it does not open. */
static const char *tags_of(const char *path) {
    static char out[4096];
    specrt_bundle *bundle;
    int32_t n = 0;
    out[0] = '\0';
    if (specrt_bundle_open(path, NULL, &bundle, NULL) != SPECRT_STATUS_OK) return out;
    const specrt_bundle_section *s = specrt_bundle_sections(bundle, &n);
    for (int32_t i = 0; i < n; i++) snprintf(out + strlen(out), 16, "%.8s ", s[i].tag);
    specrt_bundle_close(bundle);
    return out;
}

static const char *provenance_of(const char *path) {
    static char out[4096];
    specrt_bundle *bundle;
    size_t n;
    out[0] = '\0';
    if (specrt_bundle_open(path, NULL, &bundle, NULL) != SPECRT_STATUS_OK) return out;
    const char *text = (const char *)specrt_bundle_data(bundle, "prov", &n);
    if (text && n < sizeof out) memcpy(out, text, n), out[n] = '\0';
    specrt_bundle_close(bundle);
    return out;
}

TEST(ranks_partial, "half of a vocabulary, as an imported token map gives it") {
    specrt_ranks_header h = {.n_vocab = 1000001, .n_ranked = 3, .n_valid = 3, .n_default = 2};
    int32_t ids[3] = {1000000, 0, 77};
    uint64_t counts[3] = {0};
    bundle_part part;
    REQUIRE(sl_bundle_ranks(&h, ids, counts, &part, NULL) == SPECRT_STATUS_OK);
    bundle_update u = {.parts = &part, .n_parts = 1};
    CHECK_INT(sl_bundle_write(in_folder("half"), &u, NULL), SPECRT_STATUS_OK);
    CHECK_STR(tags_of(in_folder("half")), "ranks ");
    CHECK_INT(clear_folder(), 1);
    free((void *)(uintptr_t)part.data);
}

TEST(write, "create, add, replace, drop; provenance follows") {
    specrt_error err = {SPECRT_STATUS_OK, ""};
    const char *path = in_folder("a.specb");
    CHECK_INT(write_ranks(path, false, &err), SPECRT_STATUS_OK);
    CHECK_INT(open_path(path, &err), SPECRT_STATUS_OK);
    CHECK_INT(write_ranks(path, false, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "has a section 'ranks' already; use -f");
    CHECK_INT(write_ranks(path, true, &err), SPECRT_STATUS_OK);
    CHECK_INT(open_path(path, &err), SPECRT_STATUS_OK);
    CHECK_INT(write_tag(path, "zebra", false, &err), SPECRT_STATUS_OK);
    CHECK_INT(write_tag(path, "apple", false, &err), SPECRT_STATUS_OK);
    CHECK_STR(tags_of(path), "apple ident prov ranks zebra ");
    CHECK_STR(provenance_of(path), "{\"apple\":{\"a\":[{\"c\":2,\"d\":\"apple\"}],\"z\":1.50},"
                                   "\"ranks\":{\"n_tokens\":123},"
                                   "\"zebra\":{\"a\":[{\"c\":2,\"d\":\"zebra\"}],\"z\":1.50}}");
    const char *drop[] = {"zebra", "ranks", "absent"};
    bundle_update u = {.drop = drop, .n_drop = 3};
    CHECK_INT(sl_bundle_write(path, &u, &err), SPECRT_STATUS_OK);
    CHECK_STR(tags_of(path), "apple ident prov ");
    CHECK_STR(provenance_of(path), "{\"apple\":{\"a\":[{\"c\":2,\"d\":\"apple\"}],\"z\":1.50}}");
    CHECK_INT(clear_folder(), 1);
}

static void read_file(const char *path, uint8_t *out, size_t capacity, size_t *n) {
    file_view view = {0};
    *n = 0;
    if (sl_file_map(path, &view, NULL) != SPECRT_STATUS_OK) return;
    *n = view.n < capacity ? view.n : capacity;
    memcpy(out, view.bytes, *n);
    sl_file_unmap(&view);
}

TEST(same_bytes, "the order in which sections came leaves no mark") {
    uint8_t a[8192], b[8192];
    size_t n_a, n_b;
    write_ranks(in_folder("a"), false, NULL);
    write_tag(in_folder("a"), "zebra", false, NULL);
    write_tag(in_folder("a"), "apple", false, NULL);
    write_tag(in_folder("b"), "apple", false, NULL);
    write_tag(in_folder("b"), "zebra", false, NULL);
    write_ranks(in_folder("b"), false, NULL);
    write_ranks(in_folder("b"), true, NULL);
    read_file(in_folder("a"), a, sizeof a, &n_a);
    read_file(in_folder("b"), b, sizeof b, &n_b);
    CHECK(n_a > 1000 && n_a == n_b && memcmp(a, b, n_a) == 0);
    CHECK_INT(clear_folder(), 2);
}

TEST(write_raw, "sections stored raw") {
    content c = content_make();
    int32_t n = 0;
    specrt_bundle *bundle;
    bundle_part part = {"ranks", 1, SPECRT_SECTION_DEPENDS_TOKENIZER, c.ranks, c.n_ranks, NULL};
    bundle_update u = {.parts = &part, .n_parts = 1, .ident = &c.ident, .raw = true};
    CHECK_INT(sl_bundle_write(in_folder("raw"), &u, NULL), SPECRT_STATUS_OK);
    REQUIRE(specrt_bundle_open(in_folder("raw"), NULL, &bundle, NULL) == SPECRT_STATUS_OK);
    const specrt_bundle_section *s = specrt_bundle_sections(bundle, &n);
    for (int32_t i = 0; i < n; i++) CHECK(!(s[i].flags & SPECRT_SECTION_ZSTD));
    CHECK_INT(n, 2);
    specrt_bundle_close(bundle);
    clear_folder();
    free(c.ranks);
}

/* What cannot be read as a bundle is replaced only by force; nothing is left half written. */
TEST(write_over, "files that are no bundles") {
    specrt_error err;
    size_t n;
    uint8_t *bytes = bundle_make(false, &n), after[16];
    sl_out_bytes(in_folder("text"), false, "a poem", 6, NULL);
    CHECK_INT(write_ranks(in_folder("text"), false, &err), SPECRT_STATUS_BUNDLE_MAGIC);
    CHECK_HAS(err.msg, "use -f");
    read_file(in_folder("text"), after, sizeof after, &n);
    CHECK(n == 6 && memcmp(after, "a poem", 6) == 0);
    CHECK_INT(write_ranks(in_folder("text"), true, &err), SPECRT_STATUS_OK);
    CHECK_INT(open_path(in_folder("text"), NULL), SPECRT_STATUS_OK);
    sl_out_bytes(in_folder("cut"), false, bytes, 500, NULL);
    CHECK_INT(write_ranks(in_folder("cut"), false, &err), SPECRT_STATUS_BUNDLE_TRUNCATED);
    CHECK_INT(write_ranks(in_folder("cut"), true, &err), SPECRT_STATUS_OK);
    CHECK_INT(open_path(in_folder("cut"), NULL), SPECRT_STATUS_OK);
    CHECK_INT(write_ranks(in_folder("no/such/folder"), true, &err), SPECRT_STATUS_IO);
    CHECK_INT(write_ranks(folder(), true, &err), SPECRT_STATUS_IO);
    CHECK_INT(clear_folder(), 2);
    free(bytes);
}

TEST(write_refuses, "updates that make no sense, or no bundle") {
    specrt_error err;
    content c = content_make();
    bundle_part part = {"ranks", 1, 0, c.ranks, c.n_ranks, "[1]"};
    bundle_update u = {.parts = &part, .n_parts = 1};
    CHECK_INT(sl_bundle_write(in_folder("x"), &u, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "provenance of 'ranks'");
    part.provenance = "{} {}";
    CHECK_INT(sl_bundle_write(in_folder("x"), &u, &err), SPECRT_STATUS_BAD_ARG);
    part.provenance = NULL;
    part.tag = "prov";
    CHECK_INT(sl_bundle_write(in_folder("x"), &u, &err), SPECRT_STATUS_BAD_ARG);
    part.tag = "far too long";
    CHECK_INT(sl_bundle_write(in_folder("x"), &u, &err), SPECRT_STATUS_BAD_ARG);
    bundle_part twice[2] = {{.tag = "a", .data = "1", .n_bytes = 1}, {.tag = "a"}};
    u = (bundle_update){.parts = twice, .n_parts = 2};
    CHECK_INT(sl_bundle_write(in_folder("x"), &u, &err), SPECRT_STATUS_BAD_ARG);
    /* What the runtime would refuse is never given its name. */
    part = (bundle_part){"ranks", 1, 0, c.ranks, c.n_ranks - 1, NULL};
    u = (bundle_update){.parts = &part, .n_parts = 1};
    CHECK_INT(sl_bundle_write(in_folder("x"), &u, &err), SPECRT_STATUS_BUNDLE_CONTENT);
    part = (bundle_part){"zebra", 1, 0, "s", 1, NULL};
    CHECK_INT(sl_bundle_write(in_folder("x"), &u, &err), SPECRT_STATUS_BUNDLE_VERSION);
    CHECK_INT(clear_folder(), 0);
    free(c.ranks);
}

static specrt_status write_ident(const specrt_ident *ident, specrt_error *err) {
    bundle_update u = {.ident = ident};
    return sl_bundle_write(in_folder("m.specb"), &u, err);
}

TEST(merge_ident, "identities add up or are refused, both named") {
    content c = content_make();
    specrt_ident tokenizer = c.ident, head = {0}, other;
    specrt_error err;
    specrt_bundle *bundle;
    memset(&tokenizer.head_rows, 0,
           offsetof(specrt_ident, tokenizer_name) - offsetof(specrt_ident, head_rows));
    memset(tokenizer.head_name, 0, sizeof tokenizer.head_name);
    head.head_rows = c.ident.head_rows, head.head_cols = c.ident.head_cols;
    head.head_digest = c.ident.head_digest;
    memcpy(head.head_name, c.ident.head_name, sizeof head.head_name);
    CHECK_INT(write_ident(&tokenizer, &err), SPECRT_STATUS_OK);
    CHECK_INT(write_ident(&head, &err), SPECRT_STATUS_OK); /* each adds what the other left open */
    CHECK_INT(write_ident(&c.ident, &err), SPECRT_STATUS_OK);
    other = tokenizer, other.tokenizer_sha256[5] ^= 1;
    strcpy(other.tokenizer_name, "impostor");
    CHECK_INT(write_ident(&other, &err), SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "'golden'");
    CHECK_HAS(err.msg, "'impostor'");
    other = head, other.head_rows++;
    CHECK_INT(write_ident(&other, &err), SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "'golden head' [20, 64], as in the bundle, found 'golden head' [21, 64]");
    other = head;
    for (int i = 0; i < 64; i++) other.head_digest.values[i][0] *= -1;
    for (int i = 0; i < 64; i++) other.head_digest.values[i][1] *= -1;
    CHECK_INT(write_ident(&other, &err), SPECRT_STATUS_BUNDLE_MISMATCH);
    other = head; /* another quantisation of the same head */
    for (int i = 0; i < 64; i++) other.head_digest.values[i][0] *= 1.05f;
    CHECK_INT(write_ident(&other, &err), SPECRT_STATUS_OK);
    REQUIRE(specrt_bundle_open(in_folder("m.specb"), NULL, &bundle, NULL) == SPECRT_STATUS_OK);
    CHECK(memcmp(specrt_bundle_ident(bundle), &c.ident, sizeof c.ident) == 0);
    specrt_bundle_close(bundle);
    CHECK_INT(clear_folder(), 1);
    free(c.ranks);
}

TEST(concurrent, "writers that meet wait for each other: no section is lost, no lock is left") {
    enum { WRITERS = 4, SECTIONS = 6 };
    folder(); /* one for all */
    for (int w = 0; w < WRITERS; w++) {
        if (fork() != 0) continue;
        int failed = 0;
        for (int i = 0; i < SECTIONS; i++) {
            char tag[32];
            snprintf(tag, sizeof tag, "w%d-s%d", w, i);
            failed += write_tag(in_folder("c.specb"), tag, false, NULL) != SPECRT_STATUS_OK;
        }
        _exit(failed);
    }
    for (int w = 0; w < WRITERS; w++) {
        int status = -1;
        wait(&status);
        CHECK_INT(status, 0);
    }
    const char *tags = tags_of(in_folder("c.specb"));
    for (int w = 0; w < WRITERS; w++)
        for (int i = 0; i < SECTIONS; i++) {
            char tag[32];
            snprintf(tag, sizeof tag, "w%d-s%d ", w, i);
            CHECK_HAS(tags, tag);
        }
    CHECK_INT(clear_folder(), 1);
}
