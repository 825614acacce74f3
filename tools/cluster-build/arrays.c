/* arrays.c : training examples from the arrays of another program; see examples.h. Everything is checked
 * before a row is taken, but for the numbers themselves. */
#include "specrt_tools.h"
#include "examples.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/error.h"
#include "base/io.h"
#include "formats/npy.h"
#include "formats/safetensors.h"

enum { HIDDEN, TOKENS, TOP_IDS, TOP_PROBS, LOGITS, LEVELS, DOCUMENTS, N_ARRAYS };
enum { BEST = 10, MOST_BEST = 256, ROWS_OF_A_DOCUMENT = 64 };

static const struct field {
    const char *name;
    int n_dims;
    bool is_real;
} fields[N_ARRAYS] = {[HIDDEN] = {"hidden", 2, true},       [TOKENS] = {"tokens", 1, false},
                      [TOP_IDS] = {"top_ids", 2, false},    [TOP_PROBS] = {"top_probs", 2, true},
                      [LOGITS] = {"logits", 2, true},       [LEVELS] = {"levels", 1, false},
                      [DOCUMENTS] = {"documents", 1, false}};

typedef struct array {
    npy_array type;
    specrt_dtype dtype;    /* of reals */
    char dtype_name[16];   /* as its file has it */
    const uint8_t *values; /* NULL: the array is not there */
    file_view file;        /* of a .npy */
} array;

typedef struct array_set {
    const char *path;
    const examples_model *model;
    st *s; /* NULL: a folder */
    array arrays[N_ARRAYS];
    int64_t n;        /* rows */
    int64_t n_before; /* examples that were there */
    float *x;         /* [widest row] decoded */
} array_set;

/* --- files --- */

static specrt_status open_npy(array_set *s, int field, specrt_error *err) {
    array *a = &s->arrays[field];
    struct stat info;
    size_t bytes = strlen(s->path) + 32;
    char *path = malloc(bytes);
    if (!path) return sl_error_no_memory(err, s->path);
    snprintf(path, bytes, "%s/%s.npy", s->path, fields[field].name);
    specrt_status status = SPECRT_STATUS_OK;
    if (stat(path, &info) == 0) {
        status = sl_file_map(path, &a->file, err);
        if (!status)
            status = sl_npy_values(a->file.bytes, a->file.n, path, &a->type, &a->values, err);
    }
    free(path);
    a->dtype = a->type.item_bytes == 2 ? SPECRT_DTYPE_F16 : SPECRT_DTYPE_F32;
    snprintf(a->dtype_name, sizeof a->dtype_name, "%c%d", a->type.kind ? a->type.kind : '?',
             a->type.item_bytes);
    return status;
}

static void find_tensor(array_set *s, int field) {
    array *a = &s->arrays[field];
    const st_tensor *t = sl_st_find(s->s, fields[field].name);
    if (!t) return;
    *a = (array){.values = t->data};
    a->type.n_dims = t->n_dims;
    for (int32_t i = 0; i < t->n_dims && i < NPY_MAX_DIMS; i++) a->type.shape[i] = t->shape[i];
    snprintf(a->dtype_name, sizeof a->dtype_name, "%s", t->dtype);
    if (strcmp(t->dtype, "I32") == 0 || strcmp(t->dtype, "I64") == 0) {
        a->type.kind = 'i';
        a->type.item_bytes = t->dtype[1] == '3' ? 4 : 8;
    } else if (sl_st_dtype(t->dtype, &a->dtype)) {
        a->type.kind = 'f';
        a->type.item_bytes = a->dtype == SPECRT_DTYPE_F32 ? 4 : 2;
    }
}

static specrt_status open_arrays(array_set *s, specrt_error *err) {
    struct stat info;
    size_t n = strlen(s->path);
    bool is_folder = stat(s->path, &info) == 0 && S_ISDIR(info.st_mode);
    if (n > 4 && strcmp(s->path + n - 4, ".npy") == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected the folder of hidden.npy and the others, or a "
                                "safetensors file, found one array",
                                s->path);
    if (!is_folder) TRY(sl_st_open(s->path, &s->s, err));
    for (int i = 0; i < N_ARRAYS; i++)
        if (is_folder)
            TRY(open_npy(s, i, err));
        else
            find_tensor(s, i);
    return SPECRT_STATUS_OK;
}

static void close_arrays(array_set *s) {
    for (int i = 0; i < N_ARRAYS; i++) sl_file_unmap(&s->arrays[i].file);
    sl_st_close(s->s);
    free(s->x);
}

/* --- shapes --- */

static bool has(const array_set *s, int field) {
    return s->arrays[field].values != NULL;
}

static int64_t n_cols(const array_set *s, int field) {
    return s->arrays[field].type.shape[1];
}

