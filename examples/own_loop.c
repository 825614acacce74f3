/* own_loop.c : an engine that keeps its own decode loop and takes the pieces it lacks: which rows of the
 * head to score, the tree over them, lossless verification, and learning from the outcome. The models
 * are the CPU engine's, a target with an EAGLE-2 head.
 *
 *     own_loop TARGET.gguf DRAFT.safetensors POLICY TEXT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine.h"
#include "tokenizer.h"

enum { N_TOKENS = 48, STEPS = 3, TOPK = 4, NODES = 12 };

typedef struct loop {
    engine_model *target;
    engine_drafter *drafter;
    engine_cache *cache, *draft_cache;
    specrt_session *session; /* shortlist and learning */
    specrt_tree *tree;
    specrt_verifier *verifier;
    size_t d, n_vocab;
    float *logits, *features; /* [ENGINE_MAX_BATCH, n_vocab], [ENGINE_MAX_BATCH, d] of the target */
    float *pairs, *hidden, *fed; /* [ENGINE_MAX_BATCH, d] */
    float *scores;               /* [TOPK, active rows] */
    int32_t emitted[SPECRT_TREE_MAX_NODES], n_emitted;
} loop;

__attribute__((noreturn)) static void fail(const char *message) {
    fprintf(stderr, "own_loop: %s\n", message);
    exit(1);
}

static void check(specrt_status status) {
    if (status) fail(specrt_status_name(status));
}

static void keep_all(engine_cache *c, int32_t n) {
    int32_t nodes[ENGINE_MAX_BATCH];
    for (int32_t i = 0; i < n; i++) nodes[i] = i;
    engine_keep(c, nodes, n);
}

/* The drafter reads (token, feature of the position before) pairs; the last one's output drafts. */
static void feed_drafter(loop *l) {
    int32_t n = l->n_emitted;
    engine_cache_truncate(l->draft_cache, engine_cache_length(l->draft_cache));
    check(engine_draft(l->drafter, l->draft_cache, l->emitted, l->pairs, (int32_t)l->d, n, NULL,
                       l->hidden, l->fed));
    keep_all(l->draft_cache, n);
    memmove(l->hidden, l->hidden + (size_t)(n - 1) * l->d, l->d * sizeof(float));
}

/* Level by level: score the active vocabulary, take the best, run the drafter on the beam. */
static void draft(loop *l, specrt_draft *out) {
    int32_t ids[TOPK * TOPK], parents[TOPK], before = -1, n_open = 0;
    int32_t root = l->emitted[l->n_emitted - 1];
    float logprobs[TOPK * TOPK], no_path = 0;
    specrt_beam beam = {.n = 1, .tokens = &root, .logprobs = &no_path};
    specrt_tree_begin(l->tree, root);
    feed_drafter(l);
    specrt_session_feed(l->session, l->pairs + (size_t)(l->n_emitted - 1) * l->d);
    for (int32_t level = 0;; level++) {
        const specrt_active *active = specrt_session_route(l->session, level, &beam, l->hidden);
        int32_t k = active->n_rows < TOPK ? active->n_rows : TOPK;
        check(specrt_active_logits(active, l->hidden, beam.n, l->scores));
        check(specrt_active_topk(active, l->scores, beam.n, k, ids, logprobs));
        check(specrt_tree_expand(l->tree, ids, logprobs, beam.n, k, &beam));
        if (beam.n == 0) break;
        for (int32_t i = 0; i < beam.n; i++) {
            memcpy(l->fed + (size_t)i * l->d, l->hidden + (size_t)beam.parents[i] * l->d,
                   l->d * sizeof(float));
            parents[i] = before < 0 ? -1 : before + beam.parents[i];
        }
        float *query = l->scores; /* equal to the features for EAGLE-2 */
        check(engine_draft(l->drafter, l->draft_cache, beam.tokens, l->fed, (int32_t)l->d, beam.n,
                           parents, l->hidden, query));
        specrt_session_feed(l->session, l->fed);
        before = n_open;
        n_open += beam.n;
    }
    specrt_tree_finish(l->tree, out);
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
    specrt_rows said = {.logits = l->logits};
    check(specrt_session_observe(l->session, &tree, &verdict, &said));
    memcpy(l->emitted, verdict.tokens, (size_t)verdict.n * sizeof *l->emitted);
    l->n_emitted = verdict.n;
}

