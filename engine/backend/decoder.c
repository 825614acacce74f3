/* decoder.c : see decoder.h. The decoder's host stands before the sequence's: it times the phases, keeps the
 * cycles and calls the watcher. The time outside of callbacks is the session's. */
#include "specrt_tools.h"
#include "engine/backend/decoder.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/measure.h"
#include "base/memory.h"

struct decoder {
    decoder_kind kind;
    sequence *sequence;
    specrt_session *session; /* NULL of the other kinds, and then: */
    specrt_verifier *verifier;
    uint64_t generation;  /* of the next answer */
    int64_t n_left;       /* tokens that the answer may still have */
    int64_t position;     /* of the next token */
    decoder_cycle *chain; /* of the cycle at hand */
    int32_t num_steps;    /* of chains; 0: plain */
    int32_t n_logits, n_vocab;
    bool begun;         /* the first token was given */
    specrt_host host;   /* what the session calls */
    specrt_timer timer; /* between the session and the decoder, where there is a clock */
    bool has_clock;
    const float *logits; /* of the cycle at hand */
    int code;            /* what a callback returned that failed */
    void (*watch)(void *user, const specrt_draft *draft, const specrt_verdict *verdict,
                  const float *logits);
    void *watch_user;
    specrt_verdict verdict; /* what the last call emitted */
    decoder_cycle *cycles;  /* [n_cycles], room for `capacity` */
    int32_t n_cycles;
    size_t capacity;
    double since; /* when the phase at hand began */
    decoder_times times;
};

/* ---- cycles ---------------------------------------------------------------------------------- */

static void cycle_add(decoder_cycle *c, int32_t token, int32_t parent) {
    int32_t i = c->n++;
    c->tokens[i] = token;
    c->parents[i] = parent;
    c->depths[i] = parent < 0 ? 0 : c->depths[parent] + 1;
    c->masks[i] = (parent < 0 ? 0 : c->masks[parent]) | (uint64_t)1 << i;
}

specrt_draft decoder_cycle_draft(const decoder_cycle *c) {
    static const float none[SPECRT_TREE_MAX_NODES];
    return (specrt_draft){.n = c->n,
                          .tokens = c->tokens,
                          .parents = c->parents,
                          .depths = c->depths,
                          .masks = c->masks,
                          .logprobs = none};
}

static specrt_status keep_cycle(decoder *d, const specrt_draft *draft) {
    if (!sl_reserve(&d->cycles, &d->capacity, (size_t)d->n_cycles + 1, sizeof *d->cycles))
        return SPECRT_STATUS_NO_MEMORY;
    decoder_cycle *c = &d->cycles[d->n_cycles++];
    c->n = 0;
    for (int32_t i = 0; i < draft->n; i++) cycle_add(c, draft->tokens[i], draft->parents[i]);
    return SPECRT_STATUS_OK;
}

int32_t decoder_cycles(const decoder *d, const decoder_cycle **out) {
    *out = d->cycles;
    return d->n_cycles;
}

/* ---- the host -------------------------------------------------------------------------------- */

static double tick(double *since) {
    double now = sl_measure_seconds(), passed = now - *since;
    *since = now;
    return passed;
}

static const specrt_host *inner(const decoder *d) {
    return &d->sequence->host;
}

static int target_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                          const float **logits) {
    decoder *d = (decoder *)user;
    return d->code = inner(d)->target_prefill(inner(d)->user, tokens, n, all, logits);
}

static int draft_step(void *user, int32_t level, const specrt_beam *beam, const float **hidden,
                      const float **draft_input) {
    decoder *d = (decoder *)user;
    d->times.head += tick(&d->since);
    d->code = inner(d)->draft_step(inner(d)->user, level, beam, hidden, draft_input);
    d->times.draft += tick(&d->since);
    return d->code;
}

static int draft_block(void *user, int32_t root, int32_t n, specrt_block *block) {
    decoder *d = (decoder *)user;
    d->times.head += tick(&d->since);
    d->code = inner(d)->draft_block(inner(d)->user, root, n, block);
    d->times.draft += tick(&d->since);
    return d->code;
}

