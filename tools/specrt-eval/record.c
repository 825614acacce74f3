/* record.c : specrt-eval record. Decoding runs as ever, through a host that stands before the decoder's
 * and writes down what passes: what routers are trained on, and what policies are replayed over. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "eval.h"
#include "base/error.h"
#include "base/io.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/text.h"

enum { MOST = SPECRT_TREE_MAX_NODES };

typedef struct recording {
    eval_options options;
    int64_t n_top, n_draft_top, n_tree_top;
    eval_models models;
    specrt_policy *policy, *full;
    specrt_session *whole; /* a list of all rows: the drafter's own ranking */
    engine_decoder *decoder;
    specrt_host host; /* the decoder's, with us before it */
    chat *chat;
    specrt_trace_writer *trace;
    specrt_error *err;
    specrt_trace_record sequence;
    id_list prompt;
    int32_t *prompt_top; /* [prompt.n, n_top] */
    int64_t n_prompt_rows, prompt_capacity;
    /* The drafter's passes of this cycle: a row of each is extended by a row of the next. */
    int32_t n_levels, n_rows[SPECRT_TREE_MAX_STEPS];
    int32_t tokens[SPECRT_TREE_MAX_STEPS][SPECRT_TREE_MAX_TOPK];
    int32_t parents[SPECRT_TREE_MAX_STEPS][SPECRT_TREE_MAX_TOPK];
    float *hidden;       /* [SPECRT_TREE_MAX_STEPS, SPECRT_TREE_MAX_TOPK, d_draft] */
    const float *logits; /* [n_nodes, n_vocab] of the target, borrowed */
    int32_t d_target, d_draft, n_vocab, n_whole;
    uint16_t *target_half, *draft_half; /* [MOST, d] */
    uint16_t *prompt_half;              /* [d_target] of the prompt's last token */
    int32_t *top_ids, *draft_ids;       /* [MOST, n_top], [MOST, n_draft_top] */
    float *top_logits, *draft_logits, *logsumexp, *draft_logsumexp, *scores; /* scores: [n_whole] */
    int32_t *tree_top_ids; /* [MOST, n_tree_top] */
    bool feeds_state;      /* what drafter passes begin with is the target's state */
    int64_t n_tokens, n_prompts;
    specrt_session_stats stats; /* of all prompts */
} recording;

static const float *hidden_row(const recording *r, int32_t level, int32_t row) {
    return r->hidden + ((size_t)level * SPECRT_TREE_MAX_TOPK + (size_t)row) * (size_t)r->d_draft;
}

/* ---- rows ---- */

typedef struct scored {
    float logit;
    int32_t id;
} scored;

/* A heap of the k best, the worst on top; ties to the lower id. */
static bool is_worse(scored a, scored b) {
    return a.logit != b.logit ? a.logit < b.logit : a.id > b.id;
}

static void sift(scored *heap, int64_t n, int64_t i) {
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && is_worse(heap[child + 1], heap[child])) child++;
        if (!is_worse(heap[child], heap[i])) return;
        scored t = heap[i];
        heap[i] = heap[child];
        heap[child] = t;
    }
}

static int best_first(const void *a, const void *b) {
    return is_worse(*(const scored *)a, *(const scored *)b) ? 1 : -1;
}

/* The k best of a row, best first; -1 where there are fewer. */
static void best_of(const float *logits, int32_t n, int64_t k, int32_t *ids, float *values) {
    scored heap[1024];
    int64_t m = 0;
    for (int32_t i = 0; i < n; i++) {
        scored x = {logits[i], i};
        if (isnan(x.logit)) continue;
        if (m < k) {
            heap[m++] = x;
            if (m == k)
                for (int64_t j = k / 2; j-- > 0;) sift(heap, m, j);
        } else if (k && is_worse(heap[0], x)) {
            heap[0] = x;
            sift(heap, m, 0);
        }
    }
    qsort(heap, (size_t)m, sizeof *heap, best_first);
    for (int64_t j = 0; j < k; j++) {
        ids[j] = j < m ? heap[j].id : -1;
        if (values) values[j] = j < m ? heap[j].logit : -INFINITY;
    }
}

