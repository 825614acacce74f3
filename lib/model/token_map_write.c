/* sl_token_map_write.c : the table of formats, and writing each of them. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "formats/gguf.h"
#include "base/io.h"
#include "base/order.h"
#include "model/head_check.h"
#include "model/model.h"
#include "formats/npy.h"
#include "formats/pt.h"
#include "formats/safetensors.h"
#include "model/token_map.h"

/* One export under way. */
typedef struct job {
    const int32_t *ids;     /* [n] in the order the format wants */
    const uint64_t *counts; /* [n] of the map's order; NULL: none */
    int32_t n, n_vocab;
    const char *format, *path, *drafter;
    bool force;
    specrt_error *err;
} job;

typedef specrt_status writer(const job *j);
static writer write_sglang, write_json, write_text, write_counts, write_npy, write_eagle3, write_st,
    write_gguf;

static const struct format {
    const char *name;
    const char *default_name; /* of the file; %d is the size */
    bool ascending;           /* readers want d2t to rise, or sort the list themselves */
    bool needs_vocab;         /* for the length of t2d */
    bool takes_drafter;
    writer *write;
} formats[] = {
    {"sglang-pt", "freq_%d.pt", false, false, false, write_sglang},
    {"vllm-json", "draft_token_map_%d.json", true, false, false, write_json},
    {"text", "draft_vocab_%d.txt", false, false, false, write_text},
    {"npy", "vocab_mapping_%d", true, true, false, write_npy},
    {"speculators", "vocab_mapping_%d", true, true, false, write_npy},
    {"token-freq", "token_freq_%d.pt", false, false, false, write_counts},
    {"eagle3-pt", "vocab_mapping_%d.pt", true, true, false, write_eagle3},
    {"safetensors", "d2t_%d.safetensors", true, true, true, write_st},
    {"gguf", "drafter_%d.gguf", false, false, true, write_gguf},
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

const char *sl_token_map_formats(void) {
    return "sglang-pt, vllm-json, text, npy, speculators, token-freq, eagle3-pt, safetensors, gguf";
}

static const struct format *find_format(const char *name, specrt_error *err) {
    for (int i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "unknown format '%s'; expected one of %s", name,
                     sl_token_map_formats());
    return NULL;
}

specrt_status sl_token_map_default_name(const char *format, int32_t n, char *out, size_t bytes,
                                        specrt_error *err) {
    const struct format *f = find_format(format, err);
    if (!f) return SPECRT_STATUS_BAD_ARG;
    const char *number = strstr(f->default_name, "%d");
    snprintf(out, bytes, "%.*s%" PRId32 "%s", (int)(number - f->default_name), f->default_name, n,
             number + 2);
    return SPECRT_STATUS_OK;
}

/* Commit what was written, or take it back. */
static specrt_status finish(out_file *out, specrt_status status, specrt_error *err) {
    if (status == SPECRT_STATUS_OK) return sl_out_commit(out, err);
    sl_out_abort(out);
    return status;
}

/* ---- lists ------------------------------------------------------------------------------------ */

static specrt_status write_sglang(const job *j) {
    out_file out;
    TRY(sl_out_open(&out, j->path, j->force, j->err));
    return finish(&out, sl_pt_write_list(j->ids, j->n, &out, j->err), j->err);
}

static specrt_status put_ids(const job *j, out_file *out, const char *before, const char *between,
                             const char *after) {
    char text[32];
    for (int32_t i = 0; i < j->n; i++) {
        int length = snprintf(text, sizeof text, "%s%" PRId32 "%s", i == 0 ? before : between,
                              j->ids[i], i == j->n - 1 ? after : "");
        TRY(sl_out_write(out, text, (size_t)length, j->err));
    }
    return SPECRT_STATUS_OK;
}

static specrt_status write_json(const job *j) {
    out_file out;
    TRY(sl_out_open(&out, j->path, j->force, j->err));
    return finish(&out, put_ids(j, &out, "[", ", ", "]\n"), j->err);
}

static specrt_status write_text(const job *j) {
    out_file out;
    TRY(sl_out_open(&out, j->path, j->force, j->err));
    return finish(&out, put_ids(j, &out, "", "\n", "\n"), j->err);
}

/* What speculators and others cut by count: forced ids come first however seldom they were counted. */
static specrt_status write_counts(const job *j) {
    out_file out;
    if (!j->counts)
        return specrt_error_set(j->err, SPECRT_STATUS_BAD_ARG,
                                "format token-freq: expected counts; the map has none");
    uint64_t *counts = (uint64_t *)malloc((size_t)j->n * sizeof *counts);
    if (!counts) return sl_error_no_memory(j->err, j->path);
    for (int32_t i = j->n - 1; i >= 0; i--) {
        uint64_t least = i + 1 < j->n ? counts[i + 1] : 1; /* 0 reads as never seen */
        counts[i] = j->counts[i] > least ? j->counts[i] : least;
    }
    specrt_status status = sl_out_open(&out, j->path, j->force, j->err);
    if (status == SPECRT_STATUS_OK)
        status = finish(&out, sl_pt_write_counts(j->ids, counts, j->n, &out, j->err), j->err);
    free(counts);
    return status;
}

/* ---- d2t and t2d ------------------------------------------------------------------------------ */

/* The EAGLE-3 pair: offsets id - i, and a mask over the target's vocabulary. */
typedef struct pair {
    int64_t *d2t;
    uint8_t *t2d;
} pair;

static void pair_free(pair *p) {
    free(p->d2t);
    free(p->t2d);
}

static specrt_status pair_make(const job *j, pair *out) {
    *out = (pair){(int64_t *)malloc((size_t)j->n * sizeof(int64_t)),
                  (uint8_t *)calloc((size_t)j->n_vocab, 1)};
    if (!out->d2t || !out->t2d) {
        pair_free(out);
        return sl_error_no_memory(j->err, j->path);
    }
    for (int32_t i = 0; i < j->n; i++) {
        out->d2t[i] = (int64_t)j->ids[i] - i;
        out->t2d[j->ids[i]] = 1;
    }
    return SPECRT_STATUS_OK;
}

static specrt_status write_eagle3(const job *j) {
    pair p;
    out_file out;
    TRY(sl_out_open(&out, j->path, j->force, j->err));
    specrt_status status = pair_make(j, &p);
    if (status != SPECRT_STATUS_OK) return finish(&out, status, j->err);
    const pt_tensor tensors[2] = {{"d2t", 'i', 8, j->n, p.d2t}, {"t2d", 'b', 1, j->n_vocab, p.t2d}};
    status = sl_pt_write_tensors(tensors, 2, &out, j->err);
    pair_free(&p);
    return finish(&out, status, j->err);
}

/* Both files are complete before either gets its name. */
static specrt_status write_two(const job *j, const pair *p, const char *d2t, const char *t2d) {
    out_file a, b;
    TRY(sl_out_open(&a, d2t, j->force, j->err));
    specrt_status status = sl_npy_write('i', 8, p->d2t, j->n, &a, j->err);
    if (status == SPECRT_STATUS_OK) status = sl_out_open(&b, t2d, j->force, j->err);
    if (status != SPECRT_STATUS_OK) return finish(&a, status, j->err);
    status = sl_npy_write('b', 1, p->t2d, j->n_vocab, &b, j->err);
    if (status == SPECRT_STATUS_OK)
        status = sl_out_commit(&a, j->err);
    else
        sl_out_abort(&a);
    return finish(&b, status, j->err);
}

/* The two files of a folder, and whether it is there. */
typedef struct npy_folder {
    char d2t[4096], t2d[4096];
    bool exists;
} npy_folder;

/* Those of speculators have their size in their names. */
static bool is_sized(const char *format) {
    return strcmp(format, "speculators") == 0;
}

static specrt_status npy_files(const char *format, const char *path, int32_t size, npy_folder *out,
                               specrt_error *err) {
    struct stat info;
    char ending[32] = ".npy";
    out->exists = stat(path, &info) == 0;
    if ((out->exists && !S_ISDIR(info.st_mode)) || strlen(path) > sizeof out->d2t - 32)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: is a file; %s writes d2t.npy and t2d.npy into a folder", path,
                                format);
    size_t n = strlen(path);
    if (!out->exists && n > 4 && strcmp(path + n - 4, ".npy") == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: %s writes d2t.npy and t2d.npy into a folder; expected a name "
                                "without .npy",
                                path, format);
    if (is_sized(format)) snprintf(ending, sizeof ending, "-%" PRId32 ".npy", size);
    snprintf(out->d2t, sizeof out->d2t, "%s/d2t%s", path, ending);
    snprintf(out->t2d, sizeof out->t2d, "%s/t2d%s", path, ending);
    return SPECRT_STATUS_OK;
}

