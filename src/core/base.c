/* base.c : owns status texts, errors, allocation through specrt_env, overflow-checked sizes, unaligned
 * little-endian loads, half and bfloat16 conversion, keyed random numbers, XXH64 and SHA-256.
 * Refuses big-endian hosts. Nothing here knows of files, bundles or heads. */
#include "core/base.h"

SPECRT_API int32_t specrt_version(void) {
    return SPECRT_VERSION;
}

SPECRT_API const char *specrt_status_name(specrt_status status) {
    switch (status) {
#define SPECRT_STATUS_CASE(name, number, text)                                                     \
    case SPECRT_STATUS_##name: return text;
        SPECRT_STATUS_LIST(SPECRT_STATUS_CASE)
#undef SPECRT_STATUS_CASE
    default: return "unknown status";
    }
}

SPECRT_API specrt_status specrt_error_set(specrt_error *err, specrt_status status,
                                          const char *format, ...) {
    if (err) {
        va_list args;
        va_start(args, format);
        err->status = status;
        err->msg[0] = '\0';
        if (format) vsnprintf(err->msg, sizeof err->msg, format, args);
        va_end(args);
        for (char *p = err->msg; *p; p++) /* names from hostile files stay on one line */
            if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    }
    return status;
}

SPECRT__INTERNAL specrt_status specrt__base_refuse_null(specrt_error *err, const char *function,
                                                        const char *argument) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "%s: %s: expected a pointer, found NULL",
                            function, argument);
}

/* --- hashes --- */

#define SPECRT__BASE_P1 0x9E3779B185EBCA87u
#define SPECRT__BASE_P2 0xC2B2AE3D27D4EB4Fu
#define SPECRT__BASE_P3 0x165667B19E3779F9u
#define SPECRT__BASE_P4 0x85EBCA77C2B2AE63u
#define SPECRT__BASE_P5 0x27D4EB2F165667C5u

static uint64_t specrt__base_rotl64(uint64_t x, int n) {
    return x << n | x >> (64 - n);
}

static uint64_t specrt__base_hash_round(uint64_t lane, uint64_t input) {
    return specrt__base_rotl64(lane + input * SPECRT__BASE_P2, 31) * SPECRT__BASE_P1;
}

/* XXH64: four lanes over blocks of 32 bytes, merged, then the tail, then the avalanche. */
SPECRT_API uint64_t specrt_hash64(const void *data, size_t bytes, uint64_t seed) {
    const uint8_t *p = (const uint8_t *)data;
    size_t left = bytes;
    uint64_t hash = seed + SPECRT__BASE_P5;
    if (!data && bytes > 0) return 0;
    if (bytes >= 32) {
        uint64_t lane[4] = {seed + SPECRT__BASE_P1 + SPECRT__BASE_P2, seed + SPECRT__BASE_P2, seed,
                            seed - SPECRT__BASE_P1};
        for (; left >= 32; p += 32, left -= 32)
            for (int i = 0; i < 4; i++)
                lane[i] = specrt__base_hash_round(lane[i], specrt__base_load64(p + 8 * i));
        hash = specrt__base_rotl64(lane[0], 1) + specrt__base_rotl64(lane[1], 7) +
               specrt__base_rotl64(lane[2], 12) + specrt__base_rotl64(lane[3], 18);
        for (int i = 0; i < 4; i++) {
            hash ^= specrt__base_hash_round(0, lane[i]);
            hash = hash * SPECRT__BASE_P1 + SPECRT__BASE_P4;
        }
    }
    hash += bytes;
    for (; left >= 8; p += 8, left -= 8) {
        hash ^= specrt__base_hash_round(0, specrt__base_load64(p));
        hash = specrt__base_rotl64(hash, 27) * SPECRT__BASE_P1 + SPECRT__BASE_P4;
    }
    for (; left >= 4; p += 4, left -= 4) {
        hash ^= specrt__base_load32(p) * SPECRT__BASE_P1;
        hash = specrt__base_rotl64(hash, 23) * SPECRT__BASE_P2 + SPECRT__BASE_P3;
    }
    for (; left > 0; p++, left--) {
        hash ^= *p * SPECRT__BASE_P5;
        hash = specrt__base_rotl64(hash, 11) * SPECRT__BASE_P1;
    }
    hash = (hash ^ hash >> 33) * SPECRT__BASE_P2;
    hash = (hash ^ hash >> 29) * SPECRT__BASE_P3;
    return hash ^ hash >> 32;
}