static float logsumexp_of(const float *logits, int32_t n) {
    double sum = 0, max = -INFINITY;
    for (int32_t i = 0; i < n; i++) max = fmax(max, (double)logits[i]);
    for (int32_t i = 0; i < n; i++) sum += exp((double)logits[i] - max);
    return (float)(max + log(sum));
}

/* The row of a level that extends `row` of the level before by a token; -1: none was run. */
static int32_t row_after(const recording *r, int32_t level, int32_t row, int32_t token) {
    if (level >= r->n_levels) return -1;
    for (int32_t i = 0; i < r->n_rows[level]; i++)
        if (r->parents[level][i] == row && r->tokens[level][i] == token) return i;
    return -1;
}

static void take_draft_row(recording *r, int32_t i, int32_t level, int32_t row) {
    size_t d = (size_t)r->d_draft;
    int64_t k = r->n_draft_top;
    if (row < 0) { /* a half that is no number */
        for (size_t j = 0; j < d; j++) r->draft_half[(size_t)i * d + j] = 0x7e00;
        for (int64_t j = 0; j < k; j++) r->draft_ids[i * k + j] = -1;
        for (int64_t j = 0; j < k; j++) r->draft_logits[i * k + j] = -INFINITY;
        r->draft_logsumexp[i] = -INFINITY;
        return;
    }
    const float *hidden = hidden_row(r, level, row);
    specrt_to_f16(hidden, r->d_draft, r->draft_half + (size_t)i * d);
    specrt_active_logits(specrt_session_shortlist(r->whole), hidden, 1, r->scores);
    best_of(r->scores, r->n_whole, k, r->draft_ids + i * k, r->draft_logits + i * k);
    r->draft_logsumexp[i] = logsumexp_of(r->scores, r->n_whole);
}

static void take_target_row(recording *r, int32_t i, int32_t node) {
    const float *logits = r->logits + (size_t)node * (size_t)r->n_vocab;
    const float *hidden = engine_decoder_hidden(r->decoder) + (size_t)node * (size_t)r->d_target;
    int64_t k = r->n_top;
    specrt_to_f16(hidden, r->d_target, r->target_half + (size_t)i * (size_t)r->d_target);
    best_of(logits, r->n_vocab, k, r->top_ids + i * k, r->top_logits + i * k);
    r->logsumexp[i] = logsumexp_of(logits, r->n_vocab);
}

/* What sources that look at whole trees learn from. */
static void take_tree(recording *r, const specrt_draft *draft) {
    int32_t k = (int32_t)r->n_tree_top;
    for (int32_t i = 0; i < draft->n; i++) {
        int32_t *ids = r->tree_top_ids + i * k;
        int32_t n =
            specrt_logits_topk(r->logits + (size_t)i * (size_t)r->n_vocab, r->n_vocab, k, ids);
        for (; n < k; n++) ids[n] = -1;
    }
}

/* ---- the host before the decoder's ---- */

static int record_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                          const float **logits) {
    recording *r = (recording *)user;
    const specrt_host *inner = engine_decoder_host(r->decoder);
    int code = inner->target_prefill(inner->user, tokens, n, 1, logits);
    if (code != 0) return code;
    specrt_to_f16(engine_decoder_hidden(r->decoder) + (size_t)(n - 1) * (size_t)r->d_target,
                  r->d_target, r->prompt_half);
    for (int32_t i = 0; i < n; i++)
        best_of(*logits + (size_t)i * (size_t)r->n_vocab, r->n_vocab, r->n_top,
                r->prompt_top + r->n_prompt_rows++ * r->n_top, NULL);
    if (!all) *logits += (size_t)(n - 1) * (size_t)r->n_vocab;
    return 0;
}

