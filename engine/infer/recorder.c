/* recorder.c : see recorder.h. */
#include "engine/infer/recorder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/io.h"
#include "base/memory.h"
#include "engine/infer/passes.h"

enum { MOST = SPECRT_TREE_MAX_NODES };

struct recorder {
    specrt_host host, inner; /* ours, before theirs */
    const specrt_shortlist *whole;
    const specrt_markov_desc *markov;
    specrt_trace_info info;
    bool feeds_state;
    specrt_trace_writer *trace;
    bool in_memory;
    out_file out; /* with a path */
    FILE *memory; /* without: a stream into `part` */
    recorder_part part;
    specrt_error why; /* a write or a record failed; known here alone */
    recorder_figures figures;

    /* The prompt, until its first token comes. */
    specrt_trace_record sequence;
    int (*each)(void *user, const int32_t *tokens, int32_t n);
    void *user;
    int64_t n_left;      /* tokens that the answer may still have */
    int32_t *prompt_top; /* [prompt_room, n_top] */
    int64_t n_prompt_rows, prompt_room;
    /* The drafter's passes of this cycle: a row of each is extended by a row of the next. */
    draft_passes passes;
    int32_t n_block;                    /* positions of the cycle's block */
    float *hidden;                      /* [SPECRT_TREE_MAX_STEPS, SPECRT_TREE_MAX_TOPK, d_draft] */
    const float *logits;                /* [n_nodes, n_vocab] of the target, borrowed */
    const float *target_hidden;         /* [n_nodes, d_target], borrowed */
    uint16_t *target_half, *draft_half; /* [MOST, d] */
    uint16_t *prompt_half;              /* [d_target] of the prompt's last token */
    int32_t *top_ids, *draft_ids;       /* [MOST, n_top], [MOST, n_draft_top] */
    float *top_logits, *draft_logits, *logsumexp, *draft_logsumexp;
    float *scores, *bias;  /* [rows of the whole head]; bias: the Markov head's */
    float *from;           /* [rank] a row of its first matrix */
    int32_t *row_ids;      /* [rows of the whole head] the id of each */
    int32_t *tree_top_ids; /* [MOST, n_tree_top] */
};

