/* trace.c : owns trace files: records in blocks, their hidden states in blocks beside them. Refuses sizes
 * that do not fit each other, tokens outside the vocabulary, damaged blocks. Every record is a list of
 * arrays in one order, described once. */
#include "trace/trace.h"
#include "core/base.h"

/* The arrays of a record in file order; those of no bytes do not apply. */
SPECRT__INTERNAL void specrt__trace_layout(const specrt_trace_info *info, specrt_trace_record *r,
                                           specrt__trace_field f[SPECRT__TRACE_FIELDS]) {
    uint64_t n = (uint64_t)r->n, nodes = (uint64_t)r->n_nodes,
             cycle = r->kind == SPECRT_TRACE_CYCLE;
    uint64_t top = n * (uint64_t)info->n_top, draft_top = n * (uint64_t)info->n_draft_top;
    const specrt__trace_field fields[SPECRT__TRACE_FIELDS] = {
        {(void *)&r->tokens, 4 * n},
        {(void *)&r->nodes, 4 * n * cycle},
        {(void *)&r->tree_tokens, 4 * nodes},
        {(void *)&r->tree_parents, 4 * nodes},
        {(void *)&r->tree_logprobs, 4 * nodes},
        {(void *)&r->target_hidden, 2 * n * (uint64_t)info->d_target},
        {(void *)&r->top_ids, 4 * top},
        {(void *)&r->top_logits, 4 * top},
        {(void *)&r->top_logsumexp, 4 * n},
        {(void *)&r->draft_hidden, 2 * n * (uint64_t)info->d_draft},
        {(void *)&r->draft_ids, 4 * draft_top},
        {(void *)&r->draft_logits, 4 * draft_top},
        {(void *)&r->draft_logsumexp, 4 * n},
        {(void *)&r->tree_top_ids, 4 * nodes * (uint64_t)info->n_tree_top},
        {(void *)&r->prompt_hidden, 2 * (uint64_t)info->d_target * (1 - cycle)},
    };
    memcpy(f, fields, sizeof fields);
}

/* What must be true of a record before its arrays are looked at. */
SPECRT__INTERNAL bool specrt__trace_counts_ok(const specrt_trace_record *r) {
    bool cycle = r->kind == SPECRT_TRACE_CYCLE;
    if (r->kind != SPECRT_TRACE_SEQUENCE && !cycle) return false;
    if (r->n < 1 || r->n > SPECRT_MAX_VOCAB) return false;
    return cycle ? r->n_nodes >= 1 && r->n_nodes <= SPECRT_TREE_MAX_NODES && r->n <= r->n_nodes
                 : r->n_nodes == 0;
}

static bool specrt__trace_ids_ok(const int32_t *ids, int64_t n, int32_t least, int32_t n_vocab) {
    for (int64_t i = 0; ids && i < n; i++)
        if (ids[i] < least || ids[i] >= n_vocab) return false;
    return true;
}

/* @return what is wrong; NULL: nothing. */
SPECRT__INTERNAL const char *specrt__trace_wrong(const specrt_trace_info *info,
                                                 const specrt_trace_record *r) {
    int64_t n = r->n;
    if (!r->tokens || !specrt__trace_ids_ok(r->tokens, n, 0, info->n_vocab)) return "tokens";
    if (!specrt__trace_ids_ok(r->tree_tokens, r->n_nodes, 0, info->n_vocab)) return "tree_tokens";
    if (!specrt__trace_ids_ok(r->top_ids, n * info->n_top, -1, info->n_vocab)) return "top_ids";
    if (!specrt__trace_ids_ok(r->draft_ids, n * info->n_draft_top, -1, info->n_vocab))
        return "draft_ids";
    if (!specrt__trace_ids_ok(r->tree_top_ids, (int64_t)r->n_nodes * info->n_tree_top, -1,
                              info->n_vocab))
        return "tree_top_ids";
    if (r->kind != SPECRT_TRACE_CYCLE) return NULL;
    if (!r->tree_tokens || !r->tree_parents) return "tree";
    if (!r->nodes || !specrt__trace_ids_ok(r->nodes, n, 0, r->n_nodes)) return "nodes";
    for (int32_t i = 0; i < r->n_nodes; i++)
        if (r->tree_parents[i] >= i || r->tree_parents[i] < (i ? 0 : -1)) return "tree_parents";
    return NULL;
}

SPECRT__INTERNAL bool specrt__trace_info_ok(const specrt_trace_info *info) {
    const struct {
        int32_t value, least, most;
    } counts[] = {{info->n_vocab, 1, SPECRT_MAX_VOCAB},
                  {info->d_target, 0, SPECRT__TRACE_MAX_WIDTH},
                  {info->d_draft, 0, SPECRT__TRACE_MAX_WIDTH},
                  {info->n_top, 0, SPECRT__TRACE_MAX_TOP},
                  {info->n_draft_top, 0, SPECRT__TRACE_MAX_TOP},
                  {info->n_tree_top, 0, SPECRT__TRACE_MAX_TOP},
                  {info->n_ids, 0, info->n_vocab},
                  {info->n_terminators, 0, SPECRT_MAX_TERMINATORS}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].value < counts[i].least || counts[i].value > counts[i].most) return false;
    return specrt__trace_ids_ok(info->terminators, info->n_terminators, 0, info->n_vocab);
}

/* Room for n bytes, of which those that there are stay. */
SPECRT__INTERNAL bool specrt__trace_reserve(const specrt_env *env, specrt__trace_buffer *b,
                                            size_t n) {
    if (n <= b->capacity) return true;
    uint8_t *grown = (uint8_t *)specrt__base_alloc(env, n + n / 2);
    if (!grown) return false;
    if (b->n) memcpy(grown, b->p, b->n);
    specrt__base_free(env, b->p);
    b->p = grown;
    b->capacity = n + n / 2;
    return true;
}
