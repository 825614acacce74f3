/* meter.c : passes of any host, for specrt_costs_measure(), by the calls that sessions make. */
#include "specrt_adapt.h"
#include "specrt_block.h"
#include "core/base.h"

#define SPECRT__METER_SMALL 0.01 /* seconds of these cycles, at most one more */

enum {
    SPECRT__METER_BEFORE = 64,  /* tokens before a pass */
    SPECRT__METER_DRIFT = 64,   /* more of them, after which the sequence begins again */
    SPECRT__METER_LIKE = 3,     /* cycles before a pass of the target */
    SPECRT__METER_PROMPT = 256, /* tokens of the longest prompt */
    SPECRT__METER_DRAFT = 10    /* tokens that the first pass of a draft reads at most */
};

typedef struct specrt__meter {
    specrt_meter_desc desc;
    int64_t n_past;   /* tokens in the target's cache; 0: begin again */
    int32_t n_unread; /* of those, that the drafter has not read */
    int32_t n_block;  /* positions of a block at most; 0: it drafts token by token */
    bool drafted;     /* since the last commit */
    int32_t *tokens;  /* [most(n_before, SPECRT__METER_PROMPT)] any */
    int32_t *ids;     /* [n_rows] of the head */
    float *hidden;    /* [SPECRT_TREE_MAX_TOPK, n_cols] any */
    float *logits;    /* [SPECRT_TREE_MAX_TOPK, n_rows] */
} specrt__meter;

static double specrt__meter_now(const specrt__meter *m) {
    return m->desc.now ? m->desc.now() : specrt_clock_seconds();
}

/* --- calls as a session makes them --- */

/* What sources learn from. */
static void specrt__meter_best(const specrt__meter *m, const float *logits, int32_t n) {
    int32_t best[SPECRT_LOGITS_MAX_K];
    for (int32_t i = 0; i < n; i++)
        specrt_logits_topk(logits + (size_t)i * (size_t)m->desc.n_logits, m->desc.n_logits,
                           SPECRT_LOGITS_MAX_K, best);
}

/* Of an empty sequence. */
static int specrt__meter_read(specrt__meter *m, int32_t n, int all) {
    const specrt_host *h = &m->desc.host;
    int32_t batch = h->max_batch > 0 && h->max_batch < n ? h->max_batch : n;
    m->desc.reset(m->desc.reset_user);
    for (int32_t done = 0; done < n; done += batch) {
        const float *logits = NULL;
        int32_t now = n - done < batch ? n - done : batch;
        int code = h->target_prefill(h->user, m->tokens + done, now, all, &logits);
        if (code != 0) return code;
        if (all && logits) specrt__meter_best(m, logits, now);
    }
    m->n_past = n;
    m->n_unread = n;
    m->drafted = false;
    return 0;
}

/* n more tokens fit, behind about as many as asked for. */
static int specrt__meter_make_room(specrt__meter *m, int32_t n) {
    const int64_t context = m->desc.host.n_context;
    int64_t before = m->desc.n_before;
    if (m->n_past > 0 && m->n_past <= before + SPECRT__METER_DRIFT &&
        (context == 0 || m->n_past + n <= context))
        return 0;
    if (context > 0 && before > context / 4) before = context / 4 + 1;
    return specrt__meter_read(m, (int32_t)before, 0);
}

/* A chain of n tokens, of which the first `keep` stay. */
static int specrt__meter_verify(specrt__meter *m, int32_t n, int32_t keep) {
    static const float none[SPECRT_TREE_MAX_NODES] = {0};
    int32_t parents[SPECRT_TREE_MAX_NODES], depths[SPECRT_TREE_MAX_NODES];
    uint64_t masks[SPECRT_TREE_MAX_NODES];
    const specrt_host *h = &m->desc.host;
    const float *logits = NULL;
    specrt_verdict verdict;
    SPECRT__CLEAR(&verdict, 1);
    verdict.n = keep;
    for (int32_t i = 0; i < n; i++) {
        parents[i] = i - 1;
        depths[i] = i;
        masks[i] = ((uint64_t)2 << i) - 1;
        verdict.nodes[i] = i;
        verdict.tokens[i] = m->tokens[i + 1];
    }
    const specrt_draft draft = {n, m->tokens, parents, depths, masks, none, NULL, 0};
    int code = h->target_verify(h->user, &draft, &logits);
    if (code != 0) return code;
    if (logits) specrt__meter_best(m, logits, n);
    m->n_past += keep;
    /* It reads a draft's root with the draft, but in front of a block only what was verified. */
    m->n_unread = m->drafted && m->n_block == 0 ? keep - 1 : m->n_unread + keep;
    m->drafted = false;
    return h->commit(h->user, &draft, &verdict);
}

