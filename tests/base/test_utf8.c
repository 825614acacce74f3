/* test_utf8.c : validity and repair, against Python's decoder and the standard's definition. */
#include "test.h"
#include "base/utf8.h"
#include <stdbool.h>
#include <unistd.h>

static uint64_t fnv(uint64_t h, const char *p, size_t n) {
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)p[i]) * UINT64_C(0x100000001b3);
    return h;
}

static uint32_t draw_state;
static uint32_t draw(uint32_t n) {
    draw_state = draw_state * 1664525u + 1013904223u;
    return (draw_state >> 8) % n;
}

/* ---- the definition: which byte strings begin a well-formed sequence ---- */

/* Bitmaps over 1..4 bytes, the fourth by its low six bits. */
static uint8_t *prefix[5];

static size_t slot(const uint8_t *p, int n) {
    size_t value = 0;
    for (int i = 0; i < n; i++) value = value << (i == 3 ? 6 : 8) | (i == 3 ? p[i] & 0x3Fu : p[i]);
    return value;
}

static bool begins(const uint8_t *p, int n) {
    if (n == 4 && (p[3] & 0xC0) != 0x80) return false;
    return prefix[n][slot(p, n) / 8] >> slot(p, n) % 8 & 1;
}

static int encode(uint32_t cp, uint8_t out[4]) {
    if (cp < 0x80) return out[0] = (uint8_t)cp, 1;
    if (cp < 0x800) return out[0] = (uint8_t)(192 + cp / 64), out[1] = (uint8_t)(128 + cp % 64), 2;
    out[0] = (uint8_t)(cp < 0x10000 ? 224 + cp / 4096 : 240 + cp / 262144);
    if (cp < 0x10000)
        return out[1] = (uint8_t)(128 + cp / 64 % 64), out[2] = (uint8_t)(128 + cp % 64), 3;
    out[1] = (uint8_t)(128 + cp / 4096 % 64);
    return out[2] = (uint8_t)(128 + cp / 64 % 64), out[3] = (uint8_t)(128 + cp % 64), 4;
}

static void list_prefixes(void) {
    if (prefix[1]) return;
    for (int n = 1; n <= 4; n++)
        prefix[n] = (uint8_t *)calloc((size_t)1 << (n == 4 ? 27 : 8 * n - 3), 1);
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        uint8_t bytes[4];
        if (cp >= 0xD800 && cp < 0xE000) continue;
        int length = encode(cp, bytes);
        for (int n = 1; n <= length; n++)
            prefix[n][slot(bytes, n) / 8] |= (uint8_t)(1 << slot(bytes, n) % 8);
    }
}

static int length_by_lead(uint8_t lead) {
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* The longest prefix of a well-formed sequence is one step; a whole sequence is copied. */
static size_t repair_by_definition(const uint8_t *p, size_t n, char *out, size_t *first_bad) {
    size_t at = 0;
    *first_bad = n;
    for (size_t i = 0; i < n;) {
        int best = 0;
        for (int k = 1; k <= 4 && i + (size_t)k <= n && begins(p + i, k); k++) best = k;
        if (best > 0 && best == length_by_lead(p[i])) {
            memcpy(out + at, p + i, (size_t)best);
            at += (size_t)best;
        } else {
            if (*first_bad == n) *first_bad = i;
            memcpy(out + at, "\xEF\xBF\xBD", 3);
            at += 3;
        }
        i += best > 0 ? (size_t)best : 1;
    }
    return at;
}

/* ---- cases ---- */

static uint64_t repaired_hash(uint64_t h, const uint8_t *bytes, size_t n) {
    char out[16];
    uint64_t replaced = 0;
    size_t m = sl_utf8_repair((const char *)bytes, n, out, &replaced);
    out[m] = '\n';
    return fnv(h, out, m + 1);
}

static const uint8_t edges[25] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                  0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE,
                                  0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};

static uint64_t hash_tails(uint64_t h, uint8_t bytes[4], size_t n, size_t length) {
    if (n == length) return repaired_hash(h, bytes, n);
    for (size_t i = 0; i < sizeof edges; i++) {
        bytes[n] = edges[i];
        h = hash_tails(h, bytes, n + 1, length);
    }
    return h;
}

/* Made by Python 3: for each lead byte FNV-1a over s.decode("utf-8", errors="replace").encode() +
 * b"\n" for all s of 1 to 4 edge bytes that begin with it, shorter ones first, in order of the
 * table. */
TEST(python, "strings of 1 to 4 edge bytes come out as from Python") {
    static const struct {
        uint8_t lead;
        uint64_t hash;
    } expected[] = {{0x00, UINT64_C(0xE3AE07BF083F0607)}, {0x41, UINT64_C(0x4FEEA1469AED288F)},
                    {0x7F, UINT64_C(0x5075CB9A22767F4B)}, {0x80, UINT64_C(0x9DAA23B3EA70F573)},
                    {0xBF, UINT64_C(0x9DAA23B3EA70F573)}, {0xC0, UINT64_C(0x9DAA23B3EA70F573)},
                    {0xC1, UINT64_C(0x9DAA23B3EA70F573)}, {0xC2, UINT64_C(0xF93D9202E791B1E2)},
                    {0xDF, UINT64_C(0x3D3693C77F1C6252)}, {0xE0, UINT64_C(0x5EA00834C174C331)},
                    {0xE1, UINT64_C(0x8C4A7C1AEFB18F59)}, {0xEC, UINT64_C(0x96B07CDC5FA37FE5)},
                    {0xED, UINT64_C(0x39853BDBCBBD9CDF)}, {0xEE, UINT64_C(0x5C4A8FC22C032159)},
                    {0xEF, UINT64_C(0xEF5DB8FBD45B9525)}, {0xF0, UINT64_C(0xF608A904A3866BD7)},
                    {0xF1, UINT64_C(0x199499BB53D43629)}, {0xF3, UINT64_C(0x37A2FF5DCD308649)},
                    {0xF4, UINT64_C(0x4B5DBC2DC827BF9D)}, {0xF5, UINT64_C(0x9DAA23B3EA70F573)},
                    {0xFF, UINT64_C(0x9DAA23B3EA70F573)}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        uint8_t bytes[4] = {expected[i].lead};
        uint64_t h = UINT64_C(0xcbf29ce484222325);
        for (size_t length = 1; length <= 4; length++) h = hash_tails(h, bytes, 1, length);
        if (h != expected[i].hash) fprintf(stderr, "lead byte %02X\n", expected[i].lead);
        CHECK(h == expected[i].hash);
    }
}

