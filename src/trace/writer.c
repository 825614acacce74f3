/* writer.c : owns the writing of traces. */
#include "trace/trace.h"
#include "core/base.h"

/* --- writing --- */

struct specrt_trace_writer {
    specrt_env env;
    specrt_trace_info info;
    int (*write)(void *user, const void *bytes, size_t n);
    void *user;
    specrt__trace_buffer records, hidden, stored; /* of the block at hand; stored: compressed */
    uint32_t n_records;
};

static void specrt__trace_store32(uint8_t *p, uint32_t x) {
    memcpy(p, &x, 4);
}
static void specrt__trace_store64(uint8_t *p, uint64_t x) {
    memcpy(p, &x, 8);
}

static specrt_status specrt__trace_put(specrt_trace_writer *w, const void *bytes, size_t n,
                                       specrt_error *err) {
    if (w->write(w->user, bytes, n) == 0) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_IO,
                            "trace: write: expected 0, found a failure of the callback");
}

static specrt_status specrt__trace_put_header(specrt_trace_writer *w, specrt_error *err) {
    const specrt_trace_info *info = &w->info;
    uint8_t h[SPECRT__TRACE_HEADER + 4 * SPECRT_MAX_TERMINATORS + SPECRT__TRACE_MAX_TEXT] = {0};
    uint8_t *more = h + SPECRT__TRACE_HEADER;
    size_t n_ids = 4 * (size_t)info->n_terminators;
    size_t n_text = info->policy ? strlen(info->policy) + 1 : 0;
    if (n_text > SPECRT__TRACE_MAX_TEXT)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "trace: policy: expected at most %d bytes, found %llu",
                                SPECRT__TRACE_MAX_TEXT - 1, (unsigned long long)n_text - 1);
    if (n_ids > 0) memcpy(more, info->terminators, n_ids);
    if (n_text > 0) memcpy(more + n_ids, info->policy, n_text);
    memcpy(h, "SPECRTRC", 8);
    specrt__trace_store32(h + 8, SPECRT__TRACE_VERSION);
    specrt__trace_store32(h + 12, (uint32_t)(n_ids + n_text));
    specrt__trace_store32(h + 16, (uint32_t)info->n_vocab);
    specrt__trace_store32(h + 20, (uint32_t)info->d_target);
    specrt__trace_store32(h + 24, (uint32_t)info->d_draft);
    specrt__trace_store32(h + 28, (uint32_t)info->n_top);
    specrt__trace_store32(h + 32, (uint32_t)info->n_draft_top);
    specrt__trace_store32(h + 36, (uint32_t)info->n_tree_top);
    memcpy(h + 40, info->tokenizer_sha256, 32);
    specrt__trace_store32(h + 72, (uint32_t)info->tree.num_steps);
    specrt__trace_store32(h + 76, (uint32_t)info->tree.topk);
    specrt__trace_store32(h + 80, (uint32_t)info->tree.num_draft_tokens);
    specrt__trace_store32(h + 84, (uint32_t)info->draft);
    memcpy(h + 88, &info->temperature, 4);
    specrt__trace_store32(h + 92, (uint32_t)info->n_ids);
    specrt__trace_store32(h + 96, (uint32_t)info->n_terminators);
    specrt__trace_store64(h + 104, specrt_hash64(more, n_ids + n_text, 0));
    specrt__trace_store64(h + 120, specrt_hash64(h, 120, 0));
    return specrt__trace_put(w, h, SPECRT__TRACE_HEADER + n_ids + n_text, err);
}

SPECRT_API specrt_status specrt_trace_writer_create(
    const specrt_trace_info *info, int (*write)(void *user, const void *bytes, size_t n),
    void *user, const specrt_env *env, specrt_trace_writer **out, specrt_error *err) {
    specrt_env own = specrt__base_env(env);
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(info);
    SPECRT__NEED(write);
    if (!specrt__trace_info_ok(info) || (info->n_terminators > 0 && !info->terminators))
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "trace: expected widths and terminators within limits, found others");
    specrt_trace_writer *w = (specrt_trace_writer *)specrt__base_alloc(&own, sizeof *w);
    if (!w) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "trace: out of memory");
    memset(w, 0, sizeof *w);
    w->env = own;
    w->info = *info;
    w->write = write;
    w->user = user;
    specrt_status status = specrt__trace_put_header(w, err);
    if (status == SPECRT_STATUS_OK)
        *out = w;
    else
        specrt__base_free(&own, w);
    return status;
}

/* The bytes as stored, compressed where that makes them fewer. */
static const uint8_t *specrt__trace_pack(specrt_trace_writer *w, const specrt__trace_buffer *raw,
                                         size_t *n_stored) {
    *n_stored = raw->n;
#if !defined(SPECRT_NO_ZSTD)
    size_t bound = ZSTD_compressBound(raw->n);
    if (specrt__trace_reserve(&w->env, &w->stored, bound)) {
        size_t n = ZSTD_compress(w->stored.p, bound, raw->p, raw->n, 3);
        if (!ZSTD_isError(n) && n < raw->n) return *n_stored = n, w->stored.p;
    }
#else
    (void)w;
#endif
    return raw->p;
}

