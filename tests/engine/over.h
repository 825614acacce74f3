/* over.h : a decoder over models that are open, for tests. */
#ifndef TEST_OVER_H
#define TEST_OVER_H

#include "engine/backend/decoder.h"
#include "engine/backend/own.h"
#include "test.h"

typedef struct over {
    backend *engine;
    sequence *sequence;
    decoder *decoder;
} over;

/* drafter, policy : NULL: plain decoding */
static inline over over_models(const engine_model *target, const engine_drafter *drafter,
                               const specrt_policy *policy, const specrt_session_params *params,
                               int32_t n_vocab, int32_t n_context) {
    over o;
    specrt_error err = {0};
    decoder_desc desc = {.kind = policy ? DECODER_SESSION : DECODER_PLAIN,
                         .policy = policy,
                         .params = *params,
                         .n_vocab = n_vocab};
    REQUIRE(own_over(target, drafter, n_context, &o.engine, &err) == SPECRT_STATUS_OK);
    REQUIRE(sequence_create(o.engine, &o.sequence, &err) == SPECRT_STATUS_OK);
    desc.sequence = o.sequence;
    specrt_status status = decoder_create(&desc, &o.decoder, &err);
    if (status != SPECRT_STATUS_OK) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(status == SPECRT_STATUS_OK);
    return o;
}

static inline void over_free(over *o) {
    decoder_free(o->decoder);
    sequence_free(o->sequence);
    backend_close(o->engine);
}

#endif
