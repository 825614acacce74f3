/* head_cut.c : see head_cut.h. */
#include "model/head_cut.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "formats/gguf.h"
#include "model/checkpoint.h"
#include "model/head_check.h"
#include "model/head_rows.h"
#include "model/token_map.h"
#include "model/token_pick.h"

/* A cut under way. */
typedef struct job {
    const int32_t *ids; /* [n] the token of each row */
    int32_t n;
    const char *drafter; /* whose rows */
    const gguf *target;  /* whose rows they are instead; NULL */
    specrt_error *err;
} job;

/* ---- rows ------------------------------------------------------------------------------------- */

/* The map's rows of a matrix, byte for byte, owned.
 *   row_of : which row holds an id, [n_ids], -1: none; NULL: row id
 *   n_rows : of the matrix */
static specrt_status gather(const job *j, const uint8_t *rows, size_t stride, size_t row_bytes,
                            int64_t n_rows, const int32_t *row_of, int64_t n_ids, uint8_t **out) {
    if (row_bytes == 0 || (size_t)j->n > SIZE_MAX / row_bytes)
        return sl_error_no_memory(j->err, j->drafter);
    *out = (uint8_t *)malloc((size_t)j->n * row_bytes);
    if (!*out) return sl_error_no_memory(j->err, j->drafter);
    for (int32_t i = 0; i < j->n; i++) {
        int64_t row = !row_of ? j->ids[i] : j->ids[i] < n_ids ? row_of[j->ids[i]] : -1;
        if (row < 0 || row >= n_rows) {
            free(*out);
            *out = NULL;
            return specrt_error_set(
                j->err, SPECRT_STATUS_BAD_INPUT,
                "%s: has no row for token %" PRId32 "; its head has %" PRId64 " rows%s", j->drafter,
                j->ids[i], n_rows, row_of ? " chosen by its own d2t" : "");
        }
        memcpy(*out + (size_t)i * row_bytes, rows + (size_t)row * stride, row_bytes);
    }
    return SPECRT_STATUS_OK;
}

static const char *st_name(specrt_dtype dtype) {
    switch (dtype) {
    case SPECRT_DTYPE_F32: return "F32";
    case SPECRT_DTYPE_F16: return "F16";
    case SPECRT_DTYPE_BF16: return "BF16";
    default: return NULL;
    }
}

/* A quantised row in f16, to nearest; `row` has room for its f32. */
static specrt_status to_half(const job *j, const specrt_head_desc *head, const uint8_t *from,
                             int32_t id, float *row, uint16_t *to) {
    if (specrt_row_decode(head->dtype, from, head->n_cols, row) != SPECRT_STATUS_OK)
        return specrt_error_set(j->err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: its head is %s; expected f32, f16, bf16 or a quantised type",
                                j->drafter, specrt_dtype_name(head->dtype));
    for (int64_t c = 0; c < head->n_cols; c++)
        if (!(fabsf(row[c]) <= HEAD_MOST))
            return specrt_error_set(j->err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: a weight of token %" PRId32 " is %g; expected at most %g, "
                                    "since %s rows are written in f16",
                                    j->drafter, id, (double)row[c], (double)HEAD_MOST,
                                    specrt_dtype_name(head->dtype));
    specrt_to_f16(row, head->n_cols, to);
    return SPECRT_STATUS_OK;
}

/* The gathered rows [j->n, n_cols] of a quantised head in f16; *rows, owned, is replaced. */
static specrt_status to_halves(const job *j, specrt_head_desc *head, uint8_t **rows) {
    size_t n_cols = (size_t)head->n_cols, row_bytes = specrt_row_bytes(head->dtype, head->n_cols);
    float *row = NULL;
    uint16_t *halves = NULL;
    bool ok = (row = (float *)calloc(n_cols, sizeof *row)) &&
              (halves = (uint16_t *)calloc((size_t)j->n * n_cols, sizeof *halves));
    specrt_status status = ok ? SPECRT_STATUS_OK : sl_error_no_memory(j->err, j->drafter);
    for (int32_t i = 0; i < j->n && status == SPECRT_STATUS_OK; i++)
        status = to_half(j, head, *rows + (size_t)i * row_bytes, j->ids[i], row,
                         halves + (size_t)i * n_cols);
    free(row);
    free(*rows);
    *rows = (uint8_t *)halves;
    head->dtype = SPECRT_DTYPE_F16;
    return status;
}

/* The rows of the drafter's head as tensor lm_head.weight, as stored, quantised ones in f16; its data are
 * owned. */
