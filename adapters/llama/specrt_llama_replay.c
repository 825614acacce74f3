/* specrt_llama_replay.c : a target that is recurrent in part and of whose state llama.cpp keeps no snapshots
 * (qwen3next). A copy of that state is taken before a draft is verified. Where drafts were rejected, the next
 * pass begins with the copy, and with the accepted tokens read once more: one pass more in such cycles. */
#include "specrt_llama_impl.h"

#ifdef SPECRT_LLAMA_STATES

#include <stdlib.h>

int specrt_llama_remember(specrt_llama *s) {
    const llama_state_seq_flags flags = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
    size_t n = llama_state_seq_get_size_ext(s->target, 0, flags);
    if (n > s->checkpoint_room) {
        free(s->checkpoint);
        s->checkpoint = (uint8_t *)malloc(n);
        s->checkpoint_room = s->checkpoint ? n : 0;
    }
    s->n_checkpoint = n;
    if (s->checkpoint && llama_state_seq_get_data_ext(s->target, s->checkpoint, n, 0, flags) == n)
        return 0;
    return specrt_llama_fail(s, "target: no copy of its recurrent state, %zu bytes", n);
}

static bool restore(specrt_llama *s, int32_t position) {
    return llama_state_seq_set_data_ext(s->target, s->checkpoint, s->n_checkpoint, 0,
                                        LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) == s->n_checkpoint &&
           llama_memory_seq_rm(llama_get_memory(s->target), 0, position, -1);
}

int specrt_llama_settle(specrt_llama *s) {
    int32_t n = s->n_owed, position = s->n_past - n;
    int64_t began = llama_time_us();
    if (n == 0) return 0;
    if (!restore(s, position))
        return specrt_llama_fail(s, "target: its recurrent state was not restored");
    s->n_owed = 0;
    s->to_target.n_tokens = 0;
    for (int32_t i = 0; i < n; i++)
        specrt_llama_add(&s->to_target, s->tokens[position + i], position + i, 0, false);
    int code = llama_decode(s->target, s->to_target);
    s->times.target_seconds += 1e-6 * (double)(llama_time_us() - began);
    s->times.n_target_passes++;
    if (code != 0) return specrt_llama_fail(s, "target: llama_decode returned %d", code);
    return s->reader ? specrt_llama_taps_saw(s, n) : 0;
}

#endif
