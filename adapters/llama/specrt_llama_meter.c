/* specrt_llama_meter.c : passes of a pair, for specrt_costs_measure(), and whose costs they are. */
#include "specrt_llama_impl.h"

#include <stdio.h>
#include <string.h>

enum { PROMPT_TOKENS = 64 };

/* Any tokens. */
static int32_t token_at(const specrt_llama *s, int32_t i) {
    return (i * 977 + 11) % s->n_vocab;
}

/* A sequence of a few tokens, from nothing. */
static int begin(specrt_llama *s) {
    int32_t tokens[PROMPT_TOKENS], n = s->n_context / 4 + 1;
    const float *logits;
    if (n > PROMPT_TOKENS) n = PROMPT_TOKENS;
    for (int32_t i = 0; i < n; i++) tokens[i] = token_at(s, i);
    specrt_llama_reset(s);
    specrt_host host = specrt_llama_host(s);
    return host.target_prefill(s, tokens, n, 0, &logits);
}

/* A pass over a chain of n tokens. */
static int verify(specrt_llama *s, int32_t n, specrt_draft *draft, double *seconds) {
    static const float none[SPECRT_TREE_MAX_NODES];
    static int32_t parents[SPECRT_TREE_MAX_NODES], depths[SPECRT_TREE_MAX_NODES];
    static uint64_t masks[SPECRT_TREE_MAX_NODES];
    static int32_t tokens[SPECRT_TREE_MAX_NODES];
    const float *logits;
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = token_at(s, i + 100);
        parents[i] = i - 1;
        depths[i] = i;
        masks[i] = ((uint64_t)2 << i) - 1;
    }
    *draft = (specrt_draft){n, tokens, parents, depths, masks, none, NULL, 0};
    double began = specrt_clock_seconds();
    int code = specrt_llama_host(s).target_verify(s, draft, &logits);
    *seconds = specrt_clock_seconds() - began;
    return code;
}

/* Of a chain that was verified, the first n nodes stay. */
static int keep(specrt_llama *s, const specrt_draft *draft, int32_t n) {
    specrt_verdict verdict = {.n = n};
    for (int32_t i = 0; i < n; i++) verdict.nodes[i] = i, verdict.tokens[i] = token_at(s, i);
    return specrt_llama_host(s).commit(s, draft, &verdict);
}

/* A short context is left for a new one. */
static int make_room(specrt_llama *s, int32_t n) {
    return s->n_past < n || s->n_past + n > s->n_context ? begin(s) : 0;
}

static int meter_target(void *user, int32_t n, double *seconds) {
    specrt_llama *s = (specrt_llama *)user;
    specrt_draft draft;
    return make_room(s, 1) || verify(s, n, &draft, seconds) || keep(s, &draft, 1);
}

/* So that n tokens are to be read: a model of its own forgets n - 1, a reader waits for the target's
 * states. */
static int leave_unread(specrt_llama *s, int32_t n) {
    specrt_draft draft;
    double unused;
    if (n == 1) return 0;
    if (!s->reader) return s->n_read = s->n_past - (n - 1), 0;
    for (int32_t left = n - 1, most = s->tree.num_draft_tokens; left > 0; left -= most) {
        int32_t now = left < most ? left : most;
        if (verify(s, now, &draft, &unused) || keep(s, &draft, now)) return 1;
    }
    return 0;
}

static int meter_draft(void *user, int32_t n, double *seconds) {
    static const int32_t root = 11, parent = 0;
    static const float zero = 0;
    specrt_llama *s = (specrt_llama *)user;
    const specrt_beam beam = {1, &root, &parent, &zero};
    const float *hidden, *input = NULL;
    if (make_room(s, n) || (s->n_past >= n && leave_unread(s, n))) return 1;
    double began = specrt_clock_seconds();
    int code = specrt_llama_host(s).draft_step(s, 0, &beam, &hidden, &input);
    *seconds = specrt_clock_seconds() - began;
    return code;
}

void specrt_llama_get_meter(specrt_llama *s, specrt_meter *out) {
    specrt_llama_reset(s);
    *out = (specrt_meter){s, meter_target, meter_draft};
}

void specrt_llama_key(const specrt_llama_setting *t, char out[SPECRT_COSTS_KEY]) {
    char target[128] = "", draft[128] = "";
    llama_model_desc(t->target, target, sizeof target);
    llama_model_desc(t->draft, draft, sizeof draft);
    snprintf(out, SPECRT_COSTS_KEY,
             "target %s of %llu bytes, draft %s of %llu bytes, threads %d, context %d, slots %d, "
             "tree %d/%d/%d, llama.cpp %s, specrt %s",
             target, (unsigned long long)llama_model_size(t->target), draft,
             (unsigned long long)llama_model_size(t->draft), (int)t->n_threads, (int)t->n_context,
             (int)t->n_slots, (int)t->tree.num_steps, (int)t->tree.topk,
             (int)t->tree.num_draft_tokens, llama_version(), SPECRT_VERSION_STRING);
}

void specrt_llama_pair_key(const specrt_llama *s, char out[SPECRT_COSTS_KEY]) {
    const specrt_llama_setting setting = {.target = llama_get_model(s->target),
                                          .draft = llama_get_model(s->draft),
                                          .n_threads = llama_n_threads(s->target),
                                          .n_context = s->n_context,
                                          .n_slots = 1,
                                          .tree = s->tree};
    specrt_llama_key(&setting, out);
}