static specrt_status specrt__trace_put_block(specrt_trace_writer *w, uint32_t magic,
                                             specrt__trace_buffer *raw, specrt_error *err) {
    uint8_t h[SPECRT__TRACE_BLOCK_HEADER];
    size_t n_stored;
    if (raw->n == 0) return SPECRT_STATUS_OK;
    const uint8_t *stored = specrt__trace_pack(w, raw, &n_stored);
    specrt__trace_store32(h, magic);
    specrt__trace_store32(h + 4, w->n_records);
    specrt__trace_store64(h + 8, raw->n);
    specrt__trace_store64(h + 16, n_stored);
    specrt__trace_store64(h + 24, specrt_hash64(stored, n_stored, specrt_hash64(h, 24, 0)));
    raw->n = 0;
    SPECRT__TRY(specrt__trace_put(w, h, sizeof h, err));
    return specrt__trace_put(w, stored, n_stored, err);
}

/* Hidden states first: a file that is cut between the two has neither. */
static specrt_status specrt__trace_flush(specrt_trace_writer *w, specrt_error *err) {
    SPECRT__TRY(specrt__trace_put_block(w, SPECRT__TRACE_MAGIC_HIDDEN, &w->hidden, err));
    SPECRT__TRY(specrt__trace_put_block(w, SPECRT__TRACE_MAGIC_BLOCK, &w->records, err));
    w->n_records = 0;
    return SPECRT_STATUS_OK;
}

/* The arrays of a record that it has, as a bit each, and their bytes: hidden states beside the others. */
static uint32_t specrt__trace_measure(const specrt__trace_field *fields, uint64_t *n,
                                      uint64_t *n_hidden) {
    uint32_t has = 0;
    for (int i = 0; i < SPECRT__TRACE_FIELDS; i++) {
        if (!specrt__trace_get(&fields[i]) || !fields[i].n_bytes) continue;
        has |= 1u << i;
        *(SPECRT__TRACE_HIDDEN >> i & 1 ? n_hidden : n) += (fields[i].n_bytes + 3) & ~(uint64_t)3;
    }
    return *n_hidden ? has | SPECRT__TRACE_APART : has;
}

static void specrt__trace_append(specrt__trace_buffer *b, const void *bytes, uint64_t n) {
    memcpy(b->p + b->n, bytes, (size_t)n);
    memset(b->p + b->n + n, 0, (size_t)(-n & 3));
    b->n += (size_t)((n + 3) & ~(uint64_t)3);
}

/* A record: kind, n, n_nodes, which arrays, the domain of a sequence, the arrays, each up to a multiple
 * of 4 bytes. */
SPECRT_API specrt_status specrt_trace_write(specrt_trace_writer *writer,
                                            const specrt_trace_record *record, specrt_error *err) {
    specrt__trace_field fields[SPECRT__TRACE_FIELDS];
    SPECRT__NEED(writer);
    SPECRT__NEED(record);
    specrt_trace_record r = *record;
    bool begins = r.kind == SPECRT_TRACE_SEQUENCE;
    uint64_t n = 16 + (begins ? sizeof r.domain : 0), n_hidden = 0;
    const char *wrong =
        specrt__trace_counts_ok(&r) ? specrt__trace_wrong(&writer->info, &r) : "counts";
    if (wrong)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "trace: record: %s: expected values within limits, found others",
                                wrong);
    specrt__trace_layout(&writer->info, &r, fields);
    uint32_t has = specrt__trace_measure(fields, &n, &n_hidden);
    if (n > SPECRT__TRACE_MAX_BLOCK - writer->records.n ||
        n_hidden > SPECRT__TRACE_MAX_BLOCK - writer->hidden.n)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "trace: record: expected less than a block, found more");
    if (!specrt__trace_reserve(&writer->env, &writer->records, writer->records.n + (size_t)n) ||
        !specrt__trace_reserve(&writer->env, &writer->hidden, writer->hidden.n + (size_t)n_hidden))
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "trace: out of memory");
    const uint32_t head[4] = {(uint32_t)r.kind, (uint32_t)r.n, (uint32_t)r.n_nodes, has};
    r.domain[sizeof r.domain - 1] = '\0';
    specrt__trace_append(&writer->records, head, sizeof head);
    if (begins) specrt__trace_append(&writer->records, r.domain, sizeof r.domain);
    for (int i = 0; i < SPECRT__TRACE_FIELDS; i++)
        if (has >> i & 1)
            specrt__trace_append(SPECRT__TRACE_HIDDEN >> i & 1 ? &writer->hidden : &writer->records,
                                 specrt__trace_get(&fields[i]), fields[i].n_bytes);
    writer->n_records++;
    return writer->records.n + writer->hidden.n >= SPECRT__TRACE_FLUSH
               ? specrt__trace_flush(writer, err)
               : SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_trace_writer_close(specrt_trace_writer *w, specrt_error *err) {
    if (!w) return SPECRT_STATUS_OK;
    specrt_status status = specrt__trace_flush(w, err);
    specrt_env env = w->env;
    specrt__trace_release(&env, &w->records);
    specrt__trace_release(&env, &w->hidden);
    specrt__trace_release(&env, &w->stored);
    specrt__base_free(&env, w);
    return status;
}
