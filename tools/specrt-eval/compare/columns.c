/* columns.c : the figures of a way, named once: for the table, the page and JSON. */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "compare.h"

#define AT(field) offsetof(figures, field)
#define MS(field) AT(field), 0, 1e3, 1e3

/* In the order of the tables; at the end what JSON alone has. */
static const compare_column columns[] = {
    {"accept_length", AT(accept_length), AT(accept_length_ci), 1, 1,
     COLUMN_DRAFTS | COLUMN_SPREAD | COLUMN_PAGE_SPREAD, 2, 6, "accept", "length", "accept length",
     NULL},
    {"coverage", AT(coverage), 0, 100, 1, 0, 1, 7, "covered", "%", "covered %", NULL},
    {"shortlist_rows", AT(shortlist_rows), 0, 1, 1, COLUMN_COUNT, 0, 7, "", "rows", "rows", NULL},
    {"bytes_pass", AT(bytes_pass), 0, 1e-6, 1, 0, 3, 7, "MB per", "pass", NULL, NULL},
    {NULL, AT(bytes_extra), 0, 1e-6, 1, COLUMN_DRAFTS, 2, 0, NULL, NULL, "packed MB", NULL},
    {"draft_ms", MS(draft), COLUMN_DRAFTS, 2, 7, "draft", "ms", NULL, "draft"},
    {"head_ms", MS(head), COLUMN_DRAFTS, 2, 7, "head", "ms", NULL, "head"},
    {"target_ms", MS(target), 0, 2, 7, "target", "ms", NULL, "target"},
    {"verify_ms", MS(verify), 0, 2, 7, "verify", "ms", NULL, "verify"},
    {"update_ms", MS(update), COLUMN_DRAFTS, 2, 7, "update", "ms", NULL, "update"},
    {NULL, MS(cycle), 0, 2, 0, NULL, NULL, NULL, "cycle"},
    {"prefill_ms", MS(prefill), 0, 1, 8, "prefill", "ms", NULL, "prompt"},
    {"tokens_per_second", AT(tokens_per_second), AT(tokens_per_second_ci), 1, 1, COLUMN_COUNT, 1, 7,
     "", "tok/s", "tokens/s", NULL},
    {"speedup_plain", AT(speedup_plain), AT(speedup_plain_ci), 1, 1, 0, 2, 7, "x", "plain",
     "x plain", NULL},
    {"speedup_full", AT(speedup_full), AT(speedup_full_ci), 1, 1, COLUMN_DRAFTS, 2, 6, "x", "full",
     "x full", NULL},
    {"speedup_request", AT(speedup_request), AT(speedup_request_ci), 1, 1, COLUMN_PAGE_SPREAD, 2, 7,
     "x", "whole", "x whole", NULL},
    {"accept_full", AT(accept_full), AT(accept_full_ci), 100, 1, COLUMN_DRAFTS, 1, 7, "% of",
     "full", "% of full", NULL},
    {NULL, AT(accept_worst), 0, 100, 1, COLUMN_DRAFTS, 1, 7, "worst", "task", "worst task", NULL},
    {.key = "speedup_short", AT(speedup_short), AT(speedup_short_ci), 1, 1, COLUMN_SHORT},
    {.key = "tokens_per_second_prompt", AT(tokens_per_second_prompt), 0, 1, 1},
    {.key = "rows_copied", AT(rows_copied), 0, 1, 1},
    {.key = "align_ms", MS(align)},
    {.key = "events_per_cycle", AT(events), 0, 1, 1},
    {.key = "update_event_ms", MS(update_event)},
    {.key = "update_other_ms", MS(update_other)},
    {.key = "loop_share", AT(loop_share), 0, 1, 1},
};

const compare_column *compare_columns(int *n) {
    *n = (int)(sizeof columns / sizeof *columns);
    return columns;
}

double compare_column_value(const compare_column *column, const figures *f) {
    double value;
    memcpy(&value, (const char *)f + column->at, sizeof value);
    return value;
}

double compare_column_shown(const compare_column *column, int way, const figures *f) {
    bool is_missing = way == PLAIN && (column->flags & COLUMN_DRAFTS);
    return is_missing ? NAN : column->scale * compare_column_value(column, f);
}

interval compare_column_interval(const compare_column *column, const figures *f) {
    interval ends;
    memcpy(&ends, (const char *)f + column->interval, sizeof ends);
    return ends;
}