static int record_draft_step(void *user, int32_t level, const specrt_beam *beam,
                             const float **hidden, const float **fed) {
    recording *r = (recording *)user;
    const specrt_host *inner = engine_decoder_host(r->decoder);
    size_t n = (size_t)beam->n, bytes = n * sizeof(int32_t);
    int code = inner->draft_step(inner->user, level, beam, hidden, fed);
    if (code != 0) return code;
    r->n_levels = level + 1;
    r->n_rows[level] = beam->n;
    memcpy(r->tokens[level], beam->tokens, bytes);
    memcpy(r->parents[level], beam->parents, bytes);
    memcpy(r->hidden + (size_t)level * SPECRT_TREE_MAX_TOPK * (size_t)r->d_draft, *hidden,
           n * (size_t)r->d_draft * sizeof(float));
    return 0;
}

static int record_verify(void *user, const specrt_draft *draft, const float **logits) {
    recording *r = (recording *)user;
    const specrt_host *inner = engine_decoder_host(r->decoder);
    int code = inner->target_verify(inner->user, draft, logits);
    r->logits = *logits;
    return code;
}

static int record_hidden(void *user, const float **hidden, int32_t *width) {
    const specrt_host *inner = engine_decoder_host(((recording *)user)->decoder);
    return inner->target_hidden(inner->user, hidden, width);
}

static int record_commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    recording *r = (recording *)user;
    const specrt_host *inner = engine_decoder_host(r->decoder);
    int32_t row = r->n_levels ? 0 : -1;
    for (int32_t i = 0; i < verdict->n; i++) {
        int32_t node = verdict->nodes[i];
        if (i && row >= 0) row = row_after(r, i, row, draft->tokens[node]);
        take_target_row(r, i, node);
        take_draft_row(r, i, i, row);
    }
    take_tree(r, draft);
    specrt_trace_record cycle = {.kind = SPECRT_TRACE_CYCLE,
                                 .n = verdict->n,
                                 .n_nodes = draft->n,
                                 .tokens = verdict->tokens,
                                 .nodes = verdict->nodes,
                                 .tree_tokens = draft->tokens,
                                 .tree_parents = draft->parents,
                                 .tree_logprobs = draft->logprobs,
                                 .target_hidden = r->target_half,
                                 .top_ids = r->top_ids,
                                 .top_logits = r->top_logits,
                                 .top_logsumexp = r->logsumexp,
                                 .draft_hidden = r->draft_half,
                                 .draft_ids = r->draft_ids,
                                 .draft_logits = r->draft_logits,
                                 .draft_logsumexp = r->draft_logsumexp,
                                 .tree_top_ids = r->tree_top_ids};
    r->n_levels = 0;
    if (specrt_trace_write(r->trace, &cycle, r->err) != SPECRT_STATUS_OK) return 1;
    return inner->commit(inner->user, draft, verdict);
}

/* The first tokens come when the prompt has been read. */
static int record_tokens(void *user, const int32_t *tokens, int32_t n) {
    recording *r = (recording *)user;
    (void)tokens;
    r->n_tokens += n;
    if (r->sequence.kind == SPECRT_TRACE_END) return 0;
    r->sequence.tokens = r->prompt.ids;
    r->sequence.top_ids = r->prompt_top;
    if (r->feeds_state) r->sequence.prompt_hidden = r->prompt_half;
    specrt_status status = specrt_trace_write(r->trace, &r->sequence, r->err);
    r->sequence.kind = SPECRT_TRACE_END;
    return status != SPECRT_STATUS_OK;
}

/* ---- a run ---- */

/* A prompt's statistics begin with it. */
static void add_stats(recording *r) {
    specrt_session_stats s;
    specrt_session_get_stats(engine_decoder_session(r->decoder), &s);
    r->stats.n_cycles += s.n_cycles;
    r->stats.n_emitted += s.n_emitted;
    r->stats.n_covered += s.n_covered;
    r->stats.n_rows += s.n_rows;
    r->n_prompts++;
}

