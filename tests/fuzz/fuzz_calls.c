/* fuzz_calls.c : calls on two sessions in any order, with arguments that fit and others. Whatever came
 * before, calls that are OK came in the order of specrt.h. A token that a session emits is plain decoding's
 * and within the vocabulary, although columns of padding are the greatest. What is refused says why in one
 * line. The first byte chooses policy, sampling and drafts. */
#include "calls_model.h"

#include <stdio.h>

enum { MOST_BYTES = 1 << 16, N_CALLS = 22 };

/* A saved session, and the text that it continues. */
static struct {
    uint8_t bytes[MOST_BYTES];
    size_t n;
    text of;
    uint64_t generation;
    int stage;
} saved;

static driven both[2];
static driven *d; /* of the call at hand */

/* @return whether a call was OK; else it says why. */
static bool called(specrt_status status) {
    const specrt_error *e = specrt_session_last_error(d->s);
    if (status == SPECRT_STATUS_OK) return true;
    if (e->status != status || !e->msg[0] || strchr(e->msg, '\n')) abort();
    return false;
}

/* ---- a prompt ---- */

static specrt_request any_request(void) {
    static const int64_t limits[] = {0, 0, 1, 3, 9, -1};
    static const specrt_sampling samplings[] = {{0},
                                                {.temperature = 0.8f, .session = 3},
                                                {.temperature = 2, .session = 1, .generation = 7},
                                                {.temperature = 1},
                                                {.temperature = -1, .session = 1}};
    uint8_t byte = any();
    specrt_request r = {.begin = (specrt_begin)(byte % 8 == 7 ? 2 : byte & 1)};
    r.max_tokens = limits[any() % 6];
    if (byte & 16) r.sampling = &samplings[any() % 5];
    int64_t there = d->text.base + d->text.n;
    r.position = byte & 32 ? any() - 3 : byte & 64 ? there - any() % 3 : 0;
    return r;
}

static void call_begin(void) {
    specrt_request r = any_request();
    bool none = any() % 8 == 0;
    if (none) r = (specrt_request){0};
    if (called(specrt_session_begin(d->s, none ? NULL : &r))) text_begin(d, &r);
}

static void call_prefill(void) {
    int32_t n = any() % 7 - (any() % 16 == 0);
    int32_t *tokens = any_tokens(n);
    specrt_target_rows rows = rows_of_texts(d, tokens, n);
    if (!called(specrt_session_prefill(d->s, tokens, n, any() & 1 ? &rows : NULL))) return;
    came(d, PROMPT | READ, n > 0 ? READ : d->stage);
    text_add(d, tokens, n);
}

static void call_draw(void) {
    int32_t token;
    bool damaged = any() % 8 == 0;
    const float *logits = logits_after(d, NULL, 0, damaged);
    if (!called(specrt_session_draw(d->s, logits, &token))) return;
    if (damaged || token != text_next(d, NULL, 0)) abort();
    came(d, READ | OPEN | DRAFT | GROWN, d->stage);
}

static void call_first(void) {
    specrt_verdict v;
    bool damaged = any() % 8 == 0;
    const float *logits = logits_after(d, NULL, 0, damaged);
    if (!called(specrt_session_first(d->s, logits, &v))) return;
    if (damaged) abort();
    came(d, READ, DRAFT);
    text_emit(d, &v, true);
}

static void call_start(void) {
    int32_t token = any() & 1 ? text_next(d, NULL, 0) : any() % N_LOGITS;
    if (!called(specrt_session_start(d->s, token))) return;
    came(d, READ | OPEN, DRAFT);
    text_start(d, token);
}

/* ---- a draft ---- */

static void call_beam(void) {
    if (called(specrt_session_get_beam(d->s, &d->beam))) came(d, DRAFT | GROWN, d->stage);
}

static void call_expand(void) {
    int32_t n = any() % 8 ? d->beam.n : any() % 5 - 1;
    const float *input = any() & 1 ? any_states(n) : NULL;
    if (called(specrt_session_expand(d->s, any_states(n), input, n, &d->beam)))
        came(d, DRAFT | GROWN, GROWN);
}

static void call_route(void) {
    int32_t n = any() % 8 ? 1 : any() % 5 - 1;
    specrt_beam beam = {n, any_tokens(n), NULL, any_states(n)};
    const specrt_shortlist *list =
        specrt_session_route(d->s, any() % 5 - 1, &beam, any_states(n), NULL);
    if (list)
        came(d, DRAFT | GROWN, GROWN);
    else if (called(specrt_session_last_error(d->s)->status))
        abort();
}

