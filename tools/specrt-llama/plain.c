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
    return specrt_verifier_create(m->n_vocab, m->n_vocab, &sampling, NULL, &p->verifier, err);
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

/* Gives a token to the application. @return why the answer ends with it */
static specrt_end give(const models *m, const specrt_request *request, specrt_generation *g,
                       int32_t token) {
    bool stops = g->each(g->user, &token, 1) != 0;
    g->n_tokens++;
    if (models_ends(m, token)) return SPECRT_END_TERMINATOR;
    if (g->n_tokens == request->max_tokens) return SPECRT_END_LENGTH;
    return stops ? SPECRT_END_STOPPED : SPECRT_END_NONE;
}

specrt_status plain_generate(plain_decoder *p, const options *o, const models *m,
                             const specrt_request *request, const int32_t *ids, int32_t n,
                             specrt_generation *g, specrt_error *err) {
    if (!p->context) TRY(open_plain(p, o, m, err));
    if (n < 1 || n >= p->n_context)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "prompt: expected 1 to %d tokens, found %d", (int)p->n_context - 1,
                                (int)n);
    llama_memory_clear(llama_get_memory(p->context), false);
    specrt_verifier_set_generation(p->verifier, p->n_answers++);
    TRY(read_tokens(p, ids, n, err));
    for (int32_t position = n; g->end == SPECRT_END_NONE; position++) {
        int32_t token =
            specrt_verifier_draw(p->verifier, llama_get_logits_ith(p->context, -1), position);
        if (token < 0)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "target: expected logits that are numbers, found others");
        g->end = give(m, request, g, token);
        if (g->end == SPECRT_END_NONE && position == p->n_context) g->end = SPECRT_END_CONTEXT;
        if (g->end == SPECRT_END_NONE) TRY(read_tokens(p, &token, 1, err));
    }
    return SPECRT_STATUS_OK;
}

void plain_close(plain_decoder *p) {
    if (p->context) llama_free(p->context);
    specrt_verifier_close(p->verifier);
    *p = (plain_decoder){0};
}
