/* fuzz_trace.c : traces from hostile bytes, as they come and again with their checksums made right. */
#include "specrt.h"

#include <stdlib.h>
#include <string.h>

static void read_all(const uint8_t *bytes, size_t n) {
    static volatile unsigned sink;
    specrt_trace_reader *r;
    specrt_trace_record record;
    specrt_error err;
    if (specrt_trace_open_memory(bytes, n, "fuzz", NULL, &r, &err) != SPECRT_STATUS_OK) return;
    const specrt_trace_info *info = specrt_trace_get_info(r);
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

/* Header and blocks, as docs/FORMAT.md has them. */
static void seal(uint8_t *p, size_t n) {
    uint64_t hash, n_stored;
    uint32_t version, n_more;
    memcpy(&version, p + 8, 4);
    memcpy(&n_more, p + 12, 4);
    if (version == 1 || n_more > n - 128) n_more = 0;
    hash = specrt_hash64(p + 128, n_more, 0);
    if (version > 1) memcpy(p + 104, &hash, 8);
    hash = specrt_hash64(p, 120, 0);
    memcpy(p + 120, &hash, 8);
    for (size_t at = 128 + n_more; n - at >= 32; at += 32 + (size_t)n_stored) {
        memcpy(&n_stored, p + at + 16, 8);
        if (n_stored > n - at - 32) break;
        hash = specrt_hash64(p + at + 32, (size_t)n_stored, specrt_hash64(p + at, 24, 0));
        memcpy(p + at + 24, &hash, 8);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = (uint8_t *)malloc(size ? size : 1);
    if (size > 0) memcpy(copy, data, size);
    read_all(copy, size);
    if (size >= 128) {
        seal(copy, size);
        read_all(copy, size);
    }
    free(copy);
    return 0;
}