static int specrt__meter_draft(specrt__meter *m, int32_t level, int32_t n) {
    static const int32_t parents[SPECRT_TREE_MAX_TOPK] = {0};
    static const float logprobs[SPECRT_TREE_MAX_TOPK] = {0};
    const specrt_beam beam = {n, m->tokens, parents, logprobs};
    const float *hidden = NULL, *input = NULL;
    m->drafted = true;
    m->n_unread = 0;
    return m->desc.host.draft_step(m->desc.host.user, level, &beam, &hidden, &input);
}

/* The first pass of a draft of n levels. */
static int specrt__meter_begin_draft(specrt__meter *m, int32_t n) {
    const specrt_host *h = &m->desc.host;
    specrt_block block;
    if (m->n_block == 0) return specrt__meter_draft(m, 0, 1);
    SPECRT__CLEAR(&block, 1);
    m->drafted = true;
    m->n_unread = 0;
    return h->draft_block(h->user, m->tokens[0], n < m->n_block ? n : m->n_block, &block);
}

/* The head's first rows where they lie: as fast as rows that were packed. */
static void specrt__meter_multiply(const specrt__meter *m, int32_t n_rows, int32_t n,
                                   double *seconds) {
    const specrt_head_desc *head = &m->desc.rows;
    int32_t best[SPECRT_TREE_MAX_TOPK * SPECRT_TREE_MAX_TOPK];
    float logprobs[SPECRT_TREE_MAX_TOPK * SPECRT_TREE_MAX_TOPK];
    specrt_segment rows;
    specrt_shortlist list;
    SPECRT__CLEAR(&rows, 1);
    SPECRT__CLEAR(&list, 1);
    rows.rows = head->rows;
    rows.row_stride =
        head->row_stride ? head->row_stride : specrt_row_bytes(head->dtype, head->n_cols);
    rows.ids = m->ids;
    rows.bias = head->bias;
    rows.dtype = head->dtype;
    rows.n_rows = n_rows;
    list.compute = specrt_head_compute(m->desc.head);
    list.segments = &rows;
    list.n_segments = 1;
    list.n_rows = n_rows;
    list.n_cols = head->n_cols;
    list.head = m->desc.head;
    double began = specrt__meter_now(m);
    if (specrt_shortlist_logits(&list, m->hidden, n, m->logits) == SPECRT_STATUS_OK &&
        specrt_shortlist_topk(&list, m->logits, n, n, best, logprobs) == SPECRT_STATUS_OK)
        *seconds = specrt__meter_now(m) - began;
}

/* --- passes --- */

/* One cycle, up to the target's pass, with a draft of so many levels; a plain one has none. */
static int specrt__meter_begin_cycle(specrt__meter *m, int32_t n_levels) {
    return n_levels > 0 && !m->drafted ? specrt__meter_begin_draft(m, n_levels) : 0;
}

/* Cycles like the one to be timed, as in decoding: the first takes up to twice as long, since it finds
 * neither weights in caches nor a graph of its shape. A large model's weights fit no cache. */
static int specrt__meter_warm(specrt__meter *m, int32_t n, int32_t n_levels) {
    const double began = specrt__meter_now(m);
    int code = 0;
    for (int i = 0; i < SPECRT__METER_LIKE && code == 0; i++) {
        if (i > 0 && specrt__meter_now(m) - began > SPECRT__METER_SMALL) break;
        code = specrt__meter_begin_cycle(m, n_levels);
        if (code == 0) code = specrt__meter_verify(m, n, 1);
    }
    return code;
}

static int specrt__meter_time_target(specrt__meter *m, int32_t n, double *seconds) {
    int code = specrt__meter_make_room(m, n + SPECRT__METER_LIKE);
    if (code == 0) code = specrt__meter_warm(m, n, n - 1);
    if (code == 0) code = specrt__meter_begin_cycle(m, n - 1);
    double began = specrt__meter_now(m);
    if (code == 0) code = specrt__meter_verify(m, n, 1);
    seconds[0] = specrt__meter_now(m) - began;
    return code;
}