static uint32_t specrt__base_rotr32(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static uint32_t specrt__base_load_be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* A word of the schedule from the 16 words before it. */
static uint32_t specrt__base_sha_word(const uint32_t *w) {
    uint32_t x = w[-15], y = w[-2];
    x = specrt__base_rotr32(x, 7) ^ specrt__base_rotr32(x, 18) ^ x >> 3;
    y = specrt__base_rotr32(y, 17) ^ specrt__base_rotr32(y, 19) ^ y >> 10;
    return w[-16] + x + w[-7] + y;
}

static void specrt__base_sha_block(uint32_t state[8], const uint8_t *block) {
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    uint32_t w[64];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i++) {
        w[i] = i < 16 ? specrt__base_load_be32(block + 4 * i) : specrt__base_sha_word(w + i);
        uint32_t x =
            specrt__base_rotr32(e, 6) ^ specrt__base_rotr32(e, 11) ^ specrt__base_rotr32(e, 25);
        uint32_t y =
            specrt__base_rotr32(a, 2) ^ specrt__base_rotr32(a, 13) ^ specrt__base_rotr32(a, 22);
        uint32_t t = h + x + ((e & f) ^ (~e & g)) + k[i] + w[i];
        h = g, g = f, f = e, e = d + t;
        d = c, c = b, b = a, a = t + y + ((b & c) ^ (b & d) ^ (c & d));
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

SPECRT_API void specrt_sha256_init(specrt_sha256 *sha) {
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    if (!sha) return;
    memset(sha, 0, sizeof *sha);
    memcpy(sha->state, start, sizeof start);
}

SPECRT_API void specrt_sha256_update(specrt_sha256 *sha, const void *data, size_t bytes) {
    const uint8_t *p = (const uint8_t *)data;
    if (!sha || !data) return;
    size_t held = (size_t)(sha->n_bytes % 64);
    sha->n_bytes += bytes;
    if (held + bytes >= 64 && held > 0) {
        memcpy(sha->block + held, p, 64 - held);
        specrt__base_sha_block(sha->state, sha->block);
        p += 64 - held, bytes -= 64 - held, held = 0;
    }
    for (; bytes >= 64; p += 64, bytes -= 64) specrt__base_sha_block(sha->state, p);
    if (bytes > 0) memcpy(sha->block + held, p, bytes);
}

SPECRT_API void specrt_sha256_final(specrt_sha256 *sha, uint8_t digest[32]) {
    uint8_t tail[72] = {0x80};
    if (digest) memset(digest, 0, 32);
    if (!sha || !digest) return;
    uint64_t n_bits = sha->n_bytes * 8;
    size_t n_pad = 64 - (size_t)((sha->n_bytes + 8) % 64);
    for (int i = 0; i < 8; i++) tail[n_pad + (size_t)i] = (uint8_t)(n_bits >> (56 - 8 * i));
    specrt_sha256_update(sha, tail, n_pad + 8);
    for (int i = 0; i < 32; i++) digest[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* id and length before the bytes, so that no two vocabularies give one byte stream. */
SPECRT_API void specrt_tokenizer_hash_token(specrt_sha256 *sha, int32_t id, const void *bytes,
                                            size_t n) {
    uint8_t head[8];
    if (!bytes && n > 0) return;
    for (int i = 0; i < 4; i++) {
        head[i] = (uint8_t)((uint32_t)id >> (8 * i));
        head[4 + i] = (uint8_t)((uint32_t)n >> (8 * i));
    }
    specrt_sha256_update(sha, head, sizeof head);
    specrt_sha256_update(sha, bytes, n);
}