static specrt_status check_dtype(const array_set *s, int field, specrt_error *err) {
    const array *a = &s->arrays[field];
    int bytes = a->type.item_bytes;
    bool good = fields[field].is_real ? a->type.kind == 'f' && (bytes == 2 || bytes == 4)
                                      : a->type.kind == 'i' && (bytes == 4 || bytes == 8);
    if (good) return SPECRT_STATUS_OK;
    return specrt_error_set(
        err, SPECRT_STATUS_BAD_INPUT, "%s: %s: expected %s, found %s", s->path, fields[field].name,
        fields[field].is_real ? "f16, bf16 or f32" : "i32 or i64", a->dtype_name);
}

/* One of the arrays that are there: type, dimensions, and as many rows as hidden has. */
static specrt_status check_array(const array_set *s, int field, specrt_error *err) {
    const npy_array *type = &s->arrays[field].type;
    TRY(check_dtype(s, field, err));
    if (type->n_dims != fields[field].n_dims || (type->fortran && type->n_dims > 1))
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_INPUT, "%s: %s: expected %d dimension%s in C order, found %d%s",
            s->path, fields[field].name, fields[field].n_dims, fields[field].n_dims > 1 ? "s" : "",
            type->n_dims, type->fortran ? " in Fortran order" : "");
    if (type->shape[0] == s->arrays[HIDDEN].type.shape[0]) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: %s: expected the %" PRId64 " rows of hidden, found %" PRId64,
                            s->path, fields[field].name, s->arrays[HIDDEN].type.shape[0],
                            type->shape[0]);
}

static specrt_status check_missing(const array_set *s, specrt_error *err) {
    const char *missing = NULL;
    if (has(s, TOP_IDS) == has(s, LOGITS)) missing = has(s, LOGITS) ? NULL : "top_ids or logits";
    if (s->model->n_embedding_rows > 0 && !has(s, TOKENS)) missing = "tokens";
    if (!has(s, HIDDEN)) missing = "hidden";
    if (missing)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: %s: missing; expected an array of that name", s->path,
                                missing);
    if ((has(s, TOP_IDS) && has(s, LOGITS)) || (has(s, TOP_PROBS) && !has(s, TOP_IDS)))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected logits alone, or top_ids with or without top_probs, "
                                "found logits beside them",
                                s->path);
    return SPECRT_STATUS_OK;
}

static specrt_status expect_cols(const array_set *s, int field, int64_t least, int64_t most,
                                 const char *of, specrt_error *err) {
    int64_t n = n_cols(s, field);
    if (n >= least && n <= most) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: %s: expected %" PRId64 "%s columns, %s, found %" PRId64, s->path,
                            fields[field].name, least, most > least ? " or more" : "", of, n);
}

/* Columns, and how many best tokens an example has. */
static specrt_status check_widths(const array_set *s, example_set *out, specrt_error *err) {
    const examples_model *m = s->model;
    TRY(expect_cols(s, HIDDEN, m->n_state, m->n_state, "the head's", err));
    if (has(s, LOGITS)) {
        if (!out->n_top) out->n_top = BEST < m->n_least ? BEST : m->n_least;
        if (out->n_top > SPECRT_LOGITS_MAX_K)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: logits: expected at most %d best tokens in the examples "
                                    "before, found %" PRId32,
                                    s->path, SPECRT_LOGITS_MAX_K, out->n_top);
        return expect_cols(s, LOGITS, m->n_least, m->n_most, "one for each token", err);
    }
    if (out->n_top)
        TRY(expect_cols(s, TOP_IDS, out->n_top, out->n_top, "as the examples before", err));
    else
        TRY(expect_cols(s, TOP_IDS, 1, MOST_BEST, "the target's best, 256 at most", err));
    out->n_top = (int32_t)n_cols(s, TOP_IDS);
    if (!has(s, TOP_PROBS)) return SPECRT_STATUS_OK;
    return expect_cols(s, TOP_PROBS, out->n_top, out->n_top, "those of top_ids", err);
}

static specrt_status check_arrays(array_set *s, example_set *out, specrt_error *err) {
    TRY(check_missing(s, err));
    for (int i = 0; i < N_ARRAYS; i++)
        if (has(s, i)) TRY(check_array(s, i, err));
    TRY(check_widths(s, out, err));
    s->n = s->arrays[HIDDEN].type.shape[0];
    int64_t widest = has(s, LOGITS) ? n_cols(s, LOGITS) : out->n_top;
    if (widest < s->model->n_state) widest = s->model->n_state;
    s->x = malloc((size_t)widest * sizeof *s->x);
    return s->x ? SPECRT_STATUS_OK : sl_error_no_memory(err, s->path);
}

/* --- rows --- */

static specrt_status bad_row(const array_set *s, int field, int64_t row, const char *expected,
                             specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: %s: row %" PRId64 ": expected %s",
                            s->path, fields[field].name, row, expected);
}

