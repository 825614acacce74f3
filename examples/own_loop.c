/* own_loop.c : an engine that keeps its own decode loop and takes the pieces it lacks: which rows of the
 * head to score, the tree over them, lossless verification, and learning from the outcome. The models
 * are the CPU engine's, a target with an EAGLE-2 head.
 *
 *     own_loop TARGET.gguf DRAFT.safetensors POLICY TEXT [BUNDLE.specb]
 *
 * TEXT is continued as it stands, without a chat template: "1, 2, 3," rather than a question.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/infer/engine.h"
#include "tokenizer/tokenizer.h"

enum { N_TOKENS = 48, STEPS = 3, TOPK = 4, NODES = 12 };

typedef struct loop {
    tokenizer *tok;
    engine_model *target;
    engine_drafter *drafter;
    engine_cache *cache, *draft_cache;
    specrt_bundle *bundle; /* NULL: the policy needs none */
    specrt_head *head;
    specrt_policy *policy;
    specrt_session *session; /* shortlist and learning */
    specrt_tree *tree;
    specrt_verifier *verifier;
    size_t d, n_vocab;
    float *logits, *features; /* [ENGINE_MAX_BATCH, n_vocab], [ENGINE_MAX_BATCH, d] of the target */
    float *pairs;             /* [ENGINE_MAX_BATCH, d] features that go with the emitted tokens */
    float *hidden, *draft_input; /* [ENGINE_MAX_BATCH, d] what a drafter pass gives, and was fed */
    float *head_input;           /* what the head multiplies: with EAGLE-2 `hidden` again */
    float *scores;               /* [TOPK, rows of the shortlist] */
    int32_t emitted[SPECRT_TREE_MAX_NODES], n_emitted;
} loop;

__attribute__((noreturn)) static void fail(const char *message) {
    fprintf(stderr, "own_loop: %s\n", message);
    exit(1);
}

static void check(specrt_status status) {
    if (status) fail(specrt_status_name(status));
}

static void check_session(const loop *l, specrt_status status) {
    if (status) fail(specrt_session_last_error(l->session)->msg);
}

static void keep_all(engine_cache *c, int32_t n) {
    int32_t nodes[ENGINE_MAX_BATCH];
    for (int32_t i = 0; i < n; i++) nodes[i] = i;
    engine_keep(c, nodes, n);
}

/* The drafter reads (token, feature of the position before) pairs; the last one's output drafts. */
static void feed_drafter(loop *l, const int32_t *tokens, const float *features, int32_t n) {
    engine_cache_truncate(l->draft_cache, engine_cache_length(l->draft_cache)); /* the old tree */
    check(engine_draft(l->drafter, l->draft_cache, tokens, features, (int32_t)l->d, n, NULL,
                       l->hidden, l->head_input));
    keep_all(l->draft_cache, n);
    memmove(l->hidden, l->hidden + (size_t)(n - 1) * l->d, l->d * sizeof(float));
}

/* One level deeper: each row of the beam follows the row of the last pass that is its parent. */
static void draft_level(loop *l, const specrt_beam *beam, int32_t *before, int32_t *n_open) {
    int32_t parents[TOPK];
    for (int32_t i = 0; i < beam->n; i++) {
        memcpy(l->draft_input + (size_t)i * l->d, l->hidden + (size_t)beam->parents[i] * l->d,
               l->d * sizeof(float));
        parents[i] = *before < 0 ? -1 : *before + beam->parents[i];
    }
    check(engine_draft(l->drafter, l->draft_cache, beam->tokens, l->draft_input, (int32_t)l->d,
                       beam->n, parents, l->hidden, l->head_input));
    *before = *n_open;
    *n_open += beam->n;
}

/* Level by level: score the shortlist, take the best, run the drafter on the beam. */
static void draft(loop *l, specrt_draft *out) {
    int32_t ids[TOPK * TOPK], before = -1, n_open = 0, last = l->n_emitted - 1;
    float logprobs[TOPK * TOPK], no_path = 0;
    specrt_beam beam = {.n = 1, .tokens = &l->emitted[last], .logprobs = &no_path};
    specrt_tree_begin(l->tree, l->emitted[last]);
    const float *draft_input = l->pairs + (size_t)last * l->d;
    feed_drafter(l, l->emitted, l->pairs, l->n_emitted);
    for (int32_t level = 0;; level++, draft_input = l->draft_input) {
        const specrt_shortlist *shortlist =
            specrt_session_route(l->session, level, &beam, l->hidden, draft_input);
        if (!shortlist) fail(specrt_session_last_error(l->session)->msg);
        int32_t k = shortlist->n_rows < TOPK ? shortlist->n_rows : TOPK;
        if (k == 0) break;
        check(specrt_shortlist_logits(shortlist, l->hidden, beam.n, l->scores));
        check(specrt_shortlist_topk(shortlist, l->scores, beam.n, k, ids, logprobs));
        check(specrt_tree_expand(l->tree, ids, logprobs, beam.n, k, &beam));
        if (beam.n == 0) break;
        draft_level(l, &beam, &before, &n_open);
    }
    specrt_tree_finish(l->tree, out);
    check_session(l, specrt_session_finish(l->session, NULL)); /* the tree is ours */
}