static int target_verify(void *user, const specrt_draft *draft, const float **logits) {
    decoder *d = (decoder *)user;
    d->times.head += tick(&d->since);
    d->code = d->sequence->of->info.is_exact ? 0 : (int)keep_cycle(d, draft);
    if (d->code == 0) d->code = inner(d)->target_verify(inner(d)->user, draft, logits);
    d->logits = *logits;
    d->times.target += tick(&d->since);
    return d->code;
}

/* The logits are gone once the sequence is called again. */
static int commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    decoder *d = (decoder *)user;
    double before = d->sequence->learning;
    d->times.verify += tick(&d->since);
    if (d->watch) d->watch(d->watch_user, draft, verdict, d->logits);
    d->times.watch += tick(&d->since);
    d->code = inner(d)->commit(inner(d)->user, draft, verdict);
    double learning = d->sequence->learning - before;
    d->times.align += learning;
    d->times.verify += tick(&d->since) - learning;
    return d->code;
}

static int target_hidden(void *user, const float **hidden, int32_t *width) {
    decoder *d = (decoder *)user;
    return d->code = inner(d)->target_hidden(inner(d)->user, hidden, width);
}

/* ---- memory ---------------------------------------------------------------------------------- */

void decoder_free(decoder *d) {
    if (!d) return;
    specrt_session_close(d->session);
    specrt_verifier_close(d->verifier);
    free(d->chain);
    free(d->cycles);
    free(d);
}

/* Without a session, draws are those of a session with this sampling. */
static specrt_status key_answers(decoder *d, const specrt_sampling *sampling, specrt_error *err) {
    specrt_verifier *verifier;
    TRY(specrt_verifier_create(d->n_logits, d->n_vocab, sampling, NULL, &verifier, err));
    specrt_verifier_close(d->verifier);
    d->verifier = verifier;
    d->generation = sampling->generation;
    return SPECRT_STATUS_OK;
}

static int32_t most_steps(const specrt_session_params *p) {
    return p->tree.num_steps ? p->tree.num_steps : 6;
}

static specrt_status create_session(decoder *d, const decoder_desc *desc, specrt_error *err) {
    specrt_session_params p = desc->params;
    p.n_logits = d->n_logits;
    p.n_block = d->sequence->of->info.n_block;
    if (p.n_block > most_steps(&p)) p.n_block = most_steps(&p);
    TRY(specrt_session_create(desc->policy, &p, NULL, &d->session, err));
    if (!desc->clock) return SPECRT_STATUS_OK;
    d->has_clock = true;
    d->timer.host = d->host;
    d->timer.clock = *desc->clock;
    d->timer.auto_draft = p.auto_draft;
    d->timer.keeps_chains = d->sequence->of->info.keeps_chains;
    specrt_timer_host(&d->timer, &d->host);
    return SPECRT_STATUS_OK;
}

static specrt_status create_alone(decoder *d, const decoder_desc *desc, specrt_error *err) {
    bool own = desc->kind == DECODER_OWN;
    if (own && !d->sequence->of->info.has_own)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: expected an engine with drafts of its own",
                                d->sequence->of->info.engine);
    if (own) d->num_steps = most_steps(&desc->params);
    TRY(sl_new(&d->chain, 1, sizeof *d->chain, "a decoder", err));
    return key_answers(d, &desc->params.sampling, err);
}

specrt_status decoder_create(const decoder_desc *desc, decoder **out, specrt_error *err) {
    decoder *d;
    *out = NULL;
    TRY(sl_new(&d, 1, sizeof *d, "a decoder", err));
    d->kind = desc->kind;
    d->sequence = desc->sequence;
    d->n_logits = d->sequence->of->info.n_logits;
    d->n_vocab = desc->n_vocab ? desc->n_vocab : d->n_logits;
    d->host = *inner(d);
    d->host.user = d;
    d->host.reads_late = desc->reads_late && d->sequence->of->info.can_wait;
    d->host.target_prefill = target_prefill;
    d->host.draft_step = draft_step;
    if (d->host.draft_block) d->host.draft_block = draft_block;
    d->host.target_verify = target_verify;
    d->host.commit = commit;
    if (d->host.target_hidden) d->host.target_hidden = target_hidden;
    specrt_status status =
        desc->kind == DECODER_SESSION ? create_session(d, desc, err) : create_alone(d, desc, err);
    if (status == SPECRT_STATUS_OK)
        *out = d;
    else
        decoder_free(d);
    return status;
}

