/* successor.h : tokens that follow those of a level */
#ifndef SOURCES_SUCCESSOR_H
#define SOURCES_SUCCESSOR_H

#include "core/base.h"
#include "core/head.h"
#include "sources/source.h"

typedef struct specrt__successor_shared {
    specrt_env env;
    const specrt_head *head;
    specrt_cograph graph;
    int32_t size;
} specrt__successor_shared;

typedef struct specrt__successor {
    specrt_env env;
    const specrt__successor_shared *shared;
    float *scores;   /* [n_ids] of tokens found, else 0 */
    uint64_t *keys;  /* [max_found] */
    int32_t *ids;    /* [n_block, size] */
    int32_t *places; /* [n_block, size] their rows in the head */
    uint8_t *rows;   /* [n_block, size] decoded; NULL where the head is computed as stored */
    float *bias;     /* [n_block, size] of decoded rows, or NULL */
    size_t row_stride;
    int32_t n_used; /* of these places by the shortlist at hand */
} specrt__successor;

SPECRT__INTERNAL void *specrt__successor_open(void *opaque, const specrt__source_session *with);

static inline void specrt__successor_close(void *state) {
    specrt__successor *s = (specrt__successor *)state;
    specrt_env env = s->env;
    specrt__base_free(&env, s);
}

extern const specrt__source specrt__successor_source;

#endif
