/* trace.c : a trace as text, a line a record, for tests that ask what specrt-eval record wrote.
 *     s DOMAIN: PROMPT IDS : the target's best at each
 *     c EMITTED IDS : the target's best at each : the drafter's, -1 where it made no pass */
#include <stdbool.h>
#include <stdio.h>
#include "specrt.h"

static void print_ids(const int32_t *ids, int32_t n, int32_t stride) {
    for (int32_t i = 0; ids && i < n; i++) printf(" %d", (int)ids[i * stride]);
}

int main(int argc, char **argv) {
    specrt_trace_reader *r;
    specrt_trace_record record;
    specrt_error err;
    if (argc != 2 || specrt_trace_open(argv[1], NULL, &r, &err) != SPECRT_STATUS_OK)
        return fprintf(stderr, "trace: %s\n", argc == 2 ? err.msg : "usage: trace FILE"), 1;
    const specrt_trace_info *info = specrt_trace_get_info(r);
    for (;;) {
        if (specrt_trace_read(r, &record, &err) != SPECRT_STATUS_OK)
            return fprintf(stderr, "trace: %s\n", err.msg), 1;
        if (record.kind == SPECRT_TRACE_END) break;
        bool cycle = record.kind == SPECRT_TRACE_CYCLE;
        printf(cycle ? "c" : "s %s:", record.domain);
        print_ids(record.tokens, record.n, 1);
        printf(" :");
        print_ids(record.top_ids, record.n, info->n_top);
        printf(" :");
        if (cycle) print_ids(record.draft_ids, record.n, info->n_draft_top);
        putchar('\n');
    }
    printf("%s\n", specrt_trace_is_cut(r) ? "cut" : "whole");
    specrt_trace_close(r);
    return 0;
}
