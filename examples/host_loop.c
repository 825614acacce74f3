/* host_loop.c : specrt_generate() over a table of four functions. The models here are the CPU engine's: a
 * target and a small model of the same tokenizer that drafts for it; yours take their places.
 *
 *     host_loop TARGET.gguf DRAFT.gguf POLICY TEXT
 *
 * TEXT is continued as it stands, without a chat template: "1, 2, 3," rather than a question.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/infer/engine.h"
#include "tokenizer/tokenizer.h"

typedef struct models {
    engine_cache *target, *draft;
    int32_t d_draft, n_vocab;
    float *logits;                                     /* [ENGINE_MAX_BATCH, n_vocab] */
    float *hidden;                                     /* [ENGINE_MAX_BATCH, d_draft] */
    int32_t emitted[SPECRT_TREE_MAX_NODES], n_emitted; /* that the drafter has not read yet */
    int32_t before, n_open; /* nodes of the drafter's cache: the last level's first, all */
} models;

static void keep_all(engine_cache *c, int32_t n) {
    int32_t nodes[ENGINE_MAX_BATCH];
    for (int32_t i = 0; i < n; i++) nodes[i] = i;
    engine_keep(c, nodes, n);
}

/* Both models read the prompt. */
static int target_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                          const float **logits) {
    models *m = (models *)user;
    if (engine_forward(m->target, tokens, n, NULL, NULL, m->logits)) return 1;
    if (engine_forward(m->draft, tokens, n, NULL, NULL, NULL)) return 1;
    keep_all(m->target, n);
    keep_all(m->draft, n);
    *logits = m->logits + (all ? 0 : (size_t)(n - 1) * (size_t)m->n_vocab);
    m->n_emitted = 0;
    return 0;
}

/* The first level follows the drafter's past, later ones the nodes of the level before. */
static int draft_step(void *user, int32_t level, const specrt_beam *beam, const float **hidden,
                      const float **draft_input) {
    models *m = (models *)user;
    int32_t parents[ENGINE_MAX_BATCH];
    (void)draft_input;
    if (level == 0) {
        int32_t n = m->n_emitted;
        engine_cache_truncate(m->draft, engine_cache_length(m->draft)); /* the old tree */
        if (n > 0 && engine_forward(m->draft, m->emitted, n, NULL, NULL, NULL)) return 1;
        keep_all(m->draft, n);
        m->n_open = 0;
    }
    for (int32_t i = 0; i < beam->n; i++) parents[i] = level ? m->before + beam->parents[i] : -1;
    m->before = m->n_open;
    m->n_open += beam->n;
    *hidden = m->hidden;
    return engine_forward(m->draft, beam->tokens, beam->n, parents, m->hidden, NULL) != 0;
}

static int target_verify(void *user, const specrt_draft *draft, const float **logits) {
    models *m = (models *)user;
    *logits = m->logits;
    return engine_forward(m->target, draft->tokens, draft->n, draft->parents, NULL, m->logits) != 0;
}

/* The accepted path stays in the target's cache; the drafter reads it again next time. */
static int commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    models *m = (models *)user;
    engine_keep(m->target, verdict->nodes, verdict->n);
    for (int32_t i = 0; i < verdict->n; i++) m->emitted[i] = draft->tokens[verdict->nodes[i]];
    m->n_emitted = verdict->n;
    return 0;
}

static int print_tokens(void *user, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        size_t n_bytes;
        const uint8_t *bytes = sl_tokenizer_bytes((const tokenizer *)user, tokens[i], &n_bytes);
        if (bytes) fwrite(bytes, 1, n_bytes, stdout);
    }
    return fflush(stdout);
}

static int fail(const char *message) {
    fprintf(stderr, "host_loop: %s\n", message);
    return 1;
}

int main(int argc, char **argv) {
    engine_model *target, *drafter;
    tokenizer *tok;
    tok_worker *worker;
    id_list prompt = {0};
    specrt_error err;
    if (argc != 5) return fail("usage: host_loop TARGET.gguf DRAFT.gguf POLICY TEXT");
    if (engine_open(argv[1], 1, &target, &err) || engine_open(argv[2], 1, &drafter, &err) ||
        sl_tokenizer_open(argv[1], &tok, &err) || sl_tok_worker_create(tok, &worker, &err))
        return fail(err.msg);
    if (sl_tok_encode(worker, argv[4], strlen(argv[4]), &prompt)) return fail("out of memory");

    /* What may be drafted: rows of the drafter's head; terminators end the answer. */
    specrt_head_desc desc;
    specrt_head *head;
    specrt_policy *policy;
    specrt_session *session;
    specrt_policy_desc wanted = {.text = argv[3], .n_vocab = sl_tokenizer_n_vocab(tok)};
    specrt_session_params params = {.n_logits = engine_get_config(target)->n_vocab,
                                    .tree = {.num_steps = 4, .topk = 1, .num_draft_tokens = 5}};
    wanted.terminators = sl_tokenizer_terminators(tok, &wanted.n_terminators);
    engine_head(drafter, &desc);
    if (specrt_head_bind(NULL, &desc, NULL, &head, &err) ||
        specrt_policy_create(NULL, head, &wanted, &policy, &err) ||
        specrt_session_create(policy, &params, NULL, &session, &err))
        return fail(err.msg);

    models m = {.d_draft = engine_get_config(drafter)->d_model, .n_vocab = params.n_logits};
    m.logits = malloc(ENGINE_MAX_BATCH * (size_t)m.n_vocab * sizeof(float));
    m.hidden = malloc(ENGINE_MAX_BATCH * (size_t)m.d_draft * sizeof(float));
    if (!m.logits || !m.hidden || engine_cache_create(target, 0, &m.target, &err) ||
        engine_cache_create(drafter, 0, &m.draft, &err))
        return fail("out of memory");
    specrt_host host = {.user = &m,
                        .n_context = engine_get_config(target)->n_context,
                        .max_batch = ENGINE_MAX_BATCH,
                        .target_prefill = target_prefill,
                        .draft_step = draft_step,
                        .target_verify = target_verify,
                        .commit = commit};
    specrt_request request = {.max_tokens = 64};
    specrt_generation answer = {.each = print_tokens, .user = tok};
    if (specrt_generate(session, &host, &request, prompt.ids, (int64_t)prompt.n, &answer))
        return fail(specrt_session_last_error(session)->msg);

    specrt_session_stats stats;
    specrt_session_get_stats(session, &stats);
    printf("\n%lld tokens in %lld cycles under %s\n", (long long)answer.n_tokens,
           (long long)stats.n_cycles, specrt_policy_get_info(policy)->text);
    engine_cache_close(m.target);
    engine_cache_close(m.draft);
    specrt_session_close(session);
    specrt_policy_close(policy);
    specrt_head_close(head);
    free(m.logits);
    free(m.hidden);
    free(prompt.ids);
    sl_tok_worker_free(worker);
    sl_tokenizer_close(tok);
    engine_close(drafter);
    engine_close(target);
    return 0;
}