/* The first pass of a draft of n_levels, in front of which the drafter has read all but n_unread tokens. */
static int specrt__meter_time_first(specrt__meter *m, int32_t n_levels, int32_t n_unread,
                                    double *seconds) {
    const int32_t most = m->desc.tree.num_draft_tokens;
    int code = specrt__meter_warm(m, 1, n_levels);
    while (code == 0 && m->n_unread < n_unread) {
        int32_t left = n_unread - m->n_unread, now = left < most ? left : most;
        code = specrt__meter_verify(m, now, now);
    }
    double began = specrt__meter_now(m);
    if (code == 0) code = specrt__meter_begin_draft(m, n_levels);
    *seconds = specrt__meter_now(m) - began;
    return code;
}

/* Of blocks, what is longer than a whole one is read. */
static int specrt__meter_time_draft(specrt__meter *m, int32_t n, double *seconds) {
    int32_t n_levels = n < m->n_block ? n : m->n_block;
    int code = specrt__meter_make_room(m, 2 * (n + SPECRT__METER_LIKE));
    if (code != 0) return code;
    if (m->n_block == 0) return specrt__meter_time_first(m, 1, n - 1, seconds);
    return specrt__meter_time_first(m, n_levels, 1 + n - n_levels, seconds);
}

/* A product after the passes of a cycle. */
static int specrt__meter_time_rows(specrt__meter *m, int32_t n_rows, int32_t n, double *seconds) {
    int code = specrt__meter_verify(m, 1, 1);
    if (code == 0) code = specrt__meter_begin_draft(m, n);
    if (code == 0) specrt__meter_multiply(m, n_rows, n, seconds);
    return code;
}

/* Of the next position's own list, then of all positions of a block. */
static int specrt__meter_time_blocks(specrt__meter *m, int32_t n_rows, double *seconds) {
    int code = 0;
    specrt__meter_multiply(m, n_rows, 1, &seconds[1]);
    for (int32_t w = 1; w < SPECRT_COSTS_WIDTHS && code == 0; w++)
        code = specrt__meter_time_rows(m, n_rows, specrt_costs_width(w), &seconds[1 + w]);
    return code;
}

/* The first product finds its rows where the target's pass left them, which may be nowhere near; the next
 * ones where the product before did. */
static int specrt__meter_time_head(specrt__meter *m, int32_t n_rows, double *seconds) {
    double unused;
    int code = specrt__meter_make_room(m, SPECRT_TREE_MAX_TOPK);
    specrt__meter_multiply(m, n_rows, 1, &unused); /* of the cycle before */
    if (code == 0) code = specrt__meter_time_rows(m, n_rows, 1, &seconds[0]);
    if (m->n_block > 0) return code == 0 ? specrt__meter_time_blocks(m, n_rows, seconds) : code;
    for (int32_t w = 0; w < SPECRT_COSTS_WIDTHS && code == 0; w++) {
        int32_t n = specrt_costs_width(w);
        if (n > m->desc.tree.topk || w + 1 >= m->desc.tree.num_steps) break;
        code = specrt__meter_draft(m, w + 1, n);
        if (code == 0) specrt__meter_multiply(m, n_rows, n, &seconds[1 + w]);
    }
    return code;
}

static int specrt__meter_time_prompt(specrt__meter *m, int32_t n, double *seconds) {
    double at[4] = {specrt__meter_now(m), 0, 0, 0};
    int code = specrt__meter_read(m, n, 0);
    at[1] = specrt__meter_now(m);
    if (code == 0) code = specrt__meter_begin_draft(m, 1);
    at[2] = specrt__meter_now(m);
    if (code == 0) code = specrt__meter_read(m, n, 1);
    at[3] = specrt__meter_now(m);
    for (int i = 0; i < 3; i++) seconds[i] = at[i + 1] - at[i];
    m->n_past = 0;
    return code;
}

static int specrt__meter_pass(void *user, specrt_pass pass, int32_t n, double *seconds) {
    specrt__meter *m = (specrt__meter *)user;
    if (pass == SPECRT_PASS_TARGET) return specrt__meter_time_target(m, n, seconds);
    if (pass == SPECRT_PASS_DRAFT) return specrt__meter_time_draft(m, n, seconds);
    if (pass == SPECRT_PASS_HEAD) return specrt__meter_time_head(m, n, seconds);
    return specrt__meter_time_prompt(m, n, seconds);
}

/* --- opening --- */

