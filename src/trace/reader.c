/* reader.c : owns the reading of traces. Refuses what is cut or damaged. */
#include "trace/trace.h"
#include "core/base.h"
#include "core/os.h"
#include "decode/policy.h"

/* --- reading --- */

struct specrt_trace_reader {
    specrt_env env;
    specrt__os_map map;
    char name[256]; /* path, for messages */
    const uint8_t *bytes;
    size_t n_bytes, at; /* at: the next block */
    specrt_trace_info info;
    specrt__trace_buffer records, hidden; /* of the block at hand */
    uint32_t n_left;                      /* records of it */
    int64_t n_blocks;
    bool cut, adler, skips; /* adler: checksums; skips: hidden states */
    int32_t terminators[SPECRT_MAX_TERMINATORS];
    char policy[SPECRT__TRACE_MAX_TEXT];
};

static specrt_status specrt__trace_damaged(const specrt_trace_reader *r, const char *what,
                                           specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_TRACE_DAMAGED, "%s: block %lld: %s", r->name,
                            (long long)r->n_blocks, what);
}

/* zlib's Adler-32, for writers in languages whose libraries have that and no XXH64. */
static uint32_t specrt__trace_adler(const uint8_t *p, size_t n, uint32_t sum) {
    enum { MODULUS = 65521, BLOCK = 5552 }; /* so many bytes cannot overflow b */
    uint32_t a = sum & 0xffff, b = sum >> 16;
    for (size_t left; n > 0; a %= MODULUS, b %= MODULUS) {
        left = n < (size_t)BLOCK ? n : (size_t)BLOCK;
        n -= left;
        while (left-- > 0) a += *p++, b += a;
    }
    return b << 16 | a;
}

/* The checksum of bytes [n] that follow others; before: theirs, or what each kind begins with. */
static uint64_t specrt__trace_sum(const specrt_trace_reader *r, const uint8_t *p, size_t n,
                                  uint64_t before) {
    return r->adler ? specrt__trace_adler(p, n, (uint32_t)before) : specrt_hash64(p, n, before);
}

static uint64_t specrt__trace_sum_of(const specrt_trace_reader *r, const uint8_t *p, size_t n) {
    return specrt__trace_sum(r, p, n, r->adler ? 1 : 0);
}

/* What version 2 added: of the recording, and behind the header terminators and the policy's text.
 * @return whether it is all there. */
static bool specrt__trace_read_more(specrt_trace_reader *r, const uint8_t *h, size_t n) {
    const uint8_t *more = h + SPECRT__TRACE_HEADER;
    specrt_trace_info *info = &r->info;
    info->n_tree_top = (int32_t)specrt__base_load32(h + 36);
    info->tree.num_steps = (int32_t)specrt__base_load32(h + 72);
    info->tree.topk = (int32_t)specrt__base_load32(h + 76);
    info->tree.num_draft_tokens = (int32_t)specrt__base_load32(h + 80);
    info->draft = (int32_t)specrt__base_load32(h + 84);
    memcpy(&info->temperature, h + 88, 4);
    info->n_ids = (int32_t)specrt__base_load32(h + 92);
    info->n_terminators = (int32_t)specrt__base_load32(h + 96);
    info->terminators = r->terminators;
    if (info->n_terminators < 0 || info->n_terminators > SPECRT_MAX_TERMINATORS) return false;
    size_t n_ids = 4 * (size_t)info->n_terminators;
    if (n > r->n_bytes - SPECRT__TRACE_HEADER ||
        n - n_ids > sizeof r->policy || /* also below n_ids */
        specrt__base_load64(h + 104) != specrt__trace_sum_of(r, more, n))
        return false;
    memcpy(r->terminators, more, n_ids);
    memcpy(r->policy, more + n_ids, n - n_ids);
    if (n > n_ids) info->policy = r->policy;
    return n == n_ids || r->policy[n - n_ids - 1] == '\0';
}

