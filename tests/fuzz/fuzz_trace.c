/* fuzz_trace.c : traces from hostile bytes, as they come and again with their checksums made right, with
 * their hidden states and without. */
#include "specrt_tools.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void read_all(const uint8_t *bytes, size_t n, bool hidden) {
    static volatile unsigned sink;
    specrt_trace_reader *r;
    specrt_trace_record record;
    specrt_error err;
    if (specrt_trace_open_memory(bytes, n, "fuzz", NULL, &r, &err) != SPECRT_STATUS_OK) return;
    const specrt_trace_info *info = specrt_trace_get_info(r);
    if (!hidden) specrt_trace_skip_hidden(r);
    while (specrt_trace_read(r, &record, &err) == SPECRT_STATUS_OK &&
           record.kind != SPECRT_TRACE_END) {
        for (int32_t i = 0; i < record.n; i++) sink += (unsigned)record.tokens[i];
        for (int64_t i = 0; record.draft_hidden && i < (int64_t)record.n * info->d_draft; i++)
            sink += record.draft_hidden[i];
        for (int64_t i = 0; record.draft_logits && i < (int64_t)record.n * info->n_draft_top; i++)
            sink += record.draft_logits[i] > 0;
        for (int32_t i = 0; record.draft_logsumexp && i < record.n; i++)
            sink += record.draft_logsumexp[i] > 0;
        for (int64_t i = 0; record.tree_top_ids && i < (int64_t)record.n_nodes * info->n_tree_top;
             i++)
            sink += (unsigned)record.tree_top_ids[i];
    }
    for (int32_t i = 0; i < info->n_terminators; i++) sink += (unsigned)info->terminators[i];
    if (info->policy) sink += (unsigned)strlen(info->policy);
    specrt_trace_close(r);
}

static uint64_t adler(const uint8_t *p, size_t n, uint64_t sum) {
    uint32_t a = (uint32_t)sum & 0xffff, b = (uint32_t)sum >> 16;
    for (size_t i = 0; i < n; i++) a = (a + p[i]) % 65521, b = (b + a) % 65521;
    return b << 16 | a;
}

/* Header and blocks, as docs/FORMAT.md has them. */
static void seal(uint8_t *p, size_t n) {
    uint64_t hash, n_stored;
    uint32_t version, n_more, kind;
    memcpy(&version, p + 8, 4);
    memcpy(&n_more, p + 12, 4);
    memcpy(&kind, p + 100, 4);
    bool adlers = version > 2 && kind == 1;
    if (version == 1 || n_more > n - 128) n_more = 0;
    hash = adlers ? adler(p + 128, n_more, 1) : specrt_hash64(p + 128, n_more, 0);
    if (version > 1) memcpy(p + 104, &hash, 8);
    hash = adlers ? adler(p, 120, 1) : specrt_hash64(p, 120, 0);
    memcpy(p + 120, &hash, 8);
    for (size_t at = 128 + n_more; n - at >= 32; at += 32 + (size_t)n_stored) {
        const uint8_t *stored = p + at + 32;
        memcpy(&n_stored, p + at + 16, 8);
        if (n_stored > n - at - 32) break;
        hash = adlers ? adler(stored, (size_t)n_stored, adler(p + at, 24, 1))
                      : specrt_hash64(stored, (size_t)n_stored, specrt_hash64(p + at, 24, 0));
        memcpy(p + at + 24, &hash, 8);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = (uint8_t *)malloc(size ? size : 1);
    if (size > 0) memcpy(copy, data, size);
    read_all(copy, size, true);
    if (size >= 128) {
        seal(copy, size);
        read_all(copy, size, true);
        read_all(copy, size, false);
    }
    free(copy);
    return 0;
}
