/* test_base.c : errors, checked sizes, half and bfloat16, hashes. */
#include "specrt_tools.h"
#include "core/base.h"
#include "test.h"

TEST(status, "every status has a number and a text of its own") {
    const specrt_status all[] = {
#define STATUS(name, number, text) SPECRT_STATUS_##name,
        SPECRT_STATUS_LIST(STATUS)
#undef STATUS
    };
    int n = (int)(sizeof all / sizeof all[0]);
    CHECK_INT(SPECRT_STATUS_OK, 0);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            CHECK(all[i] != all[k]);
            CHECK(strcmp(specrt_status_name(all[i]), specrt_status_name(all[k])) != 0);
        }
    CHECK_STR(specrt_status_name((specrt_status)12345), "unknown status");
}

TEST(error, "messages are formatted, cut, and optional") {
    specrt_error err = {SPECRT_STATUS_OK, ""};
    char long_text[2000];
    memset(long_text, 'x', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    CHECK_INT(specrt_error_set(&err, SPECRT_STATUS_IO, "%s: %d", "file", 7), SPECRT_STATUS_IO);
    CHECK_INT(err.status, SPECRT_STATUS_IO);
    CHECK_STR(err.msg, "file: 7");
    CHECK_INT(specrt_error_set(NULL, SPECRT_STATUS_IO, "nobody listens"), SPECRT_STATUS_IO);
    specrt_error_set(&err, SPECRT_STATUS_IO, "a\x1b[0m\x7f\nb\x1f~");
    CHECK_STR(err.msg, "a?[0m??b?~");
    specrt_error_set(&err, SPECRT_STATUS_IO, "%s", long_text);
    CHECK_INT(strlen(err.msg), sizeof err.msg - 1);
}

TEST(sizes, "overflow is seen") {
    uint64_t out;
    CHECK(specrt__base_mul(UINT64_MAX / 3, 3, &out) && out == UINT64_MAX);
    CHECK(!specrt__base_mul(UINT64_MAX / 3 + 1, 3, &out));
    CHECK(specrt__base_mul(UINT64_MAX, 0, &out) && out == 0);
    CHECK(specrt__base_add(UINT64_MAX - 5, 5, &out) && out == UINT64_MAX);
    CHECK(!specrt__base_add(UINT64_MAX - 5, 6, &out));
    CHECK_INT(specrt__base_align(0, 64), 0);
    CHECK_INT(specrt__base_align(1, 64), 64);
    CHECK_INT(specrt__base_align(64, 64), 64);
}

/* What IEEE 754 says a half means, by arithmetic rather than by bits. */
static double half_value(uint16_t half) {
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double magnitude = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) magnitude = fraction ? (double)NAN : (double)INFINITY;
    return half & 0x8000 ? -magnitude : magnitude;
}

TEST(half, "all 65536 halves against arithmetic, there and back") {
    for (int i = 0; i < 65536; i++) {
        double value = half_value((uint16_t)i);
        float got = specrt__base_f16((uint16_t)i);
        CHECK(isnan(value) ? isnan(got) : got == (float)value && !signbit(got) == !signbit(value));
        uint16_t back = specrt__base_to_f16(got);
        CHECK(isnan(value) ? (back & 0x7fff) > 0x7c00 : back == i);
    }
}

/* Rounding: the halves around x, the nearer one, the even one of two as near. */
static uint16_t half_by_search(double x) {
    int low = 0, high = 0x7c00; /* half_value is monotone on [0, 0x7c00] */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (half_value((uint16_t)middle) <= x)
            low = middle;
        else
            high = middle;
    }
    double above = high == 0x7c00 ? 65536.0 : half_value((uint16_t)high);
    double down = x - half_value((uint16_t)low), up = above - x;
    if (down < up || (down == up && low % 2 == 0)) return (uint16_t)low;
    return (uint16_t)high;
}

TEST(half_rounding, "nearest, ties to even, against a search") {
    uint32_t bits = 1;
    for (int i = 0; i < 200000; i++) {
        bits = bits * 1664525u + 1013904223u;
        float x = specrt__base_float((bits & 0x0fffffffu) + 0x32000000u); /* 7e-9 to 3e30 */
        if (i % 4 == 0)
            x = (specrt__base_f16((uint16_t)(bits >> 17)) +
                 specrt__base_f16((uint16_t)((bits >> 17) + 1))) /
                2; /* ties */
        if (!(x >= 0 && x <= FLT_MAX)) continue;
        CHECK_INT(specrt__base_to_f16(x), half_by_search(x));
        CHECK_INT(specrt__base_to_f16(-x), half_by_search(x) | 0x8000);
    }
    CHECK_INT(specrt__base_to_f16(65519.0f), 0x7bff);
    CHECK_INT(specrt__base_to_f16(65520.0f), 0x7c00);
    CHECK_INT(specrt__base_to_f16(INFINITY), 0x7c00);
    CHECK(specrt__base_bf16(0x3f80) == 1.0f && specrt__base_bf16(0xc2f7) == -123.5f);
}

