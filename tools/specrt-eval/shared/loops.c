/* loops.c : tokens in repetition loops, which any drafter predicts. */
#include "eval.h"

int64_t loop_tokens(const int32_t *tokens, size_t n) {
    enum { LEAST = 8 };
    size_t run[LOOP_LONGEST + 1] = {0};
    int64_t count = 0;
    for (size_t i = 0; i < n; i++) {
        bool repeats = false;
        for (size_t p = 1; p <= LOOP_LONGEST && p <= i; p++) {
            run[p] = tokens[i] == tokens[i - p] ? run[p] + 1 : 0;
            if (run[p] >= LEAST && run[p] >= 2 * p) repeats = true;
        }
        count += repeats;
    }
    return count;
}