/* A selector that fails now and then. */
static int any_choice(void *user, int32_t position, int32_t previous, const int32_t *ids, int32_t k,
                      float *logits) {
    (void)user, (void)position;
    if (previous < 0 || previous >= N_VOCAB || k < 1) abort();
    for (int32_t i = 0; i < k; i++) {
        if (ids[i] < 0 || ids[i] >= N_VOCAB || !(logits[i] > -INFINITY)) abort();
        logits[i] += (float)(any() % 4);
    }
    if (any() == 255) logits[0] = -INFINITY;
    return any() == 255;
}

/* Each token of a draft could be drafted at its level, and behind a node once. */
static void check_draft(const specrt_draft *draft) {
    for (int32_t i = 1; i < draft->n; i++) {
        int32_t token = draft->tokens[i];
        if (!specrt_session_member(d->s, token, draft->depths[i] - 1)) abort();
        for (int32_t j = 1; j < i; j++)
            if (draft->parents[j] == draft->parents[i] && draft->tokens[j] == token) abort();
    }
}

static void call_block(void) {
    specrt_draft draft;
    int32_t n = any() % 8 ? 1 + any() % 3 : any() % 8 - 1;
    specrt_block block = {.n = n, .hidden = any_states(n), .by_position = any() & 1};
    uint8_t byte = any();
    if (byte & 1) block.p_min = (float)(byte / 2 % 8) / 4;
    if (byte & 16) block.confidence = any_states(2), block.confidence_bias = 0.5f;
    if (byte & 32) block.select = any_choice, block.k = any() % 12;
    specrt_status status = specrt_session_draft_block(d->s, &block, &draft);
    if (status == SPECRT_STATUS_HOST) d->stage = ENDED;
    if (!called(status)) return;
    came(d, DRAFT, DRAFTED);
    check_draft(&draft);
    d->draft = draft;
}

static void call_topk(void) {
    int32_t n = any() % 8 ? 1 + any() % 3 : any() % 8 - 1, k = any() % 20;
    int32_t *ids = any_tokens(n * k);
    float *logits = (float *)new_array((int64_t)n * k, sizeof *logits);
    if (!called(specrt_session_block_topk(d->s, any_states(n), NULL, n, k, ids, logits))) return;
    came(d, DRAFT, GROWN);
    for (int32_t i = 0; i < n * k; i++)
        if (ids[i] < -1 || ids[i] >= N_VOCAB) abort();
}

static void call_finish(void) {
    specrt_draft draft;
    bool wanted = any() % 4 != 0;
    if (!called(specrt_session_finish(d->s, wanted ? &draft : NULL))) return;
    came(d, DRAFT | GROWN, DRAFTED);
    if (wanted) check_draft(&draft), d->draft = draft;
}

static void call_batch(void) {
    specrt_session *sessions[2] = {both[0].s, any() % 4 ? both[1].s : both[0].s};
    specrt_beam beams[2] = {{0}, {0}};
    int32_t n = any() & 1 ? both[0].beam.n + both[1].beam.n : any() % 8;
    d = &both[0]; /* whose error it is */
    if (!called(specrt_session_expand_batch(sessions, 2, any_states(n), NULL, n, beams))) return;
    for (int i = 0; i < 2; i++) {
        both[i].beam = beams[i];
        came(&both[i], DRAFT | GROWN, GROWN);
    }
}

/* ---- a verdict ---- */

static const specrt_draft *any_draft(void) {
    static specrt_draft own;
    if (any() & 3) return &d->draft;
    own = any_tree(d);
    return &own;
}

/* What it decides is learned at once, later, or never. */
static void call_verify(void) {
    specrt_verdict v;
    const specrt_draft *draft = any_draft();
    specrt_target_rows rows = rows_of_nodes(d, draft);
    if (!called(specrt_session_verify(d->s, draft, rows.logits, &v))) return;
    came(d, DRAFT | GROWN | DRAFTED, DRAFTED);
    if (!d->samples_drafts) check_path(d, draft, &v);
    d->verdict = v;
    if (any() & 1) return;
    if (!called(specrt_session_observe(d->s, draft, &v, &rows))) abort();
    came(d, DRAFTED, DRAFT);
    text_add_answer(d, v.tokens, v.n);
}