static specrt_status st_head(const job *j, st_tensor *out) {
    model m;
    specrt_head_desc head;
    uint8_t *rows = NULL;
    TRY(sl_model_open(j->drafter, &m, j->err));
    specrt_status status = sl_model_head(&m, NULL, &head, NULL, j->err);
    if (status == SPECRT_STATUS_OK) {
        size_t row_bytes = specrt_row_bytes(head.dtype, head.n_cols);
        status = gather(j, (const uint8_t *)head.rows, sl_head_stride(&head), row_bytes,
                        head.n_rows, NULL, 0, &rows);
    }
    if (status == SPECRT_STATUS_OK && !st_name(head.dtype)) status = to_halves(j, &head, &rows);
    if (status == SPECRT_STATUS_OK) {
        *out = (st_tensor){.name = "lm_head.weight",
                           .n_dims = 2,
                           .shape = {j->n, head.n_cols},
                           .data = rows,
                           .bytes = (size_t)j->n * specrt_row_bytes(head.dtype, head.n_cols)};
        strcpy(out->dtype, st_name(head.dtype));
        rows = NULL;
    }
    free(rows);
    sl_model_close(&m);
    return status;
}

specrt_status sl_head_cut_rows(const char *source, const int32_t *ids, int32_t n, st_tensor *out,
                               specrt_error *err) {
    const job j = {.ids = ids, .n = n, .drafter = source, .err = err};
    return st_head(&j, out);
}

/* ---- GGUF ------------------------------------------------------------------------------------- */

/* One head to cut. */
typedef struct cut {
    const gguf_tensor *from;
    char name[64]; /* of what is written */
} cut;

/* The heads to cut: one for each MTP layer, and output.weight. */
typedef struct cuts {
    cut list[MTP_MOST_LAYERS + 1];
    int n;
} cuts;

static void add_cut(cuts *c, const gguf_tensor *from, const char *name) {
    c->list[c->n].from = from;
    snprintf(c->list[c->n++].name, sizeof c->list[0].name, "%s", name);
}

/* The heads of MTP layers. A whole model keeps output.weight, which the target scores: each layer gets a
 * cut head of its own. A sidecar's output.weight is the drafter's. */
static void find_mtp(const gguf *g, const mtp_tail *tail, cuts *out) {
    const gguf_tensor *shared = sl_gguf_find_tensor(g, "output.weight");
    if (!shared) shared = sl_gguf_find_tensor(g, "token_embd.weight");
    for (int32_t i = 0; i < tail->n_layers; i++) {
        char name[MTP_NAME];
        sl_mtp_tail_head(tail, true, i, name);
        const gguf_tensor *own = sl_gguf_find_tensor(g, name);
        if (own || (tail->is_whole && shared)) add_cut(out, own ? own : shared, name);
    }
    bool has_output = sl_gguf_find_tensor(g, "output.weight");
    if (!tail->is_whole && shared && (has_output || out->n == 0))
        add_cut(out, shared, "output.weight");
}

/* The head of a block drafter, for want of one the embedding, as llama.cpp scores, and its Markov head. */
static void find_block(const gguf *g, const gguf_tensor *output, cuts *out) {
    const gguf_tensor *markov = sl_gguf_find_tensor(g, "markov_w2.weight");
    if (!output && out->n == 0) output = sl_gguf_find_tensor(g, "token_embd.weight");
    if (output) add_cut(out, output, "output.weight");
    if (markov && out->n > 0) add_cut(out, markov, "markov_w2.weight");
}

/* A drafter without a head takes the target's rows. */
static specrt_status take_target(const job *j, const gguf *g, gguf_string arch,
                                 const mtp_tail *tail, cuts *out) {
    char key[96];
    int64_t width = 0;
    const gguf_tensor *head = sl_gguf_find_tensor(j->target, "output.weight");
    if (!head) head = sl_gguf_find_tensor(j->target, "token_embd.weight");
    if (tail->is_whole || tail->own_head || sl_gguf_find_tensor(g, "output.weight"))
        return specrt_error_set(j->err, SPECRT_STATUS_BAD_ARG,
                                "%s: has an LM head: expected no --target", j->drafter);
    snprintf(key, sizeof key, "%.*s.embedding_length", (int)(arch.n > 40 ? 40 : arch.n), arch.s);
    sl_gguf_get_int(g, key, &width);
    if (!head || sl_gguf_find_tensor(g, "d2t") || head->dims[0] != width)
        return specrt_error_set(j->err, SPECRT_STATUS_BAD_INPUT,
                                "--target: expected a head of %" PRId64
                                " columns, as %s has states, found %" PRId64 "; name its target",
                                width, j->drafter, head ? head->dims[0] : 0);
    add_cut(out, head, "output.weight");
    return SPECRT_STATUS_OK;
}