static specrt_status record_prompt(recording *r, const prompt *p, specrt_error *err) {
    specrt_generation g = {.max_tokens = r->options.max_tokens, .each = record_tokens, .user = r};
    TRY(chat_prompt(r->chat, p, &r->prompt));
    if ((int64_t)r->prompt.n > r->prompt_capacity) {
        r->prompt_capacity = 2 * (int64_t)r->prompt.n;
        int32_t *grown = (int32_t *)realloc(
            r->prompt_top, (size_t)(r->prompt_capacity * r->n_top) * sizeof *grown + 1);
        if (!grown) return error_no_memory_for(err, "a trace");
        r->prompt_top = grown;
    }
    r->n_prompt_rows = 0;
    r->sequence = (specrt_trace_record){.kind = SPECRT_TRACE_SEQUENCE, .n = (int32_t)r->prompt.n};
    snprintf(r->sequence.domain, sizeof r->sequence.domain, "%s", p->domain);
    engine_decoder_reset(r->decoder);
    r->err->status = SPECRT_STATUS_OK;
    specrt_status status = specrt_generate(engine_decoder_session(r->decoder), &r->host,
                                           r->prompt.ids, (int64_t)r->prompt.n, &g, err);
    if (status == SPECRT_STATUS_OK) add_stats(r);
    return status == SPECRT_STATUS_OK && r->err->status != SPECRT_STATUS_OK ? r->err->status
                                                                            : status;
}

/* Why writing failed is known here alone. */
typedef struct trace_file {
    out_file out;
    specrt_error why;
} trace_file;

static int write_bytes(void *user, const void *bytes, size_t n) {
    trace_file *f = (trace_file *)user;
    return out_write(&f->out, bytes, n, &f->why) != SPECRT_STATUS_OK;
}

static specrt_status record_all(recording *r, prompt_list *prompts, specrt_error *err) {
    specrt_status status = SPECRT_STATUS_OK;
    progress bar;
    progress_begin(&bar, r->options.common.progress, "record", "prompts", (uint64_t)prompts->n);
    for (int i = 0; status == SPECRT_STATUS_OK && i < prompts->n; i++) {
        status = record_prompt(r, &prompts->items[i], err);
        if (status == SPECRT_STATUS_BAD_ARG && prompts_pass_over(prompts, &prompts->items[i], err))
            status = SPECRT_STATUS_OK;
        else if (status == SPECRT_STATUS_OK)
            chat_announce(r->chat);
        progress_update(&bar, (uint64_t)i + 1);
    }
    progress_end(&bar);
    if (status == SPECRT_STATUS_BAD_ARG) status = err->status = SPECRT_STATUS_BAD_INPUT;
    return status == SPECRT_STATUS_OK ? prompts_account(prompts, r->n_prompts, err) : status;
}

static specrt_status make_scratch(recording *r, specrt_error *err) {
    size_t levels = (size_t)SPECRT_TREE_MAX_STEPS * SPECRT_TREE_MAX_TOPK, top = (size_t)r->n_top;
    r->hidden = (float *)malloc(levels * (size_t)r->d_draft * sizeof(float));
    r->target_half = (uint16_t *)malloc(MOST * (size_t)r->d_target * sizeof(uint16_t));
    r->draft_half = (uint16_t *)malloc(MOST * (size_t)r->d_draft * sizeof(uint16_t));
    r->prompt_half = (uint16_t *)malloc((size_t)r->d_target * sizeof(uint16_t));
    r->top_ids = (int32_t *)malloc(MOST * top * sizeof(int32_t));
    r->top_logits = (float *)malloc(MOST * top * sizeof(float));
    r->draft_ids = (int32_t *)malloc(MOST * (size_t)r->n_draft_top * sizeof(int32_t) + 1);
    r->draft_logits = (float *)malloc(MOST * (size_t)r->n_draft_top * sizeof(float) + 1);
    r->logsumexp = (float *)malloc(MOST * sizeof(float));
    r->draft_logsumexp = (float *)malloc(MOST * sizeof(float));
    r->tree_top_ids = (int32_t *)malloc(MOST * (size_t)r->n_tree_top * sizeof(int32_t) + 1);
    r->scores = (float *)malloc((size_t)r->n_whole * sizeof(float));
    return r->hidden && r->target_half && r->draft_half && r->top_ids && r->top_logits &&
                   r->draft_ids && r->draft_logits && r->logsumexp && r->scores &&
                   r->draft_logsumexp && r->tree_top_ids && r->prompt_half
               ? SPECRT_STATUS_OK
               : error_no_memory_for(err, "a trace");
}