specrt_status sl_token_map_check(const char *format, const char *path, bool force,
                                 specrt_error *err) {
    npy_folder folder;
    if (strcmp(format, "npy") != 0 && !is_sized(format)) return sl_out_check(path, force, err);
    TRY(npy_files(format, path, 0, &folder, err));
    if (!folder.exists) return sl_out_check(path, force, err);
    if (is_sized(format)) return SPECRT_STATUS_OK;
    TRY(sl_out_check(folder.d2t, force, err));
    return sl_out_check(folder.t2d, force, err);
}

static specrt_status write_npy(const job *j) {
    npy_folder folder;
    pair p;
    TRY(npy_files(j->format, j->path, j->n, &folder, j->err));
    TRY(pair_make(j, &p));
    specrt_status status = SPECRT_STATUS_OK;
    if (!folder.exists && mkdir(j->path, 0777) != 0)
        status = specrt_error_set(j->err, SPECRT_STATUS_IO, "%s: cannot make the folder: %s",
                                  j->path, strerror(errno));
    if (status == SPECRT_STATUS_OK) status = write_two(j, &p, folder.d2t, folder.t2d);
    if (status != SPECRT_STATUS_OK && !folder.exists) rmdir(j->path);
    pair_free(&p);
    return status;
}

void sl_token_map_remove(const char *format, const char *path, int32_t n) {
    npy_folder folder;
    if (strcmp(format, "npy") != 0 && !is_sized(format)) {
        unlink(path);
    } else if (npy_files(format, path, n, &folder, NULL) == SPECRT_STATUS_OK) {
        unlink(folder.d2t);
        unlink(folder.t2d);
        rmdir(path);
    }
}