TEST(python_pairs, "all strings of 1 and 2 bytes come out as from Python") {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int a = 0; a < 256; a++) h = repaired_hash(h, (uint8_t[]){(uint8_t)a}, 1);
    for (int a = 0; a < 256; a++)
        for (int b = 0; b < 256; b++) h = repaired_hash(h, (uint8_t[]){(uint8_t)a, (uint8_t)b}, 2);
    CHECK(h == UINT64_C(0x638C280B128CB3A5));
}

/* Text with runs of every kind, so that the word-wise path starts and stops everywhere. */
static size_t random_text(uint8_t *out, size_t n) {
    size_t at = 0;
    while (at + 80 < n) {
        uint32_t kind = draw(6), length = draw(70);
        for (uint32_t i = 0; i < length && at + 4 < n; i++) {
            uint32_t cp = kind == 0   ? draw(0x80)
                          : kind == 1 ? 0x4E00 + draw(0x5000)
                                      : draw(0x110000);
            if (kind <= 3 && (cp < 0xD800 || cp >= 0xE000))
                at += (size_t)encode(cp, out + at);
            else
                out[at++] = kind == 4 ? edges[draw(25)] : (uint8_t)draw(256);
        }
        if (kind == 5 && at > 0) at -= 1; /* cut the last sequence */
    }
    return at;
}

TEST(definition, "random text against maximal subparts by definition") {
    list_prefixes();
    uint8_t text[4096];
    static char out[3 * 4096], expected[3 * 4096];
    draw_state = 7;
    for (int round = 0; round < 400; round++) {
        size_t offset = draw(16), n = random_text(text, 64 + draw(4000)), first_bad;
        if (offset > n) offset = n;
        uint64_t replaced = 0;
        size_t m = sl_utf8_repair((char *)text + offset, n - offset, out, &replaced);
        size_t want = repair_by_definition(text + offset, n - offset, expected, &first_bad);
        REQUIRE(m == want && memcmp(out, expected, m) == 0);
        CHECK_INT(sl_utf8_valid((char *)text + offset, n - offset), first_bad);
        CHECK_INT(sl_utf8_valid(out, m), m);
        CHECK((replaced == 0) == (first_bad == n - offset));
    }
}

TEST(ascii, "one bad byte in a long run of ASCII, anywhere") {
    char text[200];
    for (size_t at = 0; at < sizeof text; at++) {
        memset(text, 'a', sizeof text);
        CHECK_INT(sl_utf8_valid(text, at), at);
        text[at] = '\xff';
        CHECK_INT(sl_utf8_valid(text, sizeof text), at);
    }
}

TEST(code_points, "every code point encodes, decodes and is valid") {
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        if (cp >= 0xD800 && cp < 0xE000) continue;
        uint8_t bytes[4];
        int n = encode(cp, bytes), length;
        REQUIRE(utf8_next(bytes, &length) == cp && length == n);
        REQUIRE(sl_utf8_valid((const char *)bytes, (size_t)n) == (size_t)n);
        if (n > 1) REQUIRE(sl_utf8_valid((const char *)bytes, (size_t)n - 1) == 0);
    }
}

TEST(interpreter, "with python=python3: a megabyte of random text through the interpreter itself") {
    const char *python = test_setting("python");
    if (!python) SKIP("python=python3 compares with it");
    enum { SIZE = 1 << 20 };
    char in[] = "/tmp/specrt-utf8-XXXXXX", command[512];
    uint8_t *text = (uint8_t *)malloc(SIZE);
    char *ours = (char *)malloc(3 * SIZE), *theirs = (char *)malloc(3 * SIZE);
    draw_state = (uint32_t)getpid();
    size_t n = random_text(text, SIZE);
    int fd = mkstemp(in);
    REQUIRE(fd >= 0 && write(fd, text, n) == (ssize_t)n);
    close(fd);
    snprintf(command, sizeof command,
             "%s -c \"import sys; sys.stdout.buffer.write(open('%s','rb').read()"
             ".decode('utf-8', errors='replace').encode())\"",
             python, in);
    FILE *pipe = popen(command, "r");
    REQUIRE(pipe);
    size_t m = fread(theirs, 1, 3 * SIZE, pipe);
    CHECK_INT(pclose(pipe), 0);
    unlink(in);
    uint64_t replaced = 0;
    CHECK_INT(sl_utf8_repair((char *)text, n, ours, &replaced), m);
    CHECK(memcmp(ours, theirs, m) == 0);
    free(text), free(ours), free(theirs);
}
