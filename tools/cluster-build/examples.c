/* examples.c : see examples.h. */
#include "specrt_tools.h"
#include "examples.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"

enum { EXAMPLES_LEAST = 64 };

void examples_free(example_set *set) {
    free(set->tokens);
    free(set->states);
    free(set->top);
    free(set->mass);
    free(set->levels);
    free(set->documents);
    *set = (example_set){0};
}

static bool resize(void *array, int64_t n, size_t bytes) {
    void **at = array, *grown = realloc(*at, (size_t)n * bytes);
    if (grown) *at = grown;
    return grown != NULL;
}

specrt_status examples_add(example_set *set, int64_t *at, specrt_error *err) {
    int64_t n = set->capacity ? 2 * set->capacity : 1024;
    size_t top = (size_t)set->n_top;
    *at = set->n++;
    if (*at < set->capacity) return SPECRT_STATUS_OK;
    if (!resize(&set->tokens, n, sizeof *set->tokens) ||
        !resize(&set->states, n, (size_t)set->n_state * sizeof *set->states) ||
        !resize(&set->top, n, top * sizeof *set->top) ||
        !resize(&set->mass, n, top * sizeof *set->mass) ||
        !resize(&set->levels, n, sizeof *set->levels) ||
        !resize(&set->documents, n, sizeof *set->documents))
        return sl_error_no_memory_for(err, "the training examples");
    set->capacity = n;
    return SPECRT_STATUS_OK;
}

/* --- traces --- */

typedef struct trace_walk {
    specrt_trace_reader *reader;
    const specrt_trace_info *info;
    example_set *set;
    const examples_model *model;
    uint64_t document;
    uint16_t *before; /* [d_target] where the target drew the cycle's root; 0 unless fed that */
    bool draft_input;
    const char *path;
} trace_walk;

static bool all_finite(const uint16_t *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if ((x[i] & 0x7c00) == 0x7c00) return false;
    return true;
}

/* What the router reads at row i. */
static const uint16_t *state_of(const trace_walk *w, const specrt_trace_record *r, int32_t i) {
    size_t width = (size_t)w->info->d_draft;
    if (w->model->output) return r->draft_hidden + (size_t)i * width;
    if (i > 0) return r->draft_hidden + (size_t)(i - 1) * width;
    return w->before;
}

static void set_mass(const trace_walk *w, const specrt_trace_record *r, int32_t i, float *mass) {
    int32_t n = w->info->n_top;
    for (int32_t j = 0; j < n; j++) {
        float p = j == 0;
        if (r->top_logits && r->top_logsumexp)
            p = expf(r->top_logits[i * n + j] - r->top_logsumexp[i]);
        mass[j] = p <= 1 ? p : 0; /* not where it is no number */
    }
}

/* Row i of a cycle, unless the drafter made no pass there. */
static specrt_status add_row(trace_walk *w, const specrt_trace_record *r, int32_t i,
                             specrt_error *err) {
    example_set *set = w->set;
    size_t width = (size_t)w->info->d_draft, top = (size_t)w->info->n_top;
    int64_t at;
    const uint16_t *made = r->draft_hidden + (size_t)i * width, *state = state_of(w, r, i);
    if ((made[0] & 0x7c00) == 0x7c00) return SPECRT_STATUS_OK;
    if (!all_finite(state, set->n_state))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: a hidden state: expected finite numbers, found NaN or "
                                "infinity; record it again",
                                w->path);
    TRY(examples_add(set, &at, err));
    set->tokens[at] = r->tree_tokens[r->nodes[i]];
    set->levels[at] = i;
    set->documents[at] = w->document;
    memcpy(set->states + (size_t)at * width, state, width * sizeof *state);
    for (size_t j = 0; j < top; j++) {
        int32_t id = r->top_ids[(size_t)i * top + j];
        set->top[(size_t)at * top + j] = id < w->model->n_ids ? id : -1;
    }
    set_mass(w, r, i, set->mass + (size_t)at * top);
    return SPECRT_STATUS_OK;
}

static void keep_before(trace_walk *w, const uint16_t *state) {
    memcpy(w->before, state, (size_t)w->info->d_target * sizeof *w->before);
}

static specrt_status add_cycle(trace_walk *w, const specrt_trace_record *r, specrt_error *err) {
    if (!r->draft_hidden || !r->top_ids || !r->tree_tokens)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_INPUT,
            "%s: expected the drafter's hidden states, the target's best tokens "
            "and trees, found a cycle without; record with specrt-eval record",
            w->path);
    for (int32_t i = 0; i < r->n; i++) TRY(add_row(w, r, i, err));
    if (w->draft_input && r->target_hidden)
        keep_before(w, r->target_hidden + (size_t)(r->n - 1) * (size_t)w->info->d_target);
    return SPECRT_STATUS_OK;
}

/* Drafters that are not fed the target's state (EAGLE-3, other widths) tell routers nothing at level 0. */
static void begin_document(trace_walk *w, const specrt_trace_record *r) {
    w->document = specrt_hash64(r->tokens, (size_t)r->n * sizeof *r->tokens, 0);
    w->draft_input = r->prompt_hidden && w->info->d_target == w->info->d_draft;
    memset(w->before, 0, (size_t)w->info->d_target * sizeof *w->before);
    if (w->draft_input) keep_before(w, r->prompt_hidden);
}

static specrt_status walk(trace_walk *w, specrt_error *err) {
    for (;;) {
        specrt_trace_record r;
        TRY(specrt_trace_read(w->reader, &r, err));
        if (r.kind == SPECRT_TRACE_END) return SPECRT_STATUS_OK;
        if (r.kind == SPECRT_TRACE_CYCLE) {
            TRY(add_cycle(w, &r, err));
            continue;
        }
        begin_document(w, &r);
    }
}