/* ---- without a session ----------------------------------------------------------------------- */

/* Of the call that failed. */
static specrt_status explain(const decoder *d, specrt_status status, specrt_error *err) {
    const char *fault = sequence_fault(d->sequence);
    if (status == SPECRT_STATUS_HOST && fault[0])
        return specrt_error_set(
            err, d->code == SPECRT_STATUS_BAD_INPUT ? SPECRT_STATUS_BAD_INPUT : status, "%s",
            fault);
    if (status != SPECRT_STATUS_OK && d->session && err)
        *err = *specrt_session_last_error(d->session);
    return status;
}

static specrt_status called(const decoder *d, int code, specrt_error *err) {
    if (code == 0) return SPECRT_STATUS_OK;
    specrt_error_set(err, SPECRT_STATUS_HOST, "%s: a pass returned %d",
                     d->sequence->of->info.engine, code);
    return explain(d, SPECRT_STATUS_HOST, err);
}

static specrt_status check_prompt(const decoder *d, const int32_t *prompt, int32_t n,
                                  specrt_error *err) {
    int64_t most = d->host.n_context - 1;
    if (n < 1 || n > most)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "prompt: expected 1 to %d tokens, found %d", (int)most, (int)n);
    for (int32_t i = 0; i < n; i++)
        if (prompt[i] < 0 || prompt[i] >= d->n_vocab)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "prompt: token %d: expected 0 to %d, found %d", (int)i,
                                    (int)d->n_vocab - 1, (int)prompt[i]);
    return SPECRT_STATUS_OK;
}

/* The token that plain decoding emits, and whether the answer ends with it. */
static specrt_status draw(decoder *d, const float *logits, specrt_error *err) {
    specrt_verdict *v = &d->verdict;
    int32_t token = specrt_verifier_draw(d->verifier, logits, d->position++);
    if (token < 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "target: expected logits that are numbers, found NaN or -inf "
                                "alone");
    v->tokens[v->n++] = token;
    v->end = --d->n_left == 0 ? SPECRT_END_LENGTH : SPECRT_END_NONE;
    return SPECRT_STATUS_OK;
}

/* What specrt_host_begin() does with a session. */
static specrt_status begin_alone(decoder *d, const specrt_request *request, const int32_t *prompt,
                                 int32_t n, specrt_error *err) {
    const float *logits = NULL;
    const int32_t most = d->host.max_batch ? d->host.max_batch : n;
    if (request && request->sampling) TRY(key_answers(d, request->sampling, err));
    specrt_verifier_set_generation(d->verifier, d->generation++);
    d->n_left = request && request->max_tokens > 0 ? request->max_tokens : INT64_MAX;
    for (int32_t done = 0, k; done < n; done += k) {
        k = n - done < most ? n - done : most;
        TRY(called(d, target_prefill(d, prompt + done, k, 0, &logits), err));
    }
    d->position = n;
    d->verdict.n = 0;
    return draw(d, logits, err);
}

/* The engine's own best token behind level `level`. */
static void add_best(decoder *d, const float *logits, int32_t level) {
    int32_t best = 0;
    (void)specrt_logits_topk(logits, d->n_vocab, 1, &best);
    cycle_add(d->chain, best, level);
}

static specrt_status draft_own_block(decoder *d, specrt_error *err) {
    specrt_block block = {0};
    TRY(called(d, draft_block(d, d->chain->tokens[0], d->num_steps, &block), err));
    for (int32_t i = 0; i < block.n && i < d->num_steps; i++)
        add_best(d, sequence_own_logits(d->sequence) + (size_t)i * (size_t)d->n_logits, i);
    return SPECRT_STATUS_OK;
}