static specrt_status specrt__meter_check(const specrt_meter_desc *d, specrt_error *err) {
    const specrt_host *h = &d->host;
    const char *missing = !h->target_prefill                  ? "host.target_prefill"
                          : !h->draft_step && !h->draft_block ? "host.draft_step"
                          : !h->target_verify                 ? "host.target_verify"
                          : !h->commit                        ? "host.commit"
                          : !d->reset                         ? "reset"
                                                              : NULL;
    if (missing)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "meter: %s: expected a function, found NULL", missing);
    if (d->n_logits < 1 || d->tree.num_draft_tokens < 1 || d->n_before < 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "meter: expected n_logits and tree.num_draft_tokens of 1 or more, "
                                "n_before of 0 or more, found %d, %d, %d",
                                (int)d->n_logits, (int)d->tree.num_draft_tokens, (int)d->n_before);
    if (d->n_block >= 0 && d->n_block <= SPECRT_TREE_MAX_STEPS) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "meter: n_block: expected 0 to %d positions, found %d",
                            SPECRT_TREE_MAX_STEPS, (int)d->n_block);
}

static bool specrt__meter_fill(specrt__meter *m) {
    const specrt_head_desc *head = &m->desc.rows;
    int32_t n = m->desc.n_before > SPECRT__METER_PROMPT ? m->desc.n_before : SPECRT__METER_PROMPT;
    m->tokens = (int32_t *)malloc((size_t)n * sizeof *m->tokens);
    for (int32_t i = 0; m->tokens && i < n; i++)
        m->tokens[i] = (int32_t)((i * 977LL + 11) % m->desc.n_logits);
    if (!m->desc.head) return m->tokens != NULL;
    size_t rows = (size_t)head->n_rows, n_hidden = SPECRT_TREE_MAX_TOPK * (size_t)head->n_cols;
    m->ids = (int32_t *)malloc(rows * sizeof *m->ids);
    m->hidden = (float *)malloc(n_hidden * sizeof *m->hidden);
    m->logits = (float *)malloc(SPECRT_TREE_MAX_TOPK * rows * sizeof *m->logits);
    if (!m->tokens || !m->ids || !m->hidden || !m->logits) return false;
    for (size_t i = 0; i < rows; i++) m->ids[i] = head->ids ? head->ids[i] : (int32_t)i;
    for (size_t i = 0; i < n_hidden; i++) m->hidden[i] = (float)(i * 2654435761u % 2001) / 1000 - 1;
    return true;
}

static int32_t specrt__meter_least(int64_t a, int64_t b) {
    return (int32_t)(a < b ? a : b);
}

SPECRT_API specrt_status specrt_meter_open(const specrt_meter_desc *desc, specrt_meter *out,
                                           specrt_error *err) {
    SPECRT__NEED(desc);
    SPECRT__NEED(out);
    SPECRT__CLEAR(out, 1);
    SPECRT__TRY(specrt__meter_check(desc, err));
    specrt__meter *m = (specrt__meter *)calloc(1, sizeof *m);
    out->user = m;
    if (m) m->desc = *desc;
    if (m && m->desc.n_before == 0) m->desc.n_before = SPECRT__METER_BEFORE;
    if (m && desc->host.draft_block)
        m->n_block = desc->n_block > 0 ? desc->n_block : desc->tree.num_steps;
    if (!m || !specrt__meter_fill(m)) {
        specrt_meter_close(out);
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                "meter: expected memory for a product of %lld rows, found none",
                                (long long)desc->rows.n_rows);
    }
    int64_t room = desc->host.n_context > 0 ? desc->host.n_context / 2 : INT32_MAX;
    if (room < 1) room = 1;
    out->pass = specrt__meter_pass;
    out->most[SPECRT_PASS_TARGET] = specrt__meter_least(desc->tree.num_draft_tokens, room);
    out->most[SPECRT_PASS_DRAFT] = m->n_block > 0
                                       ? -specrt__meter_least(m->n_block, (room + 1) / 2)
                                       : specrt__meter_least(SPECRT__METER_DRAFT, (room + 1) / 2);
    out->most[SPECRT_PASS_HEAD] =
        desc->head ? specrt__meter_least(desc->rows.n_rows, INT32_MAX) : 0;
    out->most[SPECRT_PASS_PROMPT] = specrt__meter_least(SPECRT__METER_PROMPT, room);
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_meter_close(specrt_meter *meter) {
    specrt__meter *m = meter ? (specrt__meter *)meter->user : NULL;
    if (!m) return;
    m->desc.reset(m->desc.reset_user);
    free(m->tokens), free(m->ids), free(m->hidden), free(m->logits);
    free(m);
    SPECRT__CLEAR(meter, 1);
}