/* What the target said at the rows of its last batch. */
static specrt_target_rows said(const loop *l) {
    return (specrt_target_rows){
        .logits = l->logits, .hidden = l->features, .d_hidden = (int32_t)l->d};
}

/* One cycle; the verdict's tokens become the next ones to feed. */
static void cycle(loop *l, int64_t position) {
    specrt_draft tree;
    specrt_verdict verdict;
    draft(l, &tree);
    check(engine_forward(l->cache, tree.tokens, tree.n, tree.parents, l->features, l->logits));
    check(specrt_verify_tree(l->verifier, &tree, l->logits, position, &verdict));
    engine_keep(l->cache, verdict.nodes, verdict.n);
    for (int32_t i = 0; i < verdict.n; i++)
        memcpy(l->pairs + (size_t)i * l->d, l->features + (size_t)verdict.nodes[i] * l->d,
               l->d * sizeof(float));
    const specrt_target_rows rows = said(l);
    check_session(l, specrt_session_observe(l->session, &tree, &verdict, &rows));
    memcpy(l->emitted, verdict.tokens, (size_t)verdict.n * sizeof *l->emitted);
    l->n_emitted = verdict.n;
}

/* The target reads the prompt batch by batch, the drafter its pairs: all but the last token's feature,
 * which goes with the first token drawn. */
static void prefill(loop *l, const int32_t *tokens, int32_t n) {
    int32_t k = 0;
    check_session(l, specrt_session_begin(l->session, NULL));
    for (int32_t done = 0; done < n; done += k) {
        k = n - done < ENGINE_MAX_BATCH ? n - done : ENGINE_MAX_BATCH;
        int32_t n_pairs = done + k < n ? k : k - 1;
        check(engine_forward(l->cache, tokens + done, k, NULL, l->features, l->logits));
        keep_all(l->cache, k);
        const specrt_target_rows rows = said(l);
        check_session(l, specrt_session_prefill(l->session, tokens + done, k, &rows));
        if (n_pairs > 0) feed_drafter(l, tokens + done + 1, l->features, n_pairs);
    }
    memcpy(l->pairs, l->features + (size_t)(k - 1) * l->d, l->d * sizeof(float));
    l->emitted[0] = specrt_verifier_draw(l->verifier, l->logits + (size_t)(k - 1) * l->n_vocab, n);
    l->n_emitted = 1;
    if (l->emitted[0] < 0) fail("the target's logits are no numbers");
    check_session(l, specrt_session_start(l->session, l->emitted[0]));
}

/* @return how many tokens of those emitted belong to the answer: up to a terminator. */
static int32_t print_emitted(const loop *l, bool *ended) {
    int32_t n = 0;
    while (n < l->n_emitted && !*ended) {
        size_t n_bytes;
        const uint8_t *bytes = sl_tokenizer_bytes(l->tok, l->emitted[n], &n_bytes);
        *ended = specrt_policy_ends(l->policy, l->emitted[n++]) != 0;
        if (bytes && !*ended) fwrite(bytes, 1, n_bytes, stdout);
    }
    return n;
}

/* ---- what is opened once ------------------------------------------------------------------------ */

static float *rows_of(size_t n) {
    float *p = malloc(ENGINE_MAX_BATCH * n * sizeof(float));
    if (!p) fail("out of memory");
    return p;
}