static specrt_status check_trace(const trace_walk *w, specrt_error *err) {
    static const uint8_t unknown[32];
    specrt_error why = {SPECRT_STATUS_OK, ""};
    const uint8_t *sha256 = w->model->sha256 ? w->model->sha256 : unknown;
    specrt_status status = specrt_trace_check(w->reader, sha256, 0, w->set->n_state, &why);
    if (status)
        return specrt_error_set(err, status, "%.400s; record with this model and its drafter",
                                why.msg);
    if (w->info->n_top < 1 || (w->set->n_top && w->set->n_top != w->info->n_top))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected as many of the target's best tokens as in the other "
                                "traces, %" PRId32 ", found %" PRId32 "; record with --top",
                                w->path, w->set->n_top, w->info->n_top);
    return SPECRT_STATUS_OK;
}

specrt_status examples_read(const char *path, const examples_model *of, example_set *out,
                            specrt_error *err) {
    trace_walk w = {.set = out, .model = of, .path = path};
    int32_t n_state = out->n_state = of->n_state;
    TRY(specrt_trace_open(path, NULL, &w.reader, err));
    w.info = specrt_trace_get_info(w.reader);
    specrt_status status = check_trace(&w, err);
    if (!status) {
        int32_t most = w.info->d_target > n_state ? w.info->d_target : n_state;
        out->n_top = w.info->n_top;
        w.before = calloc((size_t)most, sizeof *w.before);
        status = w.before ? walk(&w, err) : sl_error_no_memory_for(err, "the training examples");
    }
    free(w.before);
    specrt_trace_close(w.reader);
    return status;
}

/* --- hold-out --- */

static int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The distinct places of documents in a drawn order, ascending. @return how many; *out owned; -1: no
 * memory. */
static int64_t list_documents(const example_set *set, uint64_t seed, uint64_t **out) {
    uint64_t *d = malloc((size_t)set->n * sizeof *d);
    int64_t n_distinct = 0;
    *out = d;
    if (!d) return -1;
    for (int64_t i = 0; i < set->n; i++)
        d[i] = specrt_hash64(&set->documents[i], sizeof *set->documents, seed);
    qsort(d, (size_t)set->n, sizeof *d, by_number);
    for (int64_t i = 0; i < set->n; i++)
        if (i == 0 || d[i] != d[n_distinct - 1]) d[n_distinct++] = d[i];
    return n_distinct;
}

static void swap_bytes(void *array, int64_t i, int64_t j, size_t bytes) {
    uint8_t *a = (uint8_t *)array + (size_t)i * bytes, *b = (uint8_t *)array + (size_t)j * bytes;
    for (size_t k = 0; k < bytes; k++) {
        uint8_t t = a[k];
        a[k] = b[k];
        b[k] = t;
    }
}

static void swap(example_set *set, int64_t i, int64_t j) {
    swap_bytes(set->tokens, i, j, sizeof *set->tokens);
    swap_bytes(set->states, i, j, (size_t)set->n_state * sizeof *set->states);
    swap_bytes(set->top, i, j, (size_t)set->n_top * sizeof *set->top);
    swap_bytes(set->mass, i, j, (size_t)set->n_top * sizeof *set->mass);
    swap_bytes(set->levels, i, j, sizeof *set->levels);
    swap_bytes(set->documents, i, j, sizeof *set->documents);
}

static specrt_status check_examples(const example_set *set, int64_t n_documents,
                                    specrt_error *err) {
    size_t bytes = (size_t)set->n_state * sizeof *set->states;
    int64_t i = 1;
    if (set->n < EXAMPLES_LEAST || n_documents < 2)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "training: expected %d or more drafted positions of 2 or more "
                                "prompts, found %" PRId64 " of %" PRId64
                                "; record more with specrt-eval record",
                                EXAMPLES_LEAST, set->n, n_documents);
    while (i < set->n && memcmp(set->states, set->states + i * set->n_state, bytes) == 0) i++;
    if (i < set->n) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "training: expected hidden states that differ, found all the same; "
                            "record them again");
}

specrt_status examples_split(example_set *set, double share, uint64_t seed, specrt_error *err) {
    uint64_t *documents = NULL;
    int64_t n = set->n > 0 ? list_documents(set, seed, &documents) : 0;
    if (n < 0) return sl_error_no_memory_for(err, "the training examples");
    specrt_status status = check_examples(set, n, err);
    int64_t n_out = (int64_t)ceil(share * (double)n);
    if (n_out < 1) n_out = 1;
    if (n_out > n - 1) n_out = n - 1;
    uint64_t last = status ? 0 : documents[n_out - 1];
    set->n_holdout = 0;
    for (int64_t i = 0; i < set->n && !status; i++)
        if (specrt_hash64(&set->documents[i], sizeof *set->documents, seed) <= last)
            swap(set, i, set->n_holdout++);
    free(documents);
    return status;
}

void examples_shuffle(example_set *set, uint64_t seed) {
    size_t n_top = (size_t)set->n_top;
    for (int64_t i = set->n_holdout; i < set->n; i++) {
        uint64_t draw = specrt_hash64(&i, sizeof i, seed);
        int64_t j = i + (int64_t)(draw % (uint64_t)(set->n - i));
        swap_bytes(set->top, i, j, n_top * sizeof *set->top);
        swap_bytes(set->mass, i, j, n_top * sizeof *set->mass);
    }
}