static specrt_status find_heads(const job *j, const gguf *g, cuts *out) {
    gguf_string arch = {"", 0};
    checkpoint_id id;
    const gguf_tensor *output = sl_gguf_find_tensor(g, "output.weight");
    sl_gguf_get_string(g, "general.architecture", &arch);
    *out = (cuts){0};
    TRY(sl_checkpoint_identify_gguf(g, j->drafter, &id, j->err));
    TRY(sl_checkpoint_refuse_block(&id, j->drafter, j->err));
    if (id.kind == CHECKPOINT_MODEL)
        return specrt_error_set(j->err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: architecture '%.*s' without MTP layers: llama.cpp reads d2t "
                                "of eagle3 and dflash drafters, and does not load others that are "
                                "cut (wrong shape); draft with the whole file in specrt-llama "
                                "--policy static:%" PRId32,
                                j->drafter, (int)(arch.n > 40 ? 40 : arch.n), arch.s, j->n);
    if (j->target) TRY(take_target(j, g, arch, &id.tail, out));
    if (id.kind == CHECKPOINT_BLOCK)
        find_block(g, output, out);
    else if (id.kind == CHECKPOINT_MTP && !j->target)
        find_mtp(g, &id.tail, out);
    else if (output)
        add_cut(out, output, "output.weight");
    if (out->n == 0)
        return specrt_error_set(
            j->err, SPECRT_STATUS_UNSUPPORTED,
            "%s: has no output.weight: llama.cpp would score the target's whole "
            "head; convert the drafter with its LM head, or name the target (--target)",
            j->drafter);
    return SPECRT_STATUS_OK;
}

/* A d2t or a Markov head of another length than the head would have rows that mean other tokens. */
static specrt_status check_heads(const job *j, const gguf *g, const cuts *heads) {
    const gguf_tensor *d2t = sl_gguf_find_tensor(g, "d2t");
    for (int i = 0; i < heads->n; i++) {
        const gguf_tensor *head = heads->list[i].from;
        if (head->n_dims != 2 || head->dims[1] < 1)
            return specrt_error_set(j->err, SPECRT_STATUS_BAD_INPUT, "%s: %s: expected a matrix",
                                    j->drafter, head->name);
        if (d2t && d2t->dims[0] != head->dims[1])
            return specrt_error_set(j->err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: %s: expected %" PRId64 " rows, as d2t has entries, found "
                                    "%" PRId64 "; they are not of one cut",
                                    j->drafter, head->name, d2t->dims[0], head->dims[1]);
        if (strcmp(heads->list[i].name, "markov_w2.weight") == 0 &&
            head->dims[1] != heads->list[0].from->dims[1])
            return specrt_error_set(j->err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: %s: expected %" PRId64 " rows, as the LM head has, found "
                                    "%" PRId64 "; they are not of one vocabulary",
                                    j->drafter, head->name, heads->list[0].from->dims[1],
                                    head->dims[1]);
    }
    return SPECRT_STATUS_OK;
}

/* Where the rows of ids lie in a drafter that is trimmed already: the inverse of its d2t.
 *   row_of : [n_ids] owned, -1: no row; NULL: not trimmed, ids are rows */
typedef struct trimmed {
    int32_t *row_of;
    int64_t n_ids;
} trimmed;

static specrt_status find_trimmed(const job *j, const gguf *g, trimmed *out) {
    token_map old;
    *out = (trimmed){0};
    if (!sl_gguf_find_tensor(g, "d2t")) return SPECRT_STATUS_OK;
    TRY(sl_token_map_read(j->drafter, NULL, &old, j->err));
    for (int32_t i = 0; i < old.n; i++)
        if (old.ids[i] >= out->n_ids) out->n_ids = (int64_t)old.ids[i] + 1;
    specrt_status status =
        sl_token_rows(old.ids, old.n, out->n_ids, j->drafter, &out->row_of, j->err);
    sl_token_map_free(&old);
    return status;
}

/* Add `from` cut to the map's rows under a new name. Every type packs whole rows, so rows are copied
 * as they are. */