/* A row of reals into s->x, each from least to most. */
static specrt_status read_reals(array_set *s, int field, int64_t row, float least, float most,
                                specrt_error *err) {
    const array *a = &s->arrays[field];
    int64_t n = n_cols(s, field);
    char expected[96];
    specrt_row_decode(a->dtype, a->values + row * n * a->type.item_bytes, n, s->x);
    for (int64_t i = 0; i < n; i++)
        if (!(s->x[i] >= least && s->x[i] <= most)) {
            snprintf(expected, sizeof expected, "numbers from %g to %g, found %g", (double)least,
                     (double)most, (double)s->x[i]);
            return bad_row(s, field, row, expected, err);
        }
    return SPECRT_STATUS_OK;
}

/* Entry i of an array of integers, from least to most. */
static specrt_status read_int(const array_set *s, int field, int64_t i, int64_t least, int64_t most,
                              int64_t *out, specrt_error *err) {
    const array *a = &s->arrays[field];
    char expected[96];
    *out = sl_npy_int(&a->type, a->values, i);
    if (*out >= least && *out <= most) return SPECRT_STATUS_OK;
    snprintf(expected, sizeof expected, "%" PRId64 " to %" PRId64 ", found %" PRId64, least, most,
             *out);
    return bad_row(s, field, fields[field].n_dims > 1 ? i / n_cols(s, field) : i, expected, err);
}

/* The best of a row of logits with their probabilities. */
static specrt_status take_logits(array_set *s, int64_t row, int32_t n, int32_t *top, float *mass,
                                 specrt_error *err) {
    int32_t n_vocab = (int32_t)n_cols(s, LOGITS);
    double sum = 0;
    TRY(read_reals(s, LOGITS, row, -INFINITY, 3e38f, err));
    int32_t n_found = specrt_logits_topk(s->x, n_vocab, n, top);
    for (int32_t i = 0; i < n_vocab && n_found > 0; i++)
        sum += exp((double)s->x[i] - (double)s->x[top[0]]);
    for (int32_t j = 0; j < n; j++) {
        if (j >= n_found) top[j] = -1;
        mass[j] = j < n_found ? (float)(exp((double)s->x[top[j]] - (double)s->x[top[0]]) / sum) : 0;
    }
    return SPECRT_STATUS_OK;
}

static specrt_status take_best(array_set *s, int64_t row, int32_t n, int32_t *top, float *mass,
                               specrt_error *err) {
    int64_t id;
    for (int32_t j = 0; j < n; j++) {
        TRY(read_int(s, TOP_IDS, row * n + j, -1, s->model->n_most - 1, &id, err));
        top[j] = (int32_t)id;
        mass[j] = j == 0;
    }
    if (!has(s, TOP_PROBS)) return SPECRT_STATUS_OK;
    TRY(read_reals(s, TOP_PROBS, row, 0, 1.001f, err));
    memcpy(mass, s->x, (size_t)n * sizeof *mass);
    return SPECRT_STATUS_OK;
}

/* What says where an example comes from. */
static specrt_status take_place(const array_set *s, int64_t row, example_set *out, int64_t at,
                                specrt_error *err) {
    int64_t token = 0, level = 0, prompt[2] = {s->n_before, row / ROWS_OF_A_DOCUMENT};
    if (s->model->n_embedding_rows > 0)
        TRY(read_int(s, TOKENS, row, 0, s->model->n_embedding_rows - 1, &token, err));
    if (has(s, LEVELS)) TRY(read_int(s, LEVELS, row, 0, SPECRT_TREE_MAX_STEPS - 1, &level, err));
    if (has(s, DOCUMENTS)) TRY(read_int(s, DOCUMENTS, row, INT64_MIN, INT64_MAX, &prompt[1], err));
    out->tokens[at] = (int32_t)token;
    out->levels[at] = (int32_t)level;
    out->documents[at] = specrt_hash64(prompt, sizeof prompt, 0);
    return SPECRT_STATUS_OK;
}

static specrt_status take_row(array_set *s, int64_t row, example_set *out, specrt_error *err) {
    int64_t at;
    int32_t n = out->n_top;
    TRY(examples_add(out, &at, err));
    TRY(take_place(s, row, out, at, err));
    TRY(read_reals(s, HIDDEN, row, -65504, 65504, err)); /* the range of f16 */
    specrt_to_f16(s->x, out->n_state, out->states + at * out->n_state);
    int32_t *top = out->top + at * n;
    float *mass = out->mass + at * n;
    TRY(has(s, LOGITS) ? take_logits(s, row, n, top, mass, err)
                       : take_best(s, row, n, top, mass, err));
    for (int32_t j = 0; j < n; j++)
        if (top[j] >= s->model->n_ids) top[j] = -1;
    return SPECRT_STATUS_OK;
}

specrt_status examples_read_arrays(const char *path, const examples_model *of, example_set *out,
                                   specrt_error *err) {
    array_set s = {.path = path, .model = of, .n_before = out->n};
    out->n_state = of->n_state;
    specrt_status status = open_arrays(&s, err);
    if (!status) status = check_arrays(&s, out, err);
    for (int64_t row = 0; row < s.n && !status; row++) status = take_row(&s, row, out, err);
    close_arrays(&s);
    return status;
}