static const float *hidden_row(const recorder *r, int32_t level, int32_t row) {
    return r->hidden +
           ((size_t)level * SPECRT_TREE_MAX_TOPK + (size_t)row) * (size_t)r->info.d_draft;
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

/* The k best of a row, best first; -1 where there are fewer. `of` : the id of each logit; NULL: its place. */
static void best_of(const float *logits, const int32_t *of, int32_t n, int64_t k, int32_t *ids,
                    float *values) {
    scored heap[1024];
    int64_t m = 0;
    for (int32_t i = 0; i < n; i++) {
        scored x = {logits[i], of ? of[i] : i};
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

static void add_markov(recorder *r, int32_t previous) {
    const specrt_head_desc *from = &r->markov->from, *to = &r->markov->to;
    size_t bytes = specrt_row_bytes(from->dtype, from->n_cols);
    specrt_segment rows = {.rows = to->rows,
                           .dtype = to->dtype,
                           .n_rows = (int32_t)to->n_rows,
                           .row_stride = to->row_stride};
    const specrt_shortlist all = {r->whole->compute,   &rows, 1, rows.n_rows,
                                  (int32_t)to->n_cols, NULL};
    specrt_row_decode(from->dtype, (const char *)from->rows + (size_t)previous * bytes,
                      from->n_cols, r->from);
    specrt_shortlist_logits(&all, r->from, 1, r->bias);
    for (int32_t i = 0; i < rows.n_rows; i++) r->scores[i] += r->bias[i];
}

/* What the drafter says behind a token, whose pass was a row of a level. */
static void take_draft_row(recorder *r, int32_t i, int32_t token, int32_t level, int32_t row) {
    size_t d = (size_t)r->info.d_draft;
    int64_t k = r->info.n_draft_top;
    if (row < 0) { /* a half that is no number */
        for (size_t j = 0; j < d; j++) r->draft_half[(size_t)i * d + j] = 0x7e00;
        for (int64_t j = 0; j < k; j++) r->draft_ids[i * k + j] = -1;
        for (int64_t j = 0; j < k; j++) r->draft_logits[i * k + j] = -INFINITY;
        r->draft_logsumexp[i] = -INFINITY;
        return;
    }
    const float *hidden = hidden_row(r, level, row);
    specrt_to_f16(hidden, r->info.d_draft, r->draft_half + (size_t)i * d);
    specrt_shortlist_logits(r->whole, hidden, 1, r->scores);
    if (r->markov) add_markov(r, token);
    best_of(r->scores, r->row_ids, r->whole->n_rows, k, r->draft_ids + i * k,
            r->draft_logits + i * k);
    r->draft_logsumexp[i] = logsumexp_of(r->scores, r->whole->n_rows);
}

static void take_target_row(recorder *r, int32_t i, int32_t node) {
    const float *logits = r->logits + (size_t)node * (size_t)r->info.n_vocab;
    const float *hidden = r->target_hidden + (size_t)node * (size_t)r->info.d_target;
    int64_t k = r->info.n_top;
    specrt_to_f16(hidden, r->info.d_target, r->target_half + (size_t)i * (size_t)r->info.d_target);
    best_of(logits, NULL, r->info.n_vocab, k, r->top_ids + i * k, r->top_logits + i * k);
    r->logsumexp[i] = logsumexp_of(logits, r->info.n_vocab);
}

/* What sources that look at whole trees learn from. */
static void take_tree(recorder *r, const specrt_draft *draft) {
    int32_t k = (int32_t)r->info.n_tree_top;
    for (int32_t i = 0; i < draft->n; i++) {
        int32_t *ids = r->tree_top_ids + i * k;
        int32_t n = specrt_logits_topk(r->logits + (size_t)i * (size_t)r->info.n_vocab,
                                       r->info.n_vocab, k, ids);
        for (; n < k; n++) ids[n] = -1;
    }
}

/* ---- the host before theirs ---- */

/* The target's states of its last pass. */
static int take_hidden(recorder *r) {
    int32_t width;
    int code = r->inner.target_hidden(r->inner.user, &r->target_hidden, &width);
    return code != 0 || width != r->info.d_target;
}

static int record_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                          const float **logits) {
    recorder *r = (recorder *)user;
    const specrt_host *inner = &r->inner;
    int code = inner->target_prefill(inner->user, tokens, n, 1, logits);
    if (code != 0) return code;
    if (take_hidden(r)) return 1;
    specrt_to_f16(r->target_hidden + (size_t)(n - 1) * (size_t)r->info.d_target, r->info.d_target,
                  r->prompt_half);
    for (int32_t i = 0; i < n; i++)
        best_of(*logits + (size_t)i * (size_t)r->info.n_vocab, NULL, r->info.n_vocab, r->info.n_top,
                r->prompt_top + r->n_prompt_rows++ * r->info.n_top, NULL);
    if (!all) *logits += (size_t)(n - 1) * (size_t)r->info.n_vocab;
    return 0;
}

static int record_draft_step(void *user, int32_t level, const specrt_beam *beam,
                             const float **hidden, const float **draft_input) {
    recorder *r = (recorder *)user;
    const specrt_host *inner = &r->inner;
    size_t n = (size_t)beam->n;
    int code = inner->draft_step(inner->user, level, beam, hidden, draft_input);
    if (code != 0) return code;
    draft_passes_add(&r->passes, level, beam);
    memcpy(r->hidden + (size_t)level * SPECRT_TREE_MAX_TOPK * (size_t)r->info.d_draft, *hidden,
           n * (size_t)r->info.d_draft * sizeof(float));
    return 0;
}

/* A row for each level, whatever the token that it extends. */
static int record_draft_block(void *user, int32_t root, int32_t n, specrt_block *block) {
    recorder *r = (recorder *)user;
    const specrt_host *inner = &r->inner;
    size_t d = (size_t)r->info.d_draft;
    int code = inner->draft_block(inner->user, root, n, block);
    if (code != 0) return code;
    r->n_block = block->n;
    for (size_t i = 0; i < (size_t)block->n; i++)
        memcpy(r->hidden + i * SPECRT_TREE_MAX_TOPK * d, block->hidden + i * d, d * sizeof(float));
    return 0;
}

static int record_verify(void *user, const specrt_draft *draft, const float **logits) {
    recorder *r = (recorder *)user;
    const specrt_host *inner = &r->inner;
    int code = inner->target_verify(inner->user, draft, logits);
    r->logits = *logits;
    return code != 0 ? code : take_hidden(r);
}

static int record_hidden(void *user, const float **hidden, int32_t *width) {
    const specrt_host *inner = &((recorder *)user)->inner;
    return inner->target_hidden(inner->user, hidden, width);
}

static int record_commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    recorder *r = (recorder *)user;
    const specrt_host *inner = &r->inner;
    int32_t row = r->passes.n ? 0 : -1;
    for (int32_t i = 0; i < verdict->n; i++) {
        int32_t node = verdict->nodes[i];
        if (r->inner.draft_block)
            row = i < r->n_block ? 0 : -1;
        else if (i && row >= 0)
            row = draft_passes_row(&r->passes, i, row, draft->tokens[node]);
        take_target_row(r, i, node);
        take_draft_row(r, i, draft->tokens[node], i, row);
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
    r->passes.n = r->n_block = 0;
    if (specrt_trace_write(r->trace, &cycle, &r->why) != SPECRT_STATUS_OK) return 1;
    return inner->commit(inner->user, draft, verdict);
}

/* The first tokens come when the prompt has been read. */
static int record_tokens(void *user, const int32_t *tokens, int32_t n) {
    recorder *r = (recorder *)user;
    if (n > r->n_left) n = (int32_t)r->n_left;
    r->n_left -= n;
    r->figures.n_tokens += n;
    if (r->sequence.kind == SPECRT_TRACE_SEQUENCE) {
        r->sequence.top_ids = r->prompt_top;
        if (r->feeds_state) r->sequence.prompt_hidden = r->prompt_half;
        if (specrt_trace_write(r->trace, &r->sequence, &r->why) != SPECRT_STATUS_OK) return 1;
        r->sequence.kind = SPECRT_TRACE_END;
    }
    int code = r->each ? r->each(r->user, tokens, n) : 0;
    return code != 0 || r->n_left == 0;
}

/* ---- a run ---- */

/* A prompt's statistics begin with it. */
static void add_stats(recorder_figures *sum, const specrt_session_stats *s) {
    sum->stats.n_cycles += s->n_cycles;
    sum->stats.n_emitted += s->n_emitted;
    sum->stats.n_covered += s->n_covered;
    sum->stats.n_rows += s->n_rows;
    sum->n_prompts++;
}

static specrt_status make_room(recorder *r, int64_t n, specrt_error *err) {
    if (n <= r->prompt_room) return SPECRT_STATUS_OK;
    int32_t *grown = (int32_t *)realloc(
        r->prompt_top, (size_t)(2 * n * (int64_t)r->info.n_top) * sizeof *grown + 1);
    if (!grown) return sl_error_no_memory_for(err, "a trace");
    r->prompt_top = grown;
    r->prompt_room = 2 * n;
    return SPECRT_STATUS_OK;
}

static int write_bytes(void *user, const void *bytes, size_t n) {
    recorder *r = (recorder *)user;
    if (r->in_memory) return fwrite(bytes, 1, n, r->memory) != n;
    return sl_out_write(&r->out, bytes, n, &r->why) != SPECRT_STATUS_OK;
}

/* A trace of its own for the next prompt; the figures are the prompt's. */
static specrt_status begin_part(recorder *r, specrt_error *err) {
    recorder_part_free(&r->part);
    r->figures = (recorder_figures){0};
    r->why = (specrt_error){0};
    r->memory = open_memstream(&r->part.trace, &r->part.n_bytes);
    if (!r->memory) return sl_error_no_memory_for(err, "a trace");
    return specrt_trace_writer_create(&r->info, write_bytes, r, NULL, &r->trace, err);
}

static specrt_status end_part(recorder *r, specrt_status status, specrt_error *err) {
    specrt_status closed = specrt_trace_writer_close(r->trace, NULL);
    r->trace = NULL;
    if (r->memory && fclose(r->memory) != 0) closed = SPECRT_STATUS_NO_MEMORY;
    r->memory = NULL;
    if (status != SPECRT_STATUS_OK) return status;
    return closed == SPECRT_STATUS_OK ? closed : sl_error_no_memory_for(err, "a trace");
}

static specrt_status generate(recorder *r, specrt_session *session, const specrt_request *request,
                              const int32_t *prompt, int32_t n, specrt_error *err) {
    specrt_generation g = {.each = record_tokens, .user = r};
    specrt_request whole = request ? *request : (specrt_request){.max_tokens = 0};
    specrt_session_stats stats;
    r->n_left = whole.max_tokens > 0 ? whole.max_tokens : INT64_MAX;
    whole.max_tokens = 0;
    specrt_status status = specrt_generate(session, &r->host, &whole, prompt, n, &g);
    if (r->why.status != SPECRT_STATUS_OK) return *err = r->why, err->status;
    if (status != SPECRT_STATUS_OK) return *err = *specrt_session_last_error(session), status;
    specrt_session_get_stats(session, &stats);
    add_stats(&r->figures, &stats);
    return status;
}

specrt_status recorder_generate(recorder *r, specrt_session *session, const specrt_request *request,
                                const int32_t *prompt, int32_t n, const char *domain,
                                int (*each)(void *user, const int32_t *tokens, int32_t n),
                                void *user, specrt_error *err) {
    TRY(make_room(r, n, err));
    r->each = each;
    r->user = user;
    r->n_prompt_rows = 0;
    r->passes.n = r->n_block = 0;
    r->sequence = (specrt_trace_record){.kind = SPECRT_TRACE_SEQUENCE, .n = n, .tokens = prompt};
    snprintf(r->sequence.domain, sizeof r->sequence.domain, "%s", domain);
    specrt_status status = r->in_memory ? begin_part(r, err) : SPECRT_STATUS_OK;
    if (status == SPECRT_STATUS_OK) status = generate(r, session, request, prompt, n, err);
    return r->in_memory ? end_part(r, status, err) : status;
}

recorder_part recorder_detach(recorder *r) {
    recorder_part part = r->part;
    part.figures = r->figures;
    r->part = (recorder_part){0};
    return part;
}

void recorder_part_free(recorder_part *part) {
    free(part->trace);
    *part = (recorder_part){0};
}

static specrt_status append_records(recorder *r, specrt_trace_reader *reader, specrt_error *err) {
    specrt_trace_record record;
    for (;;) {
        TRY(specrt_trace_read(reader, &record, err));
        if (record.kind == SPECRT_TRACE_END) return SPECRT_STATUS_OK;
        TRY(specrt_trace_write(r->trace, &record, err));
    }
}

specrt_status recorder_append(recorder *r, const recorder_part *part, specrt_error *err) {
    specrt_trace_reader *reader;
    TRY(specrt_trace_open_memory(part->trace, part->n_bytes, "part", NULL, &reader, err));
    specrt_status status = append_records(r, reader, err);
    specrt_trace_close(reader);
    if (status != SPECRT_STATUS_OK)
        return r->why.status != SPECRT_STATUS_OK ? (*err = r->why, err->status) : status;
    add_stats(&r->figures, &part->figures.stats);
    r->figures.n_tokens += part->figures.n_tokens;
    return status;
}

recorder_figures recorder_get_figures(const recorder *r) {
    return r->figures;
}

specrt_status recorder_commit(recorder *r, specrt_error *err) {
    specrt_status status = specrt_trace_writer_close(r->trace, err);
    r->trace = NULL;
    if (r->why.status != SPECRT_STATUS_OK) *err = r->why, status = err->status;
    return status == SPECRT_STATUS_OK ? sl_out_commit(&r->out, err) : status;
}

static specrt_status make_scratch(recorder *r, specrt_error *err) {
    size_t levels = (size_t)SPECRT_TREE_MAX_STEPS * SPECRT_TREE_MAX_TOPK;
    size_t top = (size_t)r->info.n_top, draft_top = (size_t)r->info.n_draft_top;
    size_t d_target = (size_t)r->info.d_target, d_draft = (size_t)r->info.d_draft;
    const struct {
        void *array;
        size_t n, size;
    } all[] = {{&r->hidden, levels * d_draft, sizeof(float)},
               {&r->target_half, MOST * d_target, sizeof(uint16_t)},
               {&r->draft_half, MOST * d_draft, sizeof(uint16_t)},
               {&r->prompt_half, d_target, sizeof(uint16_t)},
               {&r->top_ids, MOST * top, sizeof(int32_t)},
               {&r->top_logits, MOST * top, sizeof(float)},
               {&r->draft_ids, MOST * draft_top, sizeof(int32_t)},
               {&r->draft_logits, MOST * draft_top, sizeof(float)},
               {&r->logsumexp, MOST, sizeof(float)},
               {&r->draft_logsumexp, MOST, sizeof(float)},
               {&r->tree_top_ids, MOST * (size_t)r->info.n_tree_top, sizeof(int32_t)},
               {&r->scores, (size_t)r->whole->n_rows, sizeof(float)},
               {&r->bias, r->markov ? (size_t)r->whole->n_rows : 1, sizeof(float)},
               {&r->from, r->markov ? (size_t)r->markov->from.n_cols : 1, sizeof(float)},
               {&r->row_ids, (size_t)r->whole->n_rows, sizeof(int32_t)}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        TRY(sl_new(all[i].array, all[i].n, all[i].size, "a trace", err));
    return SPECRT_STATUS_OK;
}

/* A drafter's head may have fewer rows than the vocabulary has ids. */
static void name_rows(recorder *r) {
    int32_t *id = r->row_ids;
    for (int32_t s = 0; s < r->whole->n_segments; s++) {
        const specrt_segment *part = &r->whole->segments[s];
        memcpy(id, part->ids, (size_t)part->n_rows * sizeof *id);
        id += part->n_rows;
    }
}

static void stand_before(recorder *r, const specrt_host *inner) {
    r->inner = r->host = *inner;
    r->host.user = r;
    r->host.target_prefill = record_prefill;
    r->host.draft_step = record_draft_step;
    if (inner->draft_block) r->host.draft_block = record_draft_block;
    r->host.target_verify = record_verify;
    r->host.target_hidden = record_hidden;
    r->host.commit = record_commit;
}

static specrt_status open_trace(recorder *r, const recorder_params *p, specrt_error *err) {
    TRY(make_scratch(r, err));
    name_rows(r);
    if (r->in_memory) return SPECRT_STATUS_OK;
    TRY(sl_out_open(&r->out, p->path, p->force, err));
    specrt_status status =
        specrt_trace_writer_create(&r->info, write_bytes, r, NULL, &r->trace, err);
    if (r->why.status != SPECRT_STATUS_OK) *err = r->why;
    return status;
}

specrt_status recorder_create(const recorder_params *p, recorder **out, specrt_error *err) {
    recorder *r;
    *out = NULL;
    TRY(sl_new(&r, 1, sizeof *r, "a trace", err));
    r->whole = p->whole;
    r->markov = p->markov;
    r->info = p->info;
    r->info.d_draft = (int32_t)p->whole->n_cols;
    r->feeds_state = p->feeds_state;
    r->in_memory = !p->path;
    stand_before(r, &p->host);
    specrt_status status = open_trace(r, p, err);
    if (status == SPECRT_STATUS_OK)
        *out = r;
    else
        recorder_free(r);
    return status;
}

void recorder_free(recorder *r) {
    if (!r) return;
    specrt_trace_writer_close(r->trace, NULL);
    if (!r->in_memory) sl_out_abort(&r->out);
    recorder_part_free(&r->part);
    free(r->prompt_top), free(r->hidden), free(r->prompt_half), free(r->tree_top_ids);
    free(r->target_half), free(r->draft_half), free(r->top_ids), free(r->top_logits);
    free(r->draft_ids), free(r->draft_logits), free(r->logsumexp), free(r->scores);
    free(r->draft_logsumexp), free(r->row_ids), free(r->bias), free(r->from);
    free(r);
}