/* ---- heads ------------------------------------------------------------------------------------ */

/* The map's rows of a matrix, byte for byte, owned.
 *   row_of : which row holds an id, [n_ids], -1: none; NULL: row id
 *   n_rows : of the matrix */
static specrt_status gather(const job *j, const uint8_t *rows, size_t stride, size_t row_bytes,
                            int64_t n_rows, const int32_t *row_of, int64_t n_ids, uint8_t **out) {
    if (row_bytes == 0 || (size_t)j->n > SIZE_MAX / row_bytes)
        return sl_error_no_memory(j->err, j->path);
    *out = (uint8_t *)malloc((size_t)j->n * row_bytes);
    if (!*out) return sl_error_no_memory(j->err, j->path);
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
    float *row = (float *)malloc(n_cols * sizeof *row);
    uint16_t *halves = (uint16_t *)malloc((size_t)j->n * n_cols * sizeof *halves);
    specrt_status status = row && halves ? SPECRT_STATUS_OK : sl_error_no_memory(j->err, j->path);
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
        size_t stride = head.row_stride ? head.row_stride : row_bytes;
        status =
            gather(j, (const uint8_t *)head.rows, stride, row_bytes, head.n_rows, NULL, 0, &rows);
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

specrt_status sl_token_map_head_rows(const char *source, const int32_t *ids, int32_t n,
                                     st_tensor *out, specrt_error *err) {
    const job j = {.ids = ids, .n = n, .path = source, .drafter = source, .err = err};
    return st_head(&j, out);
}

/* Tensors in the order safetensors itself writes: wider types first. */
static specrt_status write_st(const job *j) {
    static const char *const metadata[] = {"format", "pt"};
    pair p;
    st_tensor tensors[3], head = {0};
    out_file out;
    int n = 0;
    if (j->drafter) TRY(st_head(j, &head));
    specrt_status status = pair_make(j, &p);
    if (status != SPECRT_STATUS_OK) goto done;
    tensors[n++] = (st_tensor){"d2t", "I64", 1, {j->n}, (uint8_t *)p.d2t, (size_t)j->n * 8};
    if (head.data) tensors[n++] = head;
    tensors[n++] = (st_tensor){"t2d", "BOOL", 1, {j->n_vocab}, p.t2d, (size_t)j->n_vocab};
    status = sl_out_open(&out, j->path, j->force, j->err);
    if (status == SPECRT_STATUS_OK)
        status = finish(&out, sl_st_write(tensors, n, metadata, 1, &out, j->err), j->err);
    pair_free(&p);
done:
    free((void *)(uintptr_t)head.data);
    return status;
}

/* ---- GGUF ------------------------------------------------------------------------------------- */

/* Architectures whose loader in llama.cpp reads d2t; it takes the target's head where the drafter has none of
 * its own. */
static bool reads_d2t(gguf_string arch) {
    static const char *const names[] = {"eagle3", "dflash"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == arch.n && memcmp(names[i], arch.s, arch.n) == 0) return true;
    return false;
}

enum { MAX_MTP = 8 }; /* MTP layers of a model: published ones have 1 to 3 */

/* One head to cut. */
typedef struct cut {
    const gguf_tensor *from;
    char name[64]; /* of what is written */
} cut;

/* The heads to cut: one for each MTP layer, and output.weight. */
typedef struct cuts {
    cut list[MAX_MTP + 1];
    int n;
} cuts;

static void add_cut(cuts *c, const gguf_tensor *from, const char *name) {
    c->list[c->n].from = from;
    snprintf(c->list[c->n++].name, sizeof c->list[0].name, "%s", name);
}

/* An integer of the model's own architecture, at least 0; 0: none. */
static int64_t arch_int(const gguf *g, gguf_string arch, const char *key) {
    char name[96];
    int64_t value = 0;
    snprintf(name, sizeof name, "%.*s.%s", (int)(arch.n > 40 ? 40 : arch.n), arch.s, key);
    return sl_gguf_get_int(g, name, &value) && value > 0 ? value : 0;
}

/* Whether a file has the target's first layer: a sidecar has MTP layers alone. */
static bool has_first_layer(const gguf *g) {
    int64_t n;
    const gguf_tensor *t = sl_gguf_tensors(g, &n);
    for (int64_t i = 0; i < n; i++)
        if (strncmp(t[i].name, "blk.0.", 6) == 0) return true;
    return false;
}

/* The heads of MTP layers [first, end). A whole model keeps output.weight, which the target scores: each
 * layer gets a cut head of its own. A sidecar's output.weight is the drafter's. */
static void find_mtp(const gguf *g, int64_t first, int64_t end, cuts *out) {
    const gguf_tensor *shared = sl_gguf_find_tensor(g, "output.weight");
    bool is_whole = first > 0 && has_first_layer(g);
    if (!shared) shared = sl_gguf_find_tensor(g, "token_embd.weight");
    for (int64_t layer = first; layer < end; layer++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%" PRId64 ".nextn.shared_head_head.weight", layer);
        const gguf_tensor *own = sl_gguf_find_tensor(g, name);
        if (own || (is_whole && shared)) add_cut(out, own ? own : shared, name);
    }
    bool has_output = sl_gguf_find_tensor(g, "output.weight");
    if (!is_whole && shared && (has_output || out->n == 0)) add_cut(out, shared, "output.weight");
}

static specrt_status find_heads(const job *j, const gguf *g, cuts *out) {
    gguf_string arch = {"", 0};
    const gguf_tensor *output = sl_gguf_find_tensor(g, "output.weight");
    sl_gguf_get_string(g, "general.architecture", &arch);
    int64_t n_mtp = arch_int(g, arch, "nextn_predict_layers");
    int64_t n_layers = arch_int(g, arch, "block_count");
    *out = (cuts){0};
    if (n_mtp > 0 && (n_mtp > MAX_MTP || n_mtp > n_layers))
        return specrt_error_set(j->err, SPECRT_STATUS_BAD_INPUT,
                                "%s: nextn_predict_layers: expected at most %d and at most "
                                "block_count, %" PRId64 ", found %" PRId64,
                                j->drafter, MAX_MTP, n_layers, n_mtp);
    if (n_mtp > 0)
        find_mtp(g, n_layers - n_mtp, n_layers, out);
    else if (!reads_d2t(arch))
        return specrt_error_set(j->err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: architecture '%.*s' without MTP layers: llama.cpp reads d2t "
                                "of eagle3 and dflash drafters, and does not load others that are "
                                "cut (wrong shape); draft with the whole file in specrt-llama "
                                "--policy static:%" PRId32,
                                j->drafter, (int)(arch.n > 40 ? 40 : arch.n), arch.s, j->n);
    else if (output)
        add_cut(out, output, "output.weight");
    if (out->n == 0)
        return specrt_error_set(
            j->err, SPECRT_STATUS_UNSUPPORTED,
            "%s: has no output.weight: llama.cpp would score the target's whole "
            "head; convert the drafter with its LM head",
            j->drafter);
    return SPECRT_STATUS_OK;
}

/* A d2t of another length than the head would name rows that mean other tokens. */
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
    out->row_of = (int32_t *)malloc((size_t)out->n_ids * sizeof *out->row_of);
    for (int64_t id = 0; out->row_of && id < out->n_ids; id++) out->row_of[id] = -1;
    for (int32_t i = 0; out->row_of && i < old.n; i++) out->row_of[old.ids[i]] = i;
    sl_token_map_free(&old);
    return out->row_of ? SPECRT_STATUS_OK : sl_error_no_memory(j->err, j->path);
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
    if (!d2t) return sl_error_no_memory(j->err, j->path);
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
enum { MAX_EDITS = MAX_MTP + 3 };

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

static specrt_status write_gguf(const job *j) {
    gguf_tensor edits[MAX_EDITS];
    gguf *g;
    out_file out;
    int n = 0;
    if (!j->drafter)
        return specrt_error_set(
            j->err, SPECRT_STATUS_BAD_ARG,
            "format gguf: expected the drafter to rewrite (--drafter FILE.gguf)");
    TRY(sl_gguf_open(j->drafter, &g, j->err));
    specrt_status status = make_edits(j, g, edits, &n);
    if (status == SPECRT_STATUS_OK) status = sl_out_open(&out, j->path, j->force, j->err);
    if (status == SPECRT_STATUS_OK)
        status = finish(&out, sl_gguf_rewrite(g, edits, n, &out, j->err), j->err);
    for (int i = 0; i < n; i++) free((void *)(uintptr_t)edits[i].data);
    sl_gguf_close(g);
    return status;
}

/* ---- any format ------------------------------------------------------------------------------- */

static specrt_status check_ids(const token_map *map, const int32_t *sorted, specrt_error *err) {
    int32_t n = map->n;
    if (sorted[0] < 0 || (map->n_vocab > 0 && sorted[n - 1] >= map->n_vocab))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "token map: id %" PRId32 " is out of range; expected [0, %" PRId32
                                ")",
                                sorted[0] < 0 ? sorted[0] : sorted[n - 1], map->n_vocab);
    for (int32_t i = 1; i < n; i++)
        if (sorted[i] == sorted[i - 1])
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "token map: id %" PRId32 " is listed twice", sorted[i]);
    return SPECRT_STATUS_OK;
}

