/* trace.c : a trace as text, a line a record, for tests that ask what specrt-eval record wrote.
 *     s DOMAIN: PROMPT IDS : the target's best at each
 *     c EMITTED IDS : the target's best at each : the drafter's, -1 where it made no pass
 * With --hashes a line for the header, and after each record the sum of every array's bytes, each times its
 * place from 1 on. With --no-hidden the reader leaves hidden states out. With --tops a cycle shows all of the
 * target's best where its last token was drawn. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "specrt_tools.h"

static void print_ids(const int32_t *ids, int32_t n, int32_t stride) {
    for (int32_t i = 0; ids && i < n; i++) printf(" %d", (int)ids[i * stride]);
}

static void print_header(const specrt_trace_info *info) {
    printf("h %d %d %d %d %d %d : %d %d %d : %g : %d :", (int)info->n_vocab, (int)info->d_target,
           (int)info->d_draft, (int)info->n_top, (int)info->n_draft_top, (int)info->n_tree_top,
           (int)info->tree.num_steps, (int)info->tree.topk, (int)info->tree.num_draft_tokens,
           (double)info->temperature, (int)info->n_ids);
    print_ids(info->terminators, info->n_terminators, 1);
    printf(" : %s\n", info->policy ? info->policy : "");
}

static void print_hash(const char *name, const void *array, int64_t n, size_t bytes) {
    unsigned long long sum = 0;
    for (size_t i = 0; array && i < (size_t)n * bytes; i++)
        sum += (i + 1) * ((const uint8_t *)array)[i];
    if (array) printf(" %s=%llx", name, sum);
}

static void print_hashes(const specrt_trace_info *info, const specrt_trace_record *r) {
    int64_t n = r->n, nodes = r->n_nodes;
    print_hash("tokens", r->tokens, n, 4);
    print_hash("nodes", r->nodes, n, 4);
    print_hash("tree_tokens", r->tree_tokens, nodes, 4);
    print_hash("tree_parents", r->tree_parents, nodes, 4);
    print_hash("tree_logprobs", r->tree_logprobs, nodes, 4);
    print_hash("target_hidden", r->target_hidden, n * info->d_target, 2);
    print_hash("top_ids", r->top_ids, n * info->n_top, 4);
    print_hash("top_logits", r->top_logits, n * info->n_top, 4);
    print_hash("top_logsumexp", r->top_logsumexp, n, 4);
    print_hash("draft_hidden", r->draft_hidden, n * info->d_draft, 2);
    print_hash("draft_ids", r->draft_ids, n * info->n_draft_top, 4);
    print_hash("draft_logits", r->draft_logits, n * info->n_draft_top, 4);
    print_hash("draft_logsumexp", r->draft_logsumexp, n, 4);
    print_hash("tree_top_ids", r->tree_top_ids, nodes * info->n_tree_top, 4);
    print_hash("prompt_hidden", r->prompt_hidden, info->d_target, 2);
    putchar('\n');
}

int main(int argc, char **argv) {
    specrt_trace_reader *r;
    specrt_trace_record record;
    specrt_error err;
    bool tops = argc > 2 && strcmp(argv[1], "--tops") == 0;
    bool hashes = argc > 2 && strcmp(argv[1], "--hashes") == 0;
    bool skips = argc > 2 + hashes && strcmp(argv[1 + hashes], "--no-hidden") == 0;
    if (argc != 2 + tops + hashes + skips)
        return fputs("trace: usage: trace [--tops | --hashes] [--no-hidden] FILE\n", stderr), 1;
    if (specrt_trace_open(argv[argc - 1], NULL, &r, &err) != SPECRT_STATUS_OK)
        return fprintf(stderr, "trace: %s\n", err.msg), 1;
    if (skips) specrt_trace_skip_hidden(r);
    const specrt_trace_info *info = specrt_trace_get_info(r);
    if (hashes) print_header(info);
    for (;;) {
        if (specrt_trace_read(r, &record, &err) != SPECRT_STATUS_OK)
            return fprintf(stderr, "trace: %s\n", err.msg), 1;
        if (record.kind == SPECRT_TRACE_END) break;
        bool cycle = record.kind == SPECRT_TRACE_CYCLE;
        printf(cycle ? "c" : "s %s:", record.domain);
        print_ids(record.tokens, record.n, 1);
        printf(" :");
        if (cycle && tops && record.top_ids)
            print_ids(record.top_ids + (record.n - 1) * info->n_top, info->n_top, 1);
        else
            print_ids(record.top_ids, record.n, info->n_top);
        printf(" :");
        if (cycle) print_ids(record.draft_ids, record.n, info->n_draft_top);
        putchar('\n');
        if (hashes) print_hashes(info, &record);
    }
    printf("%s\n", specrt_trace_is_cut(r) ? "cut" : "whole");
    specrt_trace_close(r);
    return 0;
}
