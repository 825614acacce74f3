/* sessions.h : sessions over heads and sketches of random weights. Include specrt.h with its implementation
 * before. */
#ifndef SESSIONS_H
#define SESSIONS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../tests/fixture.h"

static inline void require(specrt_status status, const specrt_error *err) {
    if (status) fprintf(stderr, "benchmark: %s\n", err->msg), exit(1);
}

static inline void *take(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (!p) fprintf(stderr, "benchmark: out of memory\n"), exit(1);
    specrt__os_advise_huge(p, bytes);
    memset(p, 0, bytes);
    return p;
}

/* Halves near 0.03, of either sign; of blocks they are scales now and then. */
static inline void fill_halves(uint8_t *out, size_t n) {
    uint64_t state = 3;
    for (size_t i = 0; i < n; i++) {
        uint16_t half = (uint16_t)(0x2800 | ((fixture_random(&state) >> 32) & 0x83ff));
        memcpy(out + 2 * i, &half, sizeof half);
    }
}

static const int32_t root = 1; /* of every cycle */

static inline specrt_session *open_session(const specrt_bundle *bundle, const specrt_head *head,
                                           const char *text, const specrt_session_params *params) {
    specrt_policy_desc pd = {.text = text};
    specrt_policy *policy;
    specrt_session *out;
    specrt_error err;
    require(specrt_policy_create(bundle, head, &pd, &policy, &err), &err);
    require(specrt_session_create(policy, params, NULL, &out, &err), &err);
    require(specrt_session_begin(out, NULL), specrt_session_last_error(out));
    require(specrt_session_prefill(out, &root, 1, NULL), specrt_session_last_error(out));
    require(specrt_session_start(out, root), specrt_session_last_error(out));
    return out;
}

/* The next cycle of such a session. */
static inline void next_cycle(specrt_session *s) {
    require(specrt_session_observe_chain(s, &root, 1, 0, root, NULL), specrt_session_last_error(s));
}

#endif
