/* passes.h : the drafter's passes of a cycle, to find again which row of a level an accepted token was
 * drafted from. Shared by what looks on at a cycle: recorder and controller. */
#ifndef INFER_PASSES_H
#define INFER_PASSES_H

#include <stdint.h>
#include "specrt.h"

typedef struct draft_passes {
    int32_t n; /* passes; 0 begins a cycle */
    int32_t n_rows[SPECRT_TREE_MAX_STEPS];
    int32_t tokens[SPECRT_TREE_MAX_STEPS][SPECRT_TREE_MAX_TOPK];  /* that a row read */
    int32_t parents[SPECRT_TREE_MAX_STEPS][SPECRT_TREE_MAX_TOPK]; /* rows of the level before */
} draft_passes;

/* draft_passes_add() : the next level's pass. */
void draft_passes_add(draft_passes *p, int32_t level, const specrt_beam *beam);

/* draft_passes_row() : the row of a level that extends `row` of the level before by a token; -1: none was
 * run. */
int32_t draft_passes_row(const draft_passes *p, int32_t level, int32_t row, int32_t token);

#endif