static void pattern(uint8_t *out, int n) {
    for (int i = 0; i < n; i++) out[i] = (uint8_t)(((i * 131 + 7) ^ (i >> 3)) & 255);
}

/* Expected values come from the xxhash package of PyPI, over the same pattern. */
TEST(decay, "e^-x in whole numbers of 2^-40: falling, and near what exp() says") {
    const double one = 1099511627776.0; /* 2^40 */
    uint64_t last = UINT64_MAX;
    for (int i = 0; i < 27700; i++) {
        float x = (float)i / 1000;
        uint64_t got = specrt__base_decay(x);
        CHECK_NEAR((double)got, one * exp(-(double)x), 1e-8 * one * exp(-(double)x) + 2);
        CHECK(got <= last);
        last = got;
    }
    CHECK_INT(specrt__base_decay(-3), specrt__base_decay(0));
    CHECK(specrt__base_decay(27.7f) == 0 && specrt__base_decay(INFINITY) == 0);
    CHECK(specrt__base_decay(NAN) == 0);
}

TEST(hash64, "XXH64 of 300 lengths and 3 seeds") {
    const struct {
        uint64_t seed, fold, empty, abc;
    } cases[] = {
        {0, 0xa0279ccc88038ae2u, 0xef46db3751d8e999u, 0x44bc2cf5ad770999u},
        {1, 0xf4e6b9aa0ab5fd51u, 0xd5afba1336a3be4bu, 0xbea9ca8199328908u},
        {0x9e3779b97f4a7c15u, 0x336cc983b44caff2u, 0xc4349fc93c010000u, 0x2ed0f59d6b43ac8bu}};
    uint8_t bytes[300];
    pattern(bytes, 300);
    for (int i = 0; i < 3; i++) {
        uint64_t fold = 0;
        for (size_t n = 0; n < 300; n++)
            fold = fold * 1099511628211u ^ specrt_hash64(bytes, n, cases[i].seed);
        CHECK(fold == cases[i].fold);
        CHECK(specrt_hash64("", 0, cases[i].seed) == cases[i].empty);
        CHECK(specrt_hash64(NULL, 0, cases[i].seed) == cases[i].empty);
        CHECK(specrt_hash64("abc", 3, cases[i].seed) == cases[i].abc);
    }
    uint8_t shifted[301]; /* any alignment */
    memcpy(shifted + 1, bytes, 300);
    CHECK(specrt_hash64(shifted + 1, 300, 5) == specrt_hash64(bytes, 300, 5));
}

static void check_digest(specrt_sha256 *sha, const char *expected) {
    uint8_t digest[33];
    char hex[65];
    digest[32] = 0xee;
    specrt_sha256_final(sha, digest);
    CHECK_INT(digest[32], 0xee);
    for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    CHECK_STR(hex, expected);
}

TEST(sha256, "published vectors, and 300 lengths cut in two") {
    specrt_sha256 sha, fold;
    uint8_t bytes[300], digest[32];
    specrt_sha256_init(&sha);
    check_digest(&sha, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    specrt_sha256_init(&sha);
    specrt_sha256_update(&sha, "abc", 3);
    check_digest(&sha, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    specrt_sha256_init(&sha);
    for (int i = 0; i < 1000000; i++) specrt_sha256_update(&sha, "a", 1);
    check_digest(&sha, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    /* Every length around the block, fed in two pieces cut everywhere; folded by hashlib. */
    pattern(bytes, 300);
    specrt_sha256_init(&fold);
    for (size_t n = 0; n < 300; n++) {
        size_t cut = n * 7 % (n + 1);
        specrt_sha256_init(&sha);
        specrt_sha256_update(&sha, bytes, cut);
        specrt_sha256_update(&sha, bytes + cut, n - cut);
        specrt_sha256_final(&sha, digest);
        specrt_sha256_update(&fold, digest, 32);
    }
    check_digest(&fold, "87e8c044a17a8e439cbfab010f72eb2601f282e55e7d67589dbf7c0650f22cae");
}

TEST(tokenizer_digest, "the bytes under a tokenizer's digest") {
    specrt_sha256 sha;
    uint8_t long_token[300];
    pattern(long_token, 300);
    specrt_sha256_init(&sha);
    specrt_tokenizer_hash_token(&sha, 0, "a", 1);
    specrt_tokenizer_hash_token(&sha, 1, "", 0);
    specrt_tokenizer_hash_token(&sha, 7, "\0\xff", 2);
    specrt_tokenizer_hash_token(&sha, 100000, " hello", 6);
    specrt_tokenizer_hash_token(&sha, INT32_MAX, long_token, sizeof long_token);
    check_digest(&sha, "81b869f0b3c6d1feea997259888775448898cdb6eca4728bd8e1af74d140f89a");
}

TEST(version, "the library's version is the header's") {
    CHECK_INT(specrt_version(), SPECRT_VERSION);
    CHECK_INT(SPECRT_VERSION / 10000, SPECRT_VERSION_MAJOR);
    CHECK_INT(SPECRT_VERSION / 100 % 100, SPECRT_VERSION_MINOR);
    CHECK_INT(SPECRT_VERSION % 100, SPECRT_VERSION_PATCH);
}
