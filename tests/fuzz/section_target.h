/* section_target.h : what the fuzzers of sections share. A section that opens must serve a session: rows
 * that exist, each token once. */
#ifndef SECTION_TARGET_H
#define SECTION_TARGET_H

#include "fixture.h"

enum { SECTION_MAX_ROWS = 128, SECTION_MAX_COLS = 32, SECTION_TOPK = 3, SECTION_STEPS = 3 };

/* Some weights, the same for every section. */
static inline const float *section_weights(void) {
    static float weights[SECTION_MAX_ROWS * SECTION_MAX_COLS];
    uint64_t state = 7;
    if (weights[0] == 0)
        for (int i = 0; i < SECTION_MAX_ROWS * SECTION_MAX_COLS; i++)
            weights[i] = fixture_normal(&state);
    return weights;
}

/* A bundle of the one section, its bytes as they come; *memory: to free after it. */
static inline specrt_bundle *section_open_version(const char *tag, uint32_t version, uint32_t flags,
                                                  const uint8_t *data, size_t size,
                                                  uint8_t **memory) {
    size_t n;
    specrt_bundle *bundle;
    fixture_section section = {tag, version, flags, data, size, size};
    *memory = fixture_bundle(&section, 1, &n);
    specrt_bundle_open_memory(*memory, n, "fuzz", NULL, &bundle, NULL);
    return bundle;
}

static inline specrt_bundle *section_open(const char *tag, uint32_t flags, const uint8_t *data,
                                          size_t size, uint8_t **memory) {
    return section_open_version(tag, 1, flags, data, size, memory);
}

static inline void section_check(const specrt_shortlist *shortlist, int32_t n_vocab,
                                 const float *logits) {
    uint8_t seen[SECTION_MAX_ROWS] = {0};
    for (int32_t i = 0; i < shortlist->n_segments; i++)
        for (int32_t r = 0; r < shortlist->segments[i].n_rows; r++, logits++) {
            int32_t id = shortlist->segments[i].ids[r];
            if (id < 0 || id >= n_vocab || (*logits > -INFINITY && seen[id]++)) abort();
        }
}

/* A cycle up to what the target would verify, of a session that has a root. */
static inline void section_draft(specrt_session *s, int32_t n_vocab, specrt_draft *draft) {
    static float logits[SECTION_TOPK * 4 * SECTION_MAX_ROWS];
    specrt_beam beam;
    if (specrt_session_get_beam(s, &beam)) abort();
    for (int32_t level = 0; beam.n > 0; level++) {
        const float *draft_input = section_weights() + level, *hidden = draft_input + level;
        if (specrt_session_expand(s, hidden, draft_input, beam.n, &beam)) abort();
        const specrt_shortlist *shortlist = specrt_session_shortlist(s);
        if (shortlist->n_rows > 4 * SECTION_MAX_ROWS ||
            specrt_shortlist_logits(shortlist, section_weights(), 1, logits))
            abort();
        section_check(shortlist, n_vocab, logits);
    }
    if (specrt_session_finish(s, draft)) abort();
}

/* A prompt of the vocabulary and the first token after it. */
static inline void section_begin(specrt_session *s, int32_t n_vocab, const specrt_request *request,
                                 const specrt_target_rows *rows) {
    const int32_t prompt[] = {1 % n_vocab, 5 % n_vocab, 9 % n_vocab};
    if (specrt_session_begin(s, request) || specrt_session_prefill(s, prompt, 3, rows) ||
        specrt_session_start(s, 0))
        abort();
}

/* A session of such a policy over a head of these sizes, if there is one. */
static inline void section_serve(const specrt_bundle *bundle, const char *text, int32_t n_rows,
                                 int32_t n_cols, int32_t n_embed) {
    const specrt_head_desc head_desc = {
        .rows = section_weights(), .n_rows = n_rows, .n_cols = n_cols};
    const specrt_head_desc embedding = {
        .rows = section_weights(), .n_rows = n_rows, .n_cols = n_embed};
    specrt_policy_desc desc = {.text = text, .embedding = n_embed ? &embedding : NULL};
    specrt_session_params params = {
        .tree = {.num_steps = SECTION_STEPS, .topk = SECTION_TOPK, .num_draft_tokens = 8},
        .n_logits = n_rows};
    specrt_head *head;
    specrt_policy *policy = NULL;
    specrt_session *s = NULL;
    specrt_draft draft;
    if (n_rows > SECTION_MAX_ROWS || n_cols > SECTION_MAX_COLS / 2 || n_embed > SECTION_MAX_COLS)
        return;
    if (specrt_head_bind(NULL, &head_desc, NULL, &head, NULL)) return;
    if (!specrt_policy_create(bundle, head, &desc, &policy, NULL) &&
        !specrt_session_create(policy, &params, NULL, &s, NULL)) {
        section_begin(s, n_rows, NULL, NULL);
        section_draft(s, n_rows, &draft);
    }
    specrt_session_close(s);
    specrt_policy_close(policy);
    specrt_head_close(head);
}

#endif
