/* states_trace.h : a trace of hidden states that tell their number. */
#ifndef TESTS_STATES_TRACE_H
#define TESTS_STATES_TRACE_H

#include <unistd.h>
#include "specrt_tools.h"
#include "test.h"

static int states_trace_append(void *user, const void *bytes, size_t n) {
    return fwrite(bytes, 1, n, (FILE *)user) != n;
}

/* n states, a multiple of 3: state i of the target and of the drafter is (step * i, 1, 1, 1). The drafter
 * made no pass for every fifth. */
static inline void states_trace_write(const char *path, int32_t n, int32_t step) {
    const specrt_trace_info info = {.n_vocab = 9, .d_target = 4, .d_draft = 4};
    static const int32_t zeros[3] = {0}, parents[3] = {-1};
    specrt_trace_record r = {.kind = SPECRT_TRACE_SEQUENCE, .n = 3, .tokens = zeros};
    specrt_trace_writer *writer;
    FILE *f = fopen(path, "wb");
    REQUIRE(f);
    REQUIRE(!specrt_trace_writer_create(&info, states_trace_append, f, NULL, &writer, NULL));
    REQUIRE(!specrt_trace_write(writer, &r, NULL));
    for (int32_t i = 0; i < n; i += 3) {
        float states[12];
        uint16_t target[12], draft[12];
        for (int k = 0; k < 12; k++) states[k] = k % 4 ? 1 : (float)(step * (i + k / 4));
        specrt_to_f16(states, 12, target);
        for (int k = 0; k < 12; k++) draft[k] = (i + k / 4) % 5 == 4 ? 0x7e00 : target[k];
        r = (specrt_trace_record){.kind = SPECRT_TRACE_CYCLE,
                                  .n = 3,
                                  .n_nodes = 3,
                                  .tokens = zeros,
                                  .nodes = zeros,
                                  .tree_tokens = zeros,
                                  .tree_parents = parents,
                                  .target_hidden = target,
                                  .draft_hidden = draft};
        REQUIRE(!specrt_trace_write(writer, &r, NULL));
    }
    REQUIRE(!specrt_trace_writer_close(writer, NULL) && fclose(f) == 0);
}

#endif