static specrt_status open_recording(recording *r, specrt_error *err) {
    const eval_options *o = &r->options;
    specrt_session_params one = {.tree = {.topk = 1}};
    if (!o->draft || !o->common.output)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "expected --draft FILE and -o FILE for the trace");
    if (o->policies.n > 1 || (o->policies.n && strchr(o->policies.items[0], ',')))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--policy: expected one, as a trace is of one run");
    TRY(models_open(o, (int)o->common.threads, &r->models, err));
    TRY(chat_create(o, r->models.tok, &r->chat, err));
    TRY(models_policy(&r->models, o->policies.n ? o->policies.items[0] : "full", &r->policy, err));
    TRY(models_policy(&r->models, "full", &r->full, err));
    TRY(specrt_session_create(r->full, &one, NULL, &r->whole, err));
    specrt_session_params params = models_session(&r->models, o, 0); /* with the models' worker */
    TRY(engine_decoder_create(r->models.target, r->models.drafter, r->policy, &params,
                              (int32_t)o->n_context, &r->decoder, err));
    const specrt_active *whole = specrt_session_shortlist(r->whole);
    r->feeds_state = engine_drafter_features(r->models.drafter, (int32_t[3]){0}) == 0;
    r->d_target = engine_get_config(r->models.target)->d_model;
    r->n_vocab = engine_get_config(r->models.target)->n_vocab;
    r->d_draft = (int32_t)whole->n_cols;
    r->n_whole = whole->n_rows;
    r->host = *engine_decoder_host(r->decoder);
    r->host.user = r;
    r->host.target_prefill = record_prefill;
    r->host.draft_step = record_draft_step;
    r->host.target_verify = record_verify;
    r->host.target_hidden = record_hidden;
    r->host.commit = record_commit;
    return make_scratch(r, err);
}

static void print_figures(const recording *r, const prompt_list *prompts) {
    const specrt_session_stats *s = &r->stats;
    double cycles = s->n_cycles ? (double)s->n_cycles : 1;
    double accept_length = (double)s->n_emitted / cycles, rows = (double)s->n_rows / cycles;
    double coverage = s->n_emitted ? (double)s->n_covered / (double)s->n_emitted : 0;
    cli_info("%s: %s cycles, %s tokens", r->options.common.output,
             text_count((uint64_t)s->n_cycles), text_count((uint64_t)r->n_tokens));
    cli_info("%s: accept length %.2f, %.1f%% covered, %.0f active rows",
             specrt_policy_text(r->policy), accept_length, 100 * coverage, rows);
    if (!r->options.common.json) return;
    json_object *o = json_object_new_object();
    json_put(o, "policy", json_text(specrt_policy_text(r->policy)));
    json_put(o, "n_prompts", json_whole((uint64_t)r->n_prompts));
    prompts_put_json(prompts, o);
    chat_put_json(r->chat, o);
    json_put(o, "n_tokens", json_whole((uint64_t)r->n_tokens));
    json_put(o, "n_cycles", json_whole((uint64_t)s->n_cycles));
    json_put(o, "accept_length", json_real(accept_length));
    json_put(o, "coverage", json_real(coverage));
    json_put(o, "active_rows", json_real(rows));
    json_print(o);
}

/* What the trace says of the recording. */
static specrt_trace_info describe(const recording *r) {
    const eval_options *o = &r->options;
    specrt_trace_info info = {.n_vocab = r->n_vocab,
                              .d_target = r->d_target,
                              .d_draft = r->d_draft,
                              .n_top = (int32_t)r->n_top,
                              .n_draft_top = (int32_t)r->n_draft_top,
                              .n_tree_top = (int32_t)r->n_tree_top,
                              .policy = specrt_policy_text(r->policy),
                              .draft = o->sampled_drafts,
                              .temperature = (float)o->temperature,
                              .n_ids = tokenizer_n_vocab(r->models.tok)};
    specrt_session_params params = models_session(&r->models, o, 0);
    info.tree = params.tree;
    info.terminators = tokenizer_terminators(r->models.tok, &info.n_terminators);
    tokenizer_fingerprint(r->models.tok, info.tokenizer_sha256);
    return info;
}