static specrt_status specrt__trace_read_header(specrt_trace_reader *r, specrt_error *err) {
    const uint8_t *h = r->bytes;
    specrt_trace_info *info = &r->info;
    if (r->n_bytes < SPECRT__TRACE_HEADER || memcmp(h, "SPECRTRC", 8) != 0)
        return specrt_error_set(err, SPECRT_STATUS_TRACE_MAGIC,
                                "%s: not a specrt trace; specrt-eval record writes one", r->name);
    uint32_t version = specrt__base_load32(h + 8), n_more = 0;
    if (version < 1 || version > SPECRT__TRACE_VERSION)
        return specrt_error_set(err, SPECRT_STATUS_TRACE_VERSION,
                                "%s: trace version: expected 1 to %d, found %u", r->name,
                                SPECRT__TRACE_VERSION, (unsigned)version);
    info->n_vocab = (int32_t)specrt__base_load32(h + 16);
    info->d_target = (int32_t)specrt__base_load32(h + 20);
    info->d_draft = (int32_t)specrt__base_load32(h + 24);
    info->n_top = (int32_t)specrt__base_load32(h + 28);
    info->n_draft_top = (int32_t)specrt__base_load32(h + 32);
    memcpy(info->tokenizer_sha256, h + 40, 32);
    r->adler = version > 2 && specrt__base_load32(h + 100) == 1;
    bool good = specrt__base_load64(h + 120) == specrt__trace_sum_of(r, h, 120);
    if (version > 2) good &= specrt__base_load32(h + 100) <= 1;
    if (good && version > 1) n_more = specrt__base_load32(h + 12);
    if (good && version > 1) good = specrt__trace_read_more(r, h, n_more);
    if (!good || !specrt__trace_info_ok(info))
        return specrt_error_set(
            err, SPECRT_STATUS_TRACE_DAMAGED,
            "%s: header: expected a matching checksum and sizes, found others; record "
            "the trace again",
            r->name);
    r->at = SPECRT__TRACE_HEADER + n_more;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__trace_start(specrt__os_map map, const void *bytes, size_t n_bytes,
                                         const char *name, const specrt_env *env,
                                         specrt_trace_reader **out, specrt_error *err) {
    specrt_env own = specrt__base_env(env);
    specrt_trace_reader *r = (specrt_trace_reader *)specrt__base_alloc(&own, sizeof *r);
    *out = NULL;
    if (!r) {
        specrt__os_map_close(&map);
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", name);
    }
    memset(r, 0, sizeof *r);
    r->env = own;
    r->map = map;
    snprintf(r->name, sizeof r->name, "%s", name);
    r->bytes = (const uint8_t *)bytes;
    r->n_bytes = n_bytes;
    specrt_status status = specrt__trace_read_header(r, err);
    if (status == SPECRT_STATUS_OK)
        *out = r;
    else
        specrt_trace_close(r);
    return status;
}

SPECRT_API specrt_status specrt_trace_open(const char *path, const specrt_env *env,
                                           specrt_trace_reader **out, specrt_error *err) {
    specrt__os_map map;
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(path);
    SPECRT__TRY(specrt__os_map_open(path, &map, err));
    return specrt__trace_start(map, map.bytes, map.n, path, env, out, err);
}

SPECRT_API specrt_status specrt_trace_open_memory(const void *bytes, size_t n_bytes,
                                                  const char *name, const specrt_env *env,
                                                  specrt_trace_reader **out, specrt_error *err) {
    specrt__os_map none = {NULL, 0};
    SPECRT__NEED(out);
    *out = NULL;
    if (n_bytes > 0) SPECRT__NEED(bytes); /* an empty file has none */
    SPECRT__NEED(name);
    return specrt__trace_start(none, bytes, n_bytes, name, env, out, err);
}

SPECRT_API void specrt_trace_close(specrt_trace_reader *r) {
    if (!r) return;
    specrt_env env = r->env;
    specrt__os_map_close(&r->map);
    specrt__trace_release(&env, &r->records);
    specrt__trace_release(&env, &r->hidden);
    specrt__base_free(&env, r);
}

SPECRT_API const specrt_trace_info *specrt_trace_get_info(const specrt_trace_reader *reader) {
    return reader ? &reader->info : NULL;
}
SPECRT_API int specrt_trace_is_cut(const specrt_trace_reader *reader) {
    return reader && reader->cut;
}
SPECRT_API void specrt_trace_skip_hidden(specrt_trace_reader *reader) {
    if (reader) reader->skips = true;
}

SPECRT_API specrt_status specrt_trace_check(const specrt_trace_reader *reader,
                                            const uint8_t sha256[32], int32_t d_target,
                                            int32_t d_draft, specrt_error *err) {
    static const uint8_t unknown[32] = {0};
    SPECRT__NEED(reader);
    const specrt_trace_info *info = &reader->info;
    if (sha256 && memcmp(info->tokenizer_sha256, unknown, 32) != 0 &&
        memcmp(info->tokenizer_sha256, sha256, 32) != 0)
        return specrt_error_set(
            err, SPECRT_STATUS_TRACE_MISMATCH,
            "%s: tokenizer: expected this tokenizer's digest, found another; record "
            "the trace again",
            reader->name);
    if ((d_target == 0 || d_target == info->d_target) && (d_draft == 0 || d_draft == info->d_draft))
        return SPECRT_STATUS_OK;
    return specrt_error_set(
        err, SPECRT_STATUS_TRACE_MISMATCH,
        "%s: hidden states: expected widths %d (target) and %d (drafter), found "
        "%d and %d",
        reader->name, (int)d_target, (int)d_draft, (int)info->d_target, (int)info->d_draft);
}

static bool specrt__trace_unpack(const uint8_t *stored, size_t n_stored, uint8_t *raw,
                                 size_t n_raw) {
    if (n_stored == n_raw) return memcpy(raw, stored, n_raw), true;
#if defined(SPECRT_NO_ZSTD)
    return false;
#else
    return ZSTD_decompress(raw, n_raw, stored, n_stored) == n_raw;
#endif
}

typedef struct specrt__trace_block {
    uint32_t magic, n_records; /* n_records = 0: the file ends here, or was cut */
    uint64_t n_raw, n_stored, checksum;
    const uint8_t *header;
} specrt__trace_block;

/* The block that begins at an offset, unless it is not all there. */
static specrt_status specrt__trace_find(specrt_trace_reader *r, size_t at, specrt__trace_block *out,
                                        specrt_error *err) {
    const uint8_t *h = r->bytes + at;
    size_t left = r->n_bytes - at;
    memset(out, 0, sizeof *out);
    r->cut = left > 0 && left < SPECRT__TRACE_BLOCK_HEADER;
    if (left < SPECRT__TRACE_BLOCK_HEADER) return SPECRT_STATUS_OK;
    specrt__trace_block b = {specrt__base_load32(h),      specrt__base_load32(h + 4),
                             specrt__base_load64(h + 8),  specrt__base_load64(h + 16),
                             specrt__base_load64(h + 24), h};
    if ((b.magic != SPECRT__TRACE_MAGIC_BLOCK && b.magic != SPECRT__TRACE_MAGIC_HIDDEN) ||
        b.n_raw > SPECRT__TRACE_MAX_BLOCK || b.n_stored > b.n_raw || b.n_raw < 1 ||
        b.n_records == 0)
        return specrt__trace_damaged(r, "header: expected sizes within limits, found others", err);
    r->cut = b.n_stored > left - SPECRT__TRACE_BLOCK_HEADER;
    if (!r->cut) *out = b;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__trace_load(specrt_trace_reader *r, const specrt__trace_block *b,
                                        specrt__trace_buffer *out, specrt_error *err) {
    const uint8_t *stored = b->header + SPECRT__TRACE_BLOCK_HEADER;
    size_t n = (size_t)b->n_stored;
    if (specrt__trace_sum(r, stored, n, specrt__trace_sum_of(r, b->header, 24)) != b->checksum)
        return specrt__trace_damaged(r, "checksum: expected the stored one, found another", err);
    out->n = out->at = 0;
    if (!specrt__trace_reserve(&r->env, out, (size_t)b->n_raw))
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", r->name);
    if (!specrt__trace_unpack(stored, n, out->p, (size_t)b->n_raw))
        return specrt__trace_damaged(
            r, "data: expected a zstd frame of the stated size, found another", err);
    out->n = (size_t)b->n_raw;
    return SPECRT_STATUS_OK;
}

/* The next block, with the hidden states before it; none when the file ends or was cut. */
static specrt_status specrt__trace_next_block(specrt_trace_reader *r, specrt_error *err) {
    specrt__trace_block hidden = {0, 0, 0, 0, 0, NULL}, block;
    size_t at = r->at;
    r->n_blocks++;
    r->hidden.n = r->hidden.at = 0;
    SPECRT__TRY(specrt__trace_find(r, at, &block, err));
    if (block.magic == SPECRT__TRACE_MAGIC_HIDDEN) {
        hidden = block;
        at += SPECRT__TRACE_BLOCK_HEADER + (size_t)hidden.n_stored;
        SPECRT__TRY(specrt__trace_find(r, at, &block, err));
        r->cut |= block.n_records == 0;
        if (block.magic == SPECRT__TRACE_MAGIC_HIDDEN)
            return specrt__trace_damaged(
                r, "expected records after hidden states, found more hidden states", err);
    }
    if (block.n_records == 0) return SPECRT_STATUS_OK;
    if (hidden.n_records && !r->skips) SPECRT__TRY(specrt__trace_load(r, &hidden, &r->hidden, err));
    SPECRT__TRY(specrt__trace_load(r, &block, &r->records, err));
    r->n_left = block.n_records;
    r->at = at + SPECRT__TRACE_BLOCK_HEADER + (size_t)block.n_stored;
    return SPECRT_STATUS_OK;
}

/* An array of a record: from the block, or from the hidden states before it. @return false: not all there. */
static bool specrt__trace_take_field(specrt_trace_reader *r, const specrt__trace_field *f,
                                     bool hidden, bool apart) {
    specrt__trace_buffer *from = apart ? &r->hidden : &r->records;
    uint64_t n = (f->n_bytes + 3) & ~(uint64_t)3;
    if (apart && r->skips) return true;
    if (n == 0 || n > from->n - from->at) return false;
    if (!(hidden && r->skips)) specrt__trace_set(f, from->p + from->at);
    from->at += (size_t)n;
    return true;
}

/* Points the record's arrays into the block. */
static const char *specrt__trace_take(specrt_trace_reader *r, specrt_trace_record *out) {
    specrt__trace_field fields[SPECRT__TRACE_FIELDS];
    specrt__trace_buffer *b = &r->records;
    if (b->n - b->at < 16) return "ends inside a record";
    const uint8_t *p = b->p + b->at;
    out->kind = (int32_t)specrt__base_load32(p);
    out->n = (int32_t)specrt__base_load32(p + 4);
    out->n_nodes = (int32_t)specrt__base_load32(p + 8);
    uint32_t has = specrt__base_load32(p + 12);
    b->at += 16;
    if (!specrt__trace_counts_ok(out)) return "a record's counts are out of range";
    if (out->kind == SPECRT_TRACE_SEQUENCE) {
        if (b->n - b->at < sizeof out->domain) return "ends inside a record";
        memcpy(out->domain, b->p + b->at, sizeof out->domain - 1);
        b->at += sizeof out->domain;
    }
    specrt__trace_layout(&r->info, out, fields);
    for (int i = 0; i < SPECRT__TRACE_FIELDS; i++) {
        bool hidden = SPECRT__TRACE_HIDDEN >> i & 1;
        if (!(has >> i & 1)) continue;
        if (!specrt__trace_take_field(r, &fields[i], hidden, hidden && (has & SPECRT__TRACE_APART)))
            return "ends inside a record";
    }
    return specrt__trace_wrong(&r->info, out) ? "a record's ids are out of range" : NULL;
}

SPECRT_API specrt_status specrt_trace_read(specrt_trace_reader *reader, specrt_trace_record *record,
                                           specrt_error *err) {
    SPECRT__NEED(record);
    memset(record, 0, sizeof *record);
    SPECRT__NEED(reader);
    if (reader->n_left == 0) SPECRT__TRY(specrt__trace_next_block(reader, err));
    if (reader->n_left == 0) { /* who reads many traces need not keep a block of each */
        specrt__trace_release(&reader->env, &reader->records);
        specrt__trace_release(&reader->env, &reader->hidden);
        return SPECRT_STATUS_OK;
    }
    reader->n_left--;
    const char *wrong = specrt__trace_take(reader, record);
    if (!wrong) return SPECRT_STATUS_OK;
    memset(record, 0, sizeof *record);
    reader->n_left = 0;
    return specrt__trace_damaged(reader, wrong, err);
}
