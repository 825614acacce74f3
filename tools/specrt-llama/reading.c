/* reading.c : prompts that are read once, whoever goes on from them and however often. Kept are both models'
 * caches and what sources learn from a prompt: the target's best tokens there. */
#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"

static void keep_best(const models *m, const float *logits, int32_t n, int32_t *best) {
    for (int32_t i = 0; i < n; i++, best += SPECRT_LOGITS_MAX_K) {
        int32_t found = specrt_logits_topk(logits + (int64_t)i * m->n_vocab, m->n_vocab,
                                           SPECRT_LOGITS_MAX_K, best);
        while (found < SPECRT_LOGITS_MAX_K) best[found++] = -1;
    }
}

static specrt_status read_tokens(const input *p, const models *m, reading *out, specrt_error *err) {
    specrt_host host = specrt_llama_host(m->pair);
    const float *logits = NULL;
    int32_t n = 0;
    specrt_llama_reset(m->pair);
    for (int32_t done = 0; done < p->n; done += n) {
        n = p->n - done < host.max_batch ? p->n - done : host.max_batch;
        if (host.target_prefill(host.user, p->ids + done, n, 1, &logits))
            return models_error(m, SPECRT_STATUS_HOST, err);
        keep_best(m, logits, n, out->best + (size_t)done * SPECRT_LOGITS_MAX_K);
    }
    memcpy(out->logits, logits + (size_t)(n - 1) * (size_t)m->n_vocab,
           (size_t)m->n_vocab * sizeof *logits);
    return specrt_llama_keep(m->pair, &out->state, err);
}

specrt_status reading_take(const input *p, const models *m, reading *out, specrt_error *err) {
    out->of = p;
    out->logits = (float *)malloc((size_t)m->n_vocab * sizeof *out->logits);
    out->best = (int32_t *)malloc((size_t)p->n * SPECRT_LOGITS_MAX_K * sizeof *out->best);
    if (!out->logits || !out->best) return sl_error_no_memory_for(err, "prompts");
    return read_tokens(p, m, out, err);
}

specrt_status reading_resume(const reading *r, const models *m, specrt_error *err) {
    return specrt_llama_resume(m->pair, &r->state, err);
}

specrt_status reading_begin(const reading *r, const models *m, specrt_session *session,
                            specrt_verdict *first, specrt_error *err) {
    const specrt_target_rows rows = {.ids = r->best, .k = SPECRT_LOGITS_MAX_K};
    TRY(reading_resume(r, m, err));
    specrt_status status = specrt_session_begin(session, NULL);
    if (!status) status = specrt_session_prefill(session, r->of->ids, r->of->n, &rows);
    if (!status) status = specrt_session_first(session, r->logits, first);
    return models_called(session, status, err);
}

void reading_free(reading *r) {
    specrt_llama_state_free(&r->state);
    free(r->logits);
    free(r->best);
    memset(r, 0, sizeof *r);
}
