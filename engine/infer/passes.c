/* passes.c : see passes.h. */
#include "engine/infer/passes.h"

#include <string.h>

void draft_passes_add(draft_passes *p, int32_t level, const specrt_beam *beam) {
    size_t bytes = (size_t)beam->n * sizeof(int32_t);
    p->n = level + 1;
    p->n_rows[level] = beam->n;
    memcpy(p->tokens[level], beam->tokens, bytes);
    memcpy(p->parents[level], beam->parents, bytes);
}

int32_t draft_passes_row(const draft_passes *p, int32_t level, int32_t row, int32_t token) {
    if (level >= p->n) return -1;
    for (int32_t i = 0; i < p->n_rows[level]; i++)
        if (p->parents[level][i] == row && p->tokens[level][i] == token) return i;
    return -1;
}