static specrt_status record(recording *r, prompt_list *prompts, specrt_error *err) {
    const eval_options *o = &r->options;
    trace_file f = {.why = {SPECRT_STATUS_OK, ""}};
    specrt_trace_info info = describe(r);
    TRY(out_open(&f.out, o->common.output, o->common.force, err));
    r->err = err;
    specrt_status status = specrt_trace_writer_create(&info, write_bytes, &f, NULL, &r->trace, err);
    if (status == SPECRT_STATUS_OK) status = record_all(r, prompts, err);
    specrt_status closed = specrt_trace_writer_close(r->trace, status ? NULL : err);
    if (status == SPECRT_STATUS_OK) status = closed;
    if (f.why.status != SPECRT_STATUS_OK) *err = f.why;
    if (status == SPECRT_STATUS_OK) status = out_commit(&f.out, err);
    out_abort(&f.out);
    if (status == SPECRT_STATUS_OK) print_figures(r, prompts);
    return status;
}

static void close_recording(recording *r) {
    engine_decoder_free(r->decoder);
    specrt_session_close(r->whole);
    specrt_policy_close(r->policy);
    specrt_policy_close(r->full);
    chat_free(r->chat);
    models_close(&r->models);
    free(r->prompt.ids), free(r->prompt_top), free(r->hidden);
    free(r->target_half), free(r->draft_half), free(r->top_ids), free(r->top_logits);
    free(r->draft_ids), free(r->draft_logits), free(r->logsumexp), free(r->scores);
    free(r->draft_logsumexp), free(r->tree_top_ids), free(r->prompt_half);
    cli_list_free(&r->options.policies);
    cli_list_free(&r->options.prompts);
}

int record_main(int argc, char **argv) {
    recording r = {.options = {.max_tokens = 128}, .n_top = 10, .n_draft_top = 64, .n_tree_top = 8};
    eval_options *o = &r.options;
    prompt_list prompts = {0};
    specrt_error err = {0};
    const cli_option options[] = {
        EVAL_TARGET(*o),
        EVAL_DRAFT(*o),
        cli_strings("policy", "SPEC", &o->policies, "what may be drafted (full)"),
        EVAL_PROMPTS(*o),
        EVAL_SAMPLING(*o),
        cli_heading("Trace"),
        cli_int("top", "N", &r.n_top, 1, 1024, "best tokens of the target kept (10)"),
        cli_int("draft-top", "N", &r.n_draft_top, 0, 1024, "of the drafter (64)"),
        cli_int("tree-top", "N", &r.n_tree_top, 0, SPECRT_LOGITS_MAX_K,
                "of the target at every node, for windows with positions=tree (8)"),
        {0},
    };
    const cli_tool tool = {
        "specrt-eval record",
        "specrt-eval record --target target.gguf --draft draft.safetensors\n"
        "      --prompts questions.jsonl -o run.trace",
        "Decodes prompts and writes every cycle to a trace (docs/FORMAT.md): tree, emitted "
        "tokens, hidden states of both models, their best tokens. Routers are trained on it and "
        "policies replayed over it.",
        "specrt-eval record --target FILE --draft FILE --prompts FILE... -o FILE", options};
    int code = cli_parse(&tool, argc, argv, &o->common, NULL);
    if (code >= 0) return code;
    specrt_status status = prompts_given(o, &prompts, &err);
    if (status == SPECRT_STATUS_OK) status = open_recording(&r, &err);
    if (status == SPECRT_STATUS_OK) status = record(&r, &prompts, &err);
    prompts_free(&prompts);
    close_recording(&r);
    return status == SPECRT_STATUS_OK ? CLI_OK : cli_fail(&err);
}
