/* rescore.c : the drafter's best tokens by a copy of its head in another type: recorded states times its
 * rows, in the place of what was recorded. Everything else of a cycle is as it was. */
#include <string.h>
#include "base/error.h"
#include "impl.h"

enum { MOST_BEST = 256 }; /* of specrt_shortlist_topk() */

specrt_status replay_head_of(replay *r, int type, const char *text, replay_head **out,
                             specrt_error *err) {
    const specrt_trace_info *info = r->infos[0];
    replay_head *h = r->heads;
    *out = NULL;
    if (type == EVAL_HEAD_STORED) return SPECRT_STATUS_OK;
    if (!r->params.model || info->d_draft == 0 || info->n_draft_top == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "policy '%.60s': head: expected --model FILE and traces with "
                                "states and best tokens of the drafter",
                                text);
    if (info->n_draft_top > MOST_BEST)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "policy '%.60s': head: expected traces with at most %d best tokens "
                                "of the drafter, found %d",
                                text, MOST_BEST, (int)info->n_draft_top);
    while (h->policy && h->copy.type != type) h++;
    *out = h;
    if (h->policy) return SPECRT_STATUS_OK;
    const specrt_policy_desc full = {.text = "full",
                                     .n_vocab = info->n_ids,
                                     .n_terminators = info->n_terminators,
                                     .terminators = info->terminators};
    TRY(eval_head_bind(NULL, &r->head_desc, type, NULL, &h->copy, err));
    return specrt_policy_create(NULL, h->copy.head, &full, &h->policy, err);
}

void replay_close_heads(replay *r) {
    for (int i = 0; i < EVAL_HEADS; i++) {
        specrt_policy_close(r->heads[i].policy);
        eval_head_close(&r->heads[i].copy);
    }
}

/* One state. */
static void rescore_row(const specrt_shortlist *all, const uint16_t *state, int32_t k,
                        float *scratch, int32_t *ids, float *logprobs) {
    float *logits = scratch + all->n_cols;
    specrt_row_decode(SPECRT_DTYPE_F16, state, all->n_cols, scratch);
    specrt_shortlist_logits(all, scratch, 1, logits);
    specrt_shortlist_topk(all, logits, 1, k, ids, logprobs);
}

/* A recorded cycle, copied, with this head's best tokens. */
static void rescore_cycle(replay *r, replay_head *h, const specrt_trace_info *info, replay_cycle *c,
                          float *scratch, replay_batch *b) {
    const specrt_shortlist *all = specrt_policy_get_info(h->policy)->shortlist;
    int32_t k = info->n_draft_top, n = c->r.n;
    int32_t *ids = replay_take(b, (size_t)n * (size_t)k * sizeof *ids);
    float *logits = replay_take(b, (size_t)n * (size_t)k * sizeof *logits);
    float *sums = replay_take(b, (size_t)n * sizeof *sums);
    float *room = replay_take(b, (size_t)(n * r->n_trees) * sizeof *room);
    replay_row *rows = replay_take(b, (size_t)n * sizeof *rows);
    if (b->failed) return;
    memcpy(ids, c->r.draft_ids, (size_t)n * (size_t)k * sizeof *ids);
    memset(logits, 0, (size_t)n * (size_t)k * sizeof *logits);
    memset(sums, 0, (size_t)n * sizeof *sums); /* logits are log-probabilities */
    for (int32_t i = 0; i < n; i++) {
        rows[i].room = room + (int64_t)i * r->n_trees;
        if (c->rows[i].known)
            rescore_row(all, c->r.draft_hidden + (int64_t)i * info->d_draft, k, scratch,
                        ids + (int64_t)i * k, logits + (int64_t)i * k);
    }
    c->r.draft_ids = ids;
    c->r.draft_logits = logits;
    c->r.draft_logsumexp = sums;
    c->rows = rows;
    c->rescored = true;
    estimate_rows(r->trees, r->n_trees, info, c, h->levels);
}

bool replay_rescore(replay *r, replay_batch *b, replay_sequence *s) {
    const specrt_trace_info *info = s->info;
    size_t n = (size_t)s->n_cycles;
    float *scratch = NULL;
    for (int i = 0; i < EVAL_HEADS && r->heads[i].policy; i++) {
        if (!scratch)
            scratch = replay_take(b, (size_t)(info->d_draft + info->n_vocab) * sizeof *scratch);
        s->rescored[i] = replay_take(b, n * sizeof *s->cycles);
        if (b->failed) return false;
        if (n) memcpy(s->rescored[i], s->cycles, n * sizeof *s->cycles);
        for (size_t c = 0; c < n && !b->failed; c++)
            rescore_cycle(r, &r->heads[i], info, &s->rescored[i][c], scratch, b);
    }
    return !b->failed;
}