/* Level by level, or in one pass. */
static specrt_status draft_chain(decoder *d, specrt_error *err) {
    if (d->host.draft_block && d->num_steps > 0) return draft_own_block(d, err);
    for (int32_t level = 0; level < d->num_steps; level++) {
        const int32_t none = 0;
        const float zero = 0, *hidden, *draft_input = NULL;
        const specrt_beam beam = {
            .n = 1, .tokens = &d->chain->tokens[level], .parents = &none, .logprobs = &zero};
        TRY(called(d, draft_step(d, level, &beam, &hidden, &draft_input), err));
        add_best(d, sequence_own_logits(d->sequence), level);
    }
    return SPECRT_STATUS_OK;
}

/* Along the chain while its tokens are those that are drawn. */
static specrt_status descend(decoder *d, const float *logits, specrt_error *err) {
    specrt_verdict *v = &d->verdict;
    const decoder_cycle *c = d->chain;
    v->n = 0;
    for (int32_t node = 0; node < c->n; node++) {
        v->nodes[node] = node;
        TRY(draw(d, logits + (size_t)node * (size_t)d->n_logits, err));
        bool goes_on = node + 1 < c->n && c->tokens[node + 1] == v->tokens[node];
        if (!goes_on || v->end != SPECRT_END_NONE) break;
    }
    return SPECRT_STATUS_OK;
}

static specrt_status cycle_alone(decoder *d, specrt_error *err) {
    const float *logits;
    int64_t left = d->host.n_context - (d->position - 1);
    if (left < 1) return d->verdict.n = 0, d->verdict.end = SPECRT_END_CONTEXT, SPECRT_STATUS_OK;
    d->chain->n = 0;
    cycle_add(d->chain, d->verdict.tokens[d->verdict.n - 1], -1);
    if (left > d->num_steps) TRY(draft_chain(d, err));
    specrt_draft draft = decoder_cycle_draft(d->chain);
    TRY(called(d, target_verify(d, &draft, &logits), err));
    TRY(descend(d, logits, err));
    return called(d, commit(d, &draft, &d->verdict), err);
}

/* ---- decoding -------------------------------------------------------------------------------- */

void decoder_reset(decoder *d) {
    d->since = sl_measure_seconds();
    memset(&d->times, 0, sizeof d->times);
    d->n_cycles = 0;
    d->code = 0;
    d->begun = false;
    sequence_reset(d->sequence);
    sequence_use_own(d->sequence, d->kind == DECODER_OWN);
    d->sequence->is_plain = d->kind == DECODER_PLAIN;
    d->sequence->reads_late = d->host.reads_late;
}

specrt_status decoder_begin(decoder *d, const specrt_request *request, const int32_t *prompt,
                            int32_t n, specrt_error *err) {
    if (!d->session) TRY(check_prompt(d, prompt, n, err));
    decoder_reset(d);
    specrt_status status =
        d->session
            ? explain(d, specrt_host_begin(d->session, &d->host, request, prompt, n, &d->verdict),
                      err)
            : begin_alone(d, request, prompt, n, err);
    d->times.prefill = tick(&d->since);
    return status;
}

specrt_status decoder_next(decoder *d, const specrt_verdict **out, specrt_error *err) {
    d->since = sl_measure_seconds();
    *out = &d->verdict;
    if (!d->begun) return d->begun = true, SPECRT_STATUS_OK; /* it came with the prompt */
    if (!d->session) return cycle_alone(d, err);
    TRY(explain(d, specrt_host_cycle(d->session, &d->host, &d->verdict), err));
    d->times.update += tick(&d->since);
    return SPECRT_STATUS_OK;
}

void decoder_watch(decoder *d,
                   void (*watch)(void *user, const specrt_draft *draft,
                                 const specrt_verdict *verdict, const float *logits),
                   void *user) {
    d->watch = watch;
    d->watch_user = user;
}

const specrt_host *decoder_host(const decoder *d) {
    return &d->host;
}
const decoder_times *decoder_get_times(const decoder *d) {
    return &d->times;
}
specrt_session *decoder_session(const decoder *d) {
    return d->session;
}
const specrt_clock *decoder_clock(const decoder *d) {
    return d->has_clock ? &d->timer.clock : NULL;
}