static void call_accept(void) {
    specrt_verdict v;
    const specrt_draft *draft = any_draft();
    specrt_target_rows rows = rows_of_nodes(d, draft);
    if (any() % 8 == 0) rows.logits = NULL;
    if (!called(specrt_session_accept(d->s, draft, &rows, &v))) return;
    came(d, DRAFT | GROWN | DRAFTED, DRAFT);
    text_emit(d, &v, !d->samples_drafts);
}

static void call_observe(void) {
    const specrt_draft *draft = any_draft();
    specrt_verdict v =
        any() & 1 ? d->verdict : (specrt_verdict){.n = 1, .tokens = {any() % N_VOCAB}};
    specrt_target_rows rows = any() & 1 ? rows_of_nodes(d, draft) : any_rows(draft->n);
    if (any() % 4 == 0) v.n = any() % 5 - 1;
    if (any() % 4 == 0) v.nodes[any() % 4] = any() % 8 - 1;
    if (any() % 4 == 0) v.tokens[any() % 4] = any() % 70 - 1;
    if (!called(specrt_session_observe(d->s, draft, &v, any() & 1 ? &rows : NULL))) return;
    came(d, DRAFTED, DRAFT);
    text_add_answer(d, v.tokens, v.n);
}

static void call_chain(void) {
    int32_t n = any() % 8, n_accepted = any() % 8 - 1, last = any() & 1 ? -1 : any() % N_LOGITS;
    int32_t *tokens = any_tokens(n);
    if (n > 0 && any() & 3) tokens[0] = text_last(d);
    specrt_target_rows rows = any_rows(n);
    const specrt_target_rows *told = any() & 1 ? &rows : NULL;
    if (!called(specrt_session_observe_chain(d->s, tokens, n, n_accepted, last, told))) return;
    came(d, DRAFT | GROWN | DRAFTED, last < 0 ? OPEN : DRAFT);
    text_add_chain(d, tokens, n_accepted, last);
}

/* ---- other calls ---- */

static void call_save(void) {
    size_t n;
    if (!called(specrt_session_save(d->s, saved.bytes, MOST_BYTES, &n))) return;
    came(d, CREATED | PROMPT | READ | OPEN | DRAFT | ENDED, d->stage);
    saved.n = n;
    saved.stage = d->stage;
    saved.of = d->text;
    saved.generation = d->generation;
}

static void call_load(void) {
    bool damaged = any() % 8 == 0 && saved.n > 0;
    size_t at = saved.n ? (size_t)any() * 7 % saved.n : 0;
    saved.bytes[at] ^= damaged;
    bool loaded = called(specrt_session_load(d->s, saved.bytes, saved.n));
    saved.bytes[at] ^= damaged;
    if (loaded && damaged) abort();
    d->text = loaded ? saved.of : (text){.n_open = -1};
    d->text.left = INT64_MAX; /* a limit is the request's */
    d->stage = loaded ? saved.stage : CREATED;
    if (!loaded) return;
    d->generation = saved.generation;
    specrt_verifier_set_generation(d->plain, d->generation - 1);
}

static void call_looks(void) {
    specrt_session_stats stats;
    specrt_session_get_stats(d->s, &stats);
    if (stats.n_emitted < stats.n_cycles) abort();
    (void)specrt_session_member(d->s, any() - 3, any() % 40 - 1);
    if (specrt_session_shortlist(d->s)->n_rows > 3 * N_ROWS) abort();
}

static void call_nothing(void) {
    static float row[N_LOGITS];
    specrt_verdict v;
    specrt_draft draft;
    specrt_beam beam;
    if (specrt_session_begin(NULL, NULL) != SPECRT_STATUS_BAD_ARG ||
        specrt_session_prefill(NULL, NULL, 1, NULL) != SPECRT_STATUS_BAD_ARG ||
        specrt_session_first(NULL, row, &v) != SPECRT_STATUS_BAD_ARG ||
        specrt_session_expand(NULL, row, NULL, 1, &beam) != SPECRT_STATUS_BAD_ARG ||
        specrt_session_finish(NULL, &draft) != SPECRT_STATUS_BAD_ARG ||
        specrt_session_accept(NULL, NULL, NULL, &v) != SPECRT_STATUS_BAD_ARG ||
        specrt_host_cycle(NULL, NULL, &v) != SPECRT_STATUS_BAD_ARG ||
        called(specrt_session_first(d->s, NULL, &v)) ||
        called(specrt_session_expand(d->s, NULL, NULL, 1, &beam)) ||
        called(specrt_session_observe(d->s, NULL, NULL, NULL)))
        abort();
}

