/* trace.h : the layout that writer and reader of traces share */
#ifndef TRACE_H
#define TRACE_H

#include "core/base.h"
#if !defined(SPECRT_NO_ZSTD)
#include <zstd.h>
#endif

enum {
    SPECRT__TRACE_VERSION = 3,
    SPECRT__TRACE_HEADER = 128,
    SPECRT__TRACE_BLOCK_HEADER = 32,
    SPECRT__TRACE_MAGIC_BLOCK = 0x314b4c42,  /* "BLK1" */
    SPECRT__TRACE_MAGIC_HIDDEN = 0x31444948, /* "HID1": hidden states of the block that follows */
    SPECRT__TRACE_FLUSH = 1 << 20,           /* raw bytes of a block, at least */
    SPECRT__TRACE_MAX_BLOCK = 1 << 28,
    SPECRT__TRACE_MAX_WIDTH = 1 << 20,
    SPECRT__TRACE_MAX_TOP = 1 << 12,
    SPECRT__TRACE_MAX_TEXT = 1024, /* of a policy, with its NUL */
    SPECRT__TRACE_FIELDS = 15,
    SPECRT__TRACE_HIDDEN = 1 << 5 | 1 << 9 | 1 << 14, /* fields that are hidden states */
    SPECRT__TRACE_APART = 1 << 30                     /* they are in the block before */
};

/* One array of a record: the address of the pointer to it, and its bytes. */
typedef struct specrt__trace_field {
    void *at;
    uint64_t n_bytes;
} specrt__trace_field;

/* The pointers are of several types, so they are copied as bytes. */
static inline const void *specrt__trace_get(const specrt__trace_field *f) {
    const void *array;
    memcpy(&array, f->at, sizeof array);
    return array;
}

static inline void specrt__trace_set(const specrt__trace_field *f, const void *array) {
    memcpy(f->at, &array, sizeof array);
}

SPECRT__INTERNAL void specrt__trace_layout(const specrt_trace_info *info, specrt_trace_record *r,
                                           specrt__trace_field f[SPECRT__TRACE_FIELDS]);
SPECRT__INTERNAL bool specrt__trace_counts_ok(const specrt_trace_record *r);
SPECRT__INTERNAL const char *specrt__trace_wrong(const specrt_trace_info *info,
                                                 const specrt_trace_record *r);
SPECRT__INTERNAL bool specrt__trace_info_ok(const specrt_trace_info *info);

/* Bytes that grow. */
typedef struct specrt__trace_buffer {
    uint8_t *p;
    size_t n, at, capacity; /* at: where reading goes on */
} specrt__trace_buffer;

SPECRT__INTERNAL bool specrt__trace_reserve(const specrt_env *env, specrt__trace_buffer *b,
                                            size_t n);

static inline void specrt__trace_release(const specrt_env *env, specrt__trace_buffer *b) {
    specrt__base_free(env, b->p);
    memset(b, 0, sizeof *b);
}

#endif