specrt_status sl_token_map_write(const token_map *map, const char *format, const char *path,
                                 const char *drafter, bool force, specrt_error *err) {
    const struct format *f = find_format(format, err);
    if (!f) return SPECRT_STATUS_BAD_ARG;
    if (drafter && !f->takes_drafter)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "format %s holds no weights; a model is for gguf and safetensors",
                                format);
    if (map->n < 1 || (f->needs_vocab && map->n_vocab < 1))
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "format %s: expected at least one id and the size of the vocabulary", format);
    int32_t *sorted = (int32_t *)malloc((size_t)map->n * sizeof *sorted);
    if (!sorted) return sl_error_no_memory(err, path);
    memcpy(sorted, map->ids, (size_t)map->n * sizeof *sorted);
    qsort(sorted, (size_t)map->n, sizeof *sorted, sl_order_i32);
    specrt_status status = check_ids(map, sorted, err);
    const job j = {.ids = f->ascending ? sorted : map->ids,
                   .counts = map->counts,
                   .n = map->n,
                   .n_vocab = map->n_vocab,
                   .format = format,
                   .path = path,
                   .drafter = drafter,
                   .force = force,
                   .err = err};
    if (status == SPECRT_STATUS_OK) status = f->write(&j);
    free(sorted);
    return status;
}