/* ---- the loop over callbacks ---- */

/* After a failure of a model begin comes next. */
static bool called_host(specrt_status status) {
    if (status == SPECRT_STATUS_HOST) d->stage = ENDED;
    return called(status);
}

static void call_host(void) {
    specrt_verdict v;
    specrt_request r = any_request();
    int32_t n = any() % 6, *prompt = any_tokens(n);
    specrt_host host = any_host(d);
    d->request = &r;
    if (any() & 1) {
        if (called_host(specrt_host_begin(d->s, &host, &r, prompt, n, &v))) text_emit(d, &v, true);
        return;
    }
    specrt_generation g = {.each = host_each, .user = d};
    if (r.max_tokens == 0) r.max_tokens = 9;
    if (!called_host(specrt_generate(d->s, &host, &r, prompt, n, &g))) return;
    bool goes_on = g.end == SPECRT_END_STOPPED || g.end == SPECRT_END_CONTEXT;
    d->stage = goes_on ? DRAFT : ENDED;
}

static void call_cycle(void) {
    specrt_verdict v;
    specrt_host host = any_host(d);
    d->request = NULL;
    if (!called_host(specrt_host_cycle(d->s, &host, &v))) return;
    came(d, DRAFT | GROWN, d->stage);
    if (v.n > 0) text_emit(d, &v, !d->samples_drafts);
    if (v.n == 0 && v.end != SPECRT_END_CONTEXT) abort();
}

/* ---- a correct cycle, at any time ---- */

static void correct_cycle(void) {
    specrt_verdict v;
    if (specrt_session_get_beam(d->s, &d->beam)) abort();
    while (d->beam.n > 0)
        if (specrt_session_expand(d->s, any_states(d->beam.n), NULL, d->beam.n, &d->beam)) abort();
    if (specrt_session_finish(d->s, &d->draft)) abort();
    specrt_target_rows rows = rows_of_nodes(d, &d->draft);
    if (specrt_session_accept(d->s, &d->draft, &rows, &v)) abort();
    text_emit(d, &v, !d->samples_drafts);
}

/* Whatever came before, a prompt is answered. */
static void call_correct(void) {
    specrt_request r = {.max_tokens = 12};
    specrt_verdict v;
    int32_t prompt[3] = {1, any() % N_VOCAB, 9};
    if (specrt_session_begin(d->s, &r)) abort();
    text_begin(d, &r);
    specrt_target_rows rows = rows_of_texts(d, prompt, 3);
    if (specrt_session_prefill(d->s, prompt, 3, &rows)) abort();
    text_add(d, prompt, 3);
    if (specrt_session_first(d->s, logits_after(d, NULL, 0, false), &v)) abort();
    text_emit(d, &v, true);
    for (int n = any() % 4; n > 0 && d->stage == DRAFT; n--) correct_cycle();
}

static void (*const calls[N_CALLS])(void) = {
    call_begin,   call_prefill, call_draw,   call_first, call_start,  call_beam,
    call_expand,  call_route,   call_finish, call_batch, call_verify, call_accept,
    call_observe, call_chain,   call_save,   call_load,  call_looks,  call_nothing,
    call_host,    call_cycle,   call_block,  call_topk};

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    specrt_error err;
    (void)argc, (void)argv;
    if (make_policies(&err)) fprintf(stderr, "%s\n", err.msg), exit(1);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    take_bytes(data, size);
    int kind = any() % N_KINDS;
    saved.n = 0;
    for (int i = 0; i < 2; i++) driven_open(&both[i], kind, (uint64_t)i + 1);
    while (bytes_left() && both[0].text.n < MOST_TEXT / 2 && both[1].text.n < MOST_TEXT / 2) {
        uint8_t byte = any();
        d = &both[byte >> 7];
        if ((byte & 127) < 100)
            calls[(byte & 127) % N_CALLS]();
        else
            call_correct();
        free_arrays();
    }
    for (int i = 0; i < 2; i++) {
        d = &both[i];
        call_correct();
        free_arrays();
        driven_close(d);
    }
    return 0;
}