static specrt_status cut_tensor(const job *j, const gguf_tensor *from, const char *name,
                                const trimmed *t, gguf_tensor *out) {
    int last = from->n_dims - 1; /* the dimension of rows */
    size_t row_bytes = from->dims[last] > 0 ? from->bytes / (size_t)from->dims[last] : 0;
    uint8_t *rows;
    if (strcmp(sl_gguf_type_name(from->type), "unknown") == 0)
        return specrt_error_set(j->err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: tensor %s has the unknown type %" PRIu32, j->drafter,
                                from->name, from->type);
    TRY(gather(j, from->data, row_bytes, row_bytes, from->dims[last], t->row_of, t->n_ids, &rows));
    *out = *from;
    snprintf(out->name, sizeof out->name, "%s", name);
    out->dims[last] = j->n;
    out->data = rows;
    out->bytes = row_bytes * (size_t)j->n;
    return SPECRT_STATUS_OK;
}

static specrt_status add_d2t(const job *j, gguf_tensor *out) {
    *out = (gguf_tensor){
        .name = "d2t", .n_dims = 1, .dims = {j->n, 1, 1, 1}, .type = SPECRT_DTYPE_I64};
    int64_t *d2t = (int64_t *)malloc((size_t)j->n * sizeof *d2t);
    if (!d2t) return sl_error_no_memory(j->err, j->drafter);
    for (int32_t i = 0; i < j->n; i++) d2t[i] = j->ids[i];
    out->data = (const uint8_t *)d2t;
    out->bytes = (size_t)j->n * sizeof *d2t;
    return SPECRT_STATUS_OK;
}

/* llama.cpp writes logits to the places d2t names without looking, so an id beyond the drafter's own
 * vocabulary would corrupt its memory. */
static specrt_status check_tokens(const job *j, const gguf *g) {
    const gguf_kv *tokens = sl_gguf_find(g, "tokenizer.ggml.tokens");
    for (int32_t i = 0; tokens && i < j->n; i++)
        if ((uint64_t)j->ids[i] >= tokens->count)
            return specrt_error_set(j->err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: its vocabulary has %" PRIu64 " tokens, the map names id "
                                    "%" PRId32 "; they belong to different models",
                                    j->drafter, tokens->count, j->ids[i]);
    return SPECRT_STATUS_OK;
}

/* The tensors that change: heads, bias and d2t. */
enum { MAX_EDITS = MTP_MOST_LAYERS + 3 };

static specrt_status make_cuts(const job *j, const gguf *g, const cuts *heads, const trimmed *t,
                               gguf_tensor edits[MAX_EDITS], int *n) {
    const gguf_tensor *bias = sl_gguf_find_tensor(g, "output.bias");
    bool cuts_output = false; /* the bias is that of output.weight */
    for (int i = 0; i < heads->n; i++) {
        const cut *c = &heads->list[i];
        TRY(cut_tensor(j, c->from, c->name, t, &edits[*n]));
        ++*n;
        cuts_output = cuts_output || strcmp(c->name, "output.weight") == 0;
    }
    if (cuts_output && bias && bias->n_dims == 1) {
        TRY(cut_tensor(j, bias, "output.bias", t, &edits[*n]));
        ++*n;
    }
    TRY(add_d2t(j, &edits[*n]));
    ++*n;
    return SPECRT_STATUS_OK;
}

static specrt_status make_edits(const job *j, const gguf *g, gguf_tensor edits[MAX_EDITS], int *n) {
    cuts heads;
    trimmed t;
    TRY(find_heads(j, g, &heads));
    TRY(check_heads(j, g, &heads));
    TRY(check_tokens(j, g));
    TRY(find_trimmed(j, g, &t));
    specrt_status status = make_cuts(j, g, &heads, &t, edits, n);
    free(t.row_of);
    return status;
}

specrt_status sl_head_cut_gguf(const char *drafter, const char *target, const int32_t *ids,
                               int32_t n, out_file *out, specrt_error *err) {
    gguf_tensor edits[MAX_EDITS];
    gguf *g, *t = NULL;
    int n_edits = 0;
    TRY(sl_gguf_open(drafter, &g, err));
    specrt_status status = target ? sl_gguf_open(target, &t, err) : SPECRT_STATUS_OK;
    const job j = {.ids = ids, .n = n, .drafter = drafter, .target = t, .err = err};
    if (status == SPECRT_STATUS_OK) status = make_edits(&j, g, edits, &n_edits);
    if (status == SPECRT_STATUS_OK) status = sl_gguf_rewrite(g, edits, n_edits, out, err);
    for (int i = 0; i < n_edits; i++) free((void *)(uintptr_t)edits[i].data);
    sl_gguf_close(t);
    sl_gguf_close(g);
    return status;
}
