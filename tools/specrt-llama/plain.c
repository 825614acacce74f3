/* plain.c : decoding without a drafter, by the target's own context. Draws are keyed as a session's are,
 * so that an answer does not depend on whether there were drafts. */
#include "specrt_tools.h"
#include "tool.h"

#include <string.h>

enum { N_BATCH = 128 };

static specrt_status open_plain(plain_decoder *p, const options *o, const models *m,
                                specrt_error *err) {
    const specrt_sampling sampling = models_sampling(o);
    struct llama_context_params c = llama_context_default_params();
    int32_t trained = llama_model_n_ctx_train(m->target);
    p->n_context = o->n_context ? (int32_t)o->n_context : trained < 4096 ? trained : 4096;
    c.n_ctx = (uint32_t)p->n_context;
    c.n_batch = c.n_ubatch = N_BATCH;
    c.no_perf = true;
    if (o->n_threads > 0) c.n_threads = c.n_threads_batch = (int32_t)o->n_threads;
    p->context = llama_init_from_model(m->target, c);
    if (!p->context)
        return specrt_error_set(err, SPECRT_STATUS_HOST,
                                "target: llama.cpp made no context of %d positions",
                                (int)p->n_context);
    return specrt_verifier_create(m->n_vocab, &sampling, NULL, &p->verifier, err);
}

/* Tokens [n] behind those that are read. */
static specrt_status read_tokens(const plain_decoder *p, const int32_t *ids, int32_t n,
                                 specrt_error *err) {
    for (int32_t done = 0; done < n; done += N_BATCH) {
        int32_t tokens[N_BATCH], left = n - done < N_BATCH ? n - done : N_BATCH;
        memcpy(tokens, ids + done, (size_t)left * sizeof *tokens);
        int code = llama_decode(p->context, llama_batch_get_one(tokens, left));
        if (code != 0)
            return specrt_error_set(err, SPECRT_STATUS_HOST, "target: llama_decode returned %d",
                                    code);
    }
    return SPECRT_STATUS_OK;
}

static bool goes_on(const models *m, const specrt_generation *g, int32_t token) {
    return g->each(g->user, &token, 1) == 0 && !llama_vocab_is_eog(m->vocab, token) &&
           (g->max_tokens == 0 || g->n_tokens < g->max_tokens);
}

specrt_status plain_generate(plain_decoder *p, const options *o, const models *m,
                             const int32_t *ids, int32_t n, specrt_generation *g,
                             specrt_error *err) {
    if (!p->context) TRY(open_plain(p, o, m, err));
    if (n < 1 || n >= p->n_context)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "prompt: expected 1 to %d tokens, found %d", (int)p->n_context - 1,
                                (int)n);
    llama_memory_clear(llama_get_memory(p->context), false);
    specrt_verifier_set_sequence(p->verifier, p->n_sequences++);
    TRY(read_tokens(p, ids, n, err));
    for (int32_t position = n;; position++) {
        int32_t token =
            specrt_verifier_draw(p->verifier, llama_get_logits_ith(p->context, -1), position);
        g->n_tokens++;
        if (!goes_on(m, g, token) || position == p->n_context) return SPECRT_STATUS_OK;
        TRY(read_tokens(p, &token, 1, err));
    }
}

void plain_close(plain_decoder *p) {
    if (p->context) llama_free(p->context);
    specrt_verifier_close(p->verifier);
    *p = (plain_decoder){0};
}