static void open_models(loop *l, const char *target, const char *drafter, const char *bundle) {
    uint8_t sha256[32];
    int32_t layers[ENGINE_MAX_TAPS];
    specrt_error err;
    if (sl_tokenizer_open(target, &l->tok, &err) || engine_open(target, 1, &l->target, &err) ||
        engine_drafter_open(drafter, l->target, &l->drafter, &err) ||
        engine_cache_create(l->target, 0, &l->cache, &err) ||
        engine_drafter_cache(l->drafter, 0, &l->draft_cache, &err))
        fail(err.msg);
    if (engine_drafter_is_model(l->drafter) || engine_drafter_features(l->drafter, layers) > 0)
        fail("DRAFT: expected an EAGLE-2 head, found another kind of drafter");
    sl_tokenizer_fingerprint(l->tok, sha256);
    if (bundle && (specrt_bundle_open(bundle, NULL, &l->bundle, &err) ||
                   specrt_bundle_check_tokenizer(l->bundle, sha256, &err)))
        fail(err.msg);
}

static void open_loop(loop *l, const char *policy) {
    specrt_error err;
    specrt_head_desc head, embedding;
    specrt_tree_params shape = {STEPS, TOPK, NODES};
    specrt_sampling greedy = {.temperature = 0};
    specrt_policy_desc desc = {
        .text = policy, .n_vocab = sl_tokenizer_n_vocab(l->tok), .embedding = &embedding};
    l->d = (size_t)engine_get_config(l->target)->d_model;
    l->n_vocab = (size_t)engine_get_config(l->target)->n_vocab;
    specrt_session_params params = {.tree = shape, .n_logits = (int32_t)l->n_vocab};
    engine_drafter_head(l->drafter, &head);
    engine_embedding(l->target, &embedding);
    desc.terminators = sl_tokenizer_terminators(l->tok, &desc.n_terminators);
    if (specrt_head_bind(l->bundle, &head, NULL, &l->head, &err) ||
        specrt_policy_create(l->bundle, l->head, &desc, &l->policy, &err) ||
        specrt_session_create(l->policy, &params, NULL, &l->session, &err) ||
        specrt_tree_create(&shape, NULL, &l->tree, &err) ||
        specrt_verifier_create((int32_t)l->n_vocab, desc.n_vocab, &greedy, NULL, &l->verifier,
                               &err))
        fail(err.msg);
    l->logits = rows_of(l->n_vocab);
    l->features = rows_of(l->d);
    l->pairs = rows_of(l->d);
    l->hidden = rows_of(l->d);
    l->head_input = rows_of(l->d);
    l->draft_input = rows_of(l->d);
    l->scores = rows_of((size_t)specrt_policy_get_info(l->policy)->bound);
}

static void close_loop(loop *l) {
    free(l->logits), free(l->features), free(l->pairs), free(l->hidden);
    free(l->head_input), free(l->draft_input), free(l->scores);
    specrt_verifier_close(l->verifier);
    specrt_tree_close(l->tree);
    specrt_session_close(l->session);
    specrt_policy_close(l->policy);
    specrt_head_close(l->head);
    specrt_bundle_close(l->bundle);
    engine_cache_close(l->draft_cache);
    engine_cache_close(l->cache);
    engine_drafter_close(l->drafter);
    engine_close(l->target);
    sl_tokenizer_close(l->tok);
}

static void encode(const tokenizer *tok, const char *text, id_list *out) {
    tok_worker *worker;
    specrt_error err;
    if (sl_tok_worker_create(tok, &worker, &err)) fail(err.msg);
    check(sl_tok_encode(worker, text, strlen(text), out));
    sl_tok_worker_free(worker);
}

int main(int argc, char **argv) {
    loop l = {0};
    id_list prompt = {0};
    bool ended = false;
    if (argc != 5 && argc != 6)
        fail("usage: own_loop TARGET.gguf DRAFT.safetensors POLICY TEXT [BUNDLE.specb]");
    open_models(&l, argv[1], argv[2], argc == 6 ? argv[5] : NULL);
    open_loop(&l, argv[3]);
    encode(l.tok, argv[4], &prompt);
    int64_t room = engine_get_config(l.target)->n_context - N_TOKENS - 2 * STEPS;
    if (prompt.n < 1 || (int64_t)prompt.n > room) fail("TEXT: it is empty, or fills the context");

    prefill(&l, prompt.ids, (int32_t)prompt.n);
    int64_t n = print_emitted(&l, &ended), n_cycles = 0;
    for (; n < N_TOKENS && !ended; n_cycles++) {
        cycle(&l, (int64_t)prompt.n + n);
        n += print_emitted(&l, &ended);
    }
    printf("\n%lld tokens in %lld cycles under %s\n", (long long)n, (long long)n_cycles,
           specrt_policy_get_info(l.policy)->text);
    close_loop(&l);
    free(prompt.ids);
    return 0;
}