/* The target reads the prompt, the drafter its pairs; the first token is drawn. At most one batch. */
static void prefill(loop *l, const int32_t *tokens, int32_t n) {
    check(engine_forward(l->cache, tokens, n, NULL, l->features, l->logits));
    keep_all(l->cache, n);
    specrt_rows said = {.logits = l->logits};
    check(specrt_session_prefill(l->session, tokens, n, &said));
    if (n > 1) {
        check(engine_draft(l->drafter, l->draft_cache, tokens + 1, l->features, (int32_t)l->d,
                           n - 1, NULL, l->hidden, l->fed));
        keep_all(l->draft_cache, n - 1);
    }
    memcpy(l->pairs, l->features + (size_t)(n - 1) * l->d, l->d * sizeof(float));
    l->emitted[0] = specrt_verifier_draw(l->verifier, l->logits + (size_t)(n - 1) * l->n_vocab, n);
    l->n_emitted = 1;
    check(specrt_session_start(l->session, l->emitted[0]));
}

static void print_tokens(const tokenizer *tok, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        size_t n_bytes;
        const uint8_t *bytes = tokenizer_bytes(tok, tokens[i], &n_bytes);
        if (bytes) fwrite(bytes, 1, n_bytes, stdout);
    }
}

static float *rows(size_t n) {
    float *p = malloc(ENGINE_MAX_BATCH * n * sizeof(float));
    if (!p) fail("out of memory");
    return p;
}

static void open_loop(loop *l, char **argv, const tokenizer *tok, specrt_policy **policy,
                      specrt_head **head) {
    specrt_error err;
    specrt_head_desc desc;
    specrt_tree_params shape = {STEPS, TOPK, NODES};
    specrt_sampling greedy = {.temperature = 0};
    specrt_policy_desc wanted = {.text = argv[3], .n_vocab = tokenizer_n_vocab(tok)};
    if (engine_open(argv[1], 1, &l->target, &err) ||
        engine_drafter_open(argv[2], l->target, &l->drafter, &err))
        fail(err.msg);
    engine_drafter_head(l->drafter, &desc);
    l->d = (size_t)engine_get_config(l->target)->d_model;
    l->n_vocab = (size_t)engine_get_config(l->target)->n_vocab;
    specrt_session_params params = {.tree = shape, .n_logits = (int32_t)l->n_vocab};
    if (specrt_head_bind(NULL, &desc, NULL, head, &err) ||
        specrt_policy_create(NULL, *head, &wanted, policy, &err) ||
        specrt_session_create(*policy, &params, NULL, &l->session, &err) ||
        specrt_tree_create(&shape, NULL, &l->tree, &err) ||
        specrt_verifier_create((int32_t)l->n_vocab, &greedy, NULL, &l->verifier, &err) ||
        engine_cache_create(l->target, 0, &l->cache, &err) ||
        engine_drafter_cache(l->drafter, 0, &l->draft_cache, &err))
        fail(err.msg);
    l->logits = rows(l->n_vocab);
    l->features = rows(l->d);
    l->pairs = rows(l->d);
    l->hidden = rows(l->d);
    l->fed = rows(l->d);
    l->scores = rows((size_t)specrt_policy_bound(*policy) + l->d);
}

static void close_loop(loop *l) {
    free(l->logits), free(l->features), free(l->pairs);
    free(l->hidden), free(l->fed), free(l->scores);
    engine_cache_close(l->cache);
    engine_cache_close(l->draft_cache);
    specrt_session_close(l->session);
    specrt_tree_free(l->tree);
    specrt_verifier_free(l->verifier);
    engine_drafter_close(l->drafter);
    engine_close(l->target);
}

int main(int argc, char **argv) {
    loop l = {0};
    tokenizer *tok;
    tok_worker *worker;
    id_list prompt = {0};
    specrt_error err;
    specrt_policy *policy;
    specrt_head *head;
    if (argc != 5) fail("usage: own_loop TARGET.gguf DRAFT.safetensors POLICY TEXT");
    if (tokenizer_open(argv[1], &tok, &err) || tok_worker_create(tok, &worker, &err)) fail(err.msg);
    check(tok_encode(worker, argv[4], strlen(argv[4]), &prompt));
    if (prompt.n < 1 || prompt.n > ENGINE_MAX_BATCH) fail("TEXT: expected 1 to 64 tokens");
    open_loop(&l, argv, tok, &policy, &head);

    prefill(&l, prompt.ids, (int32_t)prompt.n);
    print_tokens(tok, l.emitted, 1);
    int64_t n = 1, n_cycles = 0;
    for (; n < N_TOKENS; n += l.n_emitted, n_cycles++) {
        cycle(&l, (int64_t)prompt.n + n);
        print_tokens(tok, l.emitted, l.n_emitted);
    }
    printf("\n%lld tokens in %lld cycles under %s\n", (long long)n, (long long)n_cycles,
           specrt_policy_text(policy));

    close_loop(&l);
    specrt_policy_close(policy);
    specrt_head_close(head);
    free(prompt.ids);
    tok_worker_free(worker);
    tokenizer_close(tok);
    return 0;
}
