/* token_map_write.c : the table of formats, and writing each of them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/io.h"
#include "base/order.h"
#include "base/out_folder.h"
#include "formats/npy.h"
#include "formats/pt.h"
#include "formats/safetensors.h"
#include "model/head_cut.h"
#include "model/token_map.h"
#include "model/vocab_groups.h"

/* One export under way. */
typedef struct job {
    const int32_t *ids;     /* [n] in the order the format wants */
    const uint64_t *counts; /* [n] of the map's order; NULL: none */
    int32_t n, n_vocab;
    const uint8_t *tokenizer; /* sha256 [32]; all zero: unknown */
    const char *format, *path, *drafter;
    bool force;
    specrt_error *err;
} job;

typedef specrt_status writer(const job *j);
static writer write_sglang, write_json, write_text, write_counts, write_npy, write_eagle3, write_st,
    write_gguf, write_mtplx, write_blocks;

static const struct format {
    const char *name;
    const char *default_name; /* of the file; %d is the size */
    bool ascending;           /* readers want d2t to rise, or sort the list themselves */
    bool needs_vocab;         /* for the length of t2d */
    bool takes_drafter;
    bool in_groups; /* vocab_groups.h */
    writer *write;
} formats[] = {
    {"sglang-pt", "freq_%d.pt", false, false, false, false, write_sglang},
    {"vllm-json", "draft_token_map_%d.json", true, false, false, false, write_json},
    {"text", "draft_vocab_%d.txt", false, false, false, false, write_text},
    {"npy", "vocab_mapping_%d", true, true, false, false, write_npy},
    {"speculators", "vocab_mapping_%d", true, true, false, false, write_npy},
    {"token-freq", "token_freq_%d.pt", false, false, false, false, write_counts},
    {"eagle3-pt", "vocab_mapping_%d.pt", true, true, false, false, write_eagle3},
    {"safetensors", "d2t_%d.safetensors", true, true, true, false, write_st},
    {"gguf", "drafter_%d.gguf", false, false, true, false, write_gguf},
    {"mtplx", "draft_vocab_%d.json", false, false, false, false, write_mtplx},
    {"exllamav3", "hot_blocks_%d.txt", true, false, false, true, write_blocks},
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

const char *sl_token_map_formats(void) {
    return "sglang-pt, vllm-json, text, npy, speculators, token-freq, eagle3-pt, safetensors, "
           "gguf, "
           "mtplx, exllamav3";
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

specrt_status sl_token_map_for(const char *format, const specrt_ranks *ranks, int32_t size,
                               int32_t n_vocab, token_map *out, specrt_error *err) {
    const struct format *f = find_format(format, err);
    if (n_vocab == 0) n_vocab = ranks->header->n_vocab;
    if (!f) return SPECRT_STATUS_BAD_ARG;
    if (f->in_groups) return sl_vocab_groups(ranks, size, n_vocab, out, err);
    TRY(sl_token_map_from_ranks(ranks, size, out, err));
    out->n_vocab = n_vocab;
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
        int length =
            snprintf(text, sizeof text, "%s%" PRId32, i == 0 ? before : between, j->ids[i]);
        TRY(sl_out_write(out, text, (size_t)length, j->err));
    }
    return sl_out_write(out, after, strlen(after), j->err);
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

/* The tokenizer's digest as 64 digits. @return whether it is known */
static bool digits_of(const uint8_t sha256[32], char out[65]) {
    bool known = false;
    for (int i = 0; i < 32; i++) {
        known = known || sha256[i];
        snprintf(out + 2 * i, 3, "%02x", sha256[i]);
    }
    return known;
}

/* MTPLX reads "ids" alone; the digest is for those who check the file. */
static specrt_status write_mtplx(const job *j) {
    char digits[65], after[100] = "]}\n";
    out_file out;
    if (digits_of(j->tokenizer, digits))
        snprintf(after, sizeof after, "], \"tokenizer_sha256\": \"%s\"}\n", digits);
    TRY(sl_out_open(&out, j->path, j->force, j->err));
    return finish(&out, put_ids(j, &out, "{\"ids\": [", ", ", after), j->err);
}

static specrt_status put_blocks(const job *j, out_file *out) {
    char digits[65], line[160];
    int length = snprintf(line, sizeof line, "# blocks of %d token ids\n", VOCAB_BLOCK);
    if (digits_of(j->tokenizer, digits))
        length += snprintf(line + length, sizeof line - (size_t)length, "# tokenizer_sha256 %s\n",
                           digits);
    for (int32_t i = 0; i <= j->n; i += VOCAB_BLOCK) {
        TRY(sl_out_write(out, line, (size_t)length, j->err));
        if (i < j->n)
            length = snprintf(line, sizeof line, "%" PRId32 "\n", j->ids[i] / VOCAB_BLOCK);
    }
    return SPECRT_STATUS_OK;
}

static specrt_status write_blocks(const job *j) {
    out_file out;
    if (!sl_vocab_groups_whole(j->ids, j->n))
        return specrt_error_set(j->err, SPECRT_STATUS_BAD_ARG,
                                "format exllamav3: expected whole groups of %d ids; export them "
                                "from a bundle",
                                VOCAB_GROUP);
    TRY(sl_out_open(&out, j->path, j->force, j->err));
    return finish(&out, put_blocks(j, &out), j->err);
}

/* What speculators and others cut by count: forced ids come first however seldom they were counted. */
static specrt_status write_counts(const job *j) {
    out_file out;
    if (!j->counts)
        return specrt_error_set(j->err, SPECRT_STATUS_BAD_ARG,
                                "format token-freq: expected counts; the map has none");
    uint64_t *counts = (uint64_t *)calloc((size_t)j->n, sizeof *counts);
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
    *out = (pair){0};
    bool ok = (out->d2t = (int64_t *)calloc((size_t)j->n, sizeof(int64_t))) &&
              (out->t2d = (uint8_t *)calloc((size_t)j->n_vocab, 1));
    if (!ok) return pair_free(out), sl_error_no_memory(j->err, j->path);
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

/* The names of the two files. Without its d2t a folder is no map, so t2d comes first. */
typedef struct npy_names {
    char t2d[32], d2t[32];
} npy_names;

/* Those of speculators have their size in their names. */
static bool is_sized(const char *format) {
    return strcmp(format, "speculators") == 0;
}

static npy_names npy_files(const char *format, int32_t size) {
    npy_names names = {"t2d.npy", "d2t.npy"};
    if (is_sized(format)) {
        snprintf(names.t2d, sizeof names.t2d, "t2d-%" PRId32 ".npy", size);
        snprintf(names.d2t, sizeof names.d2t, "d2t-%" PRId32 ".npy", size);
    }
    return names;
}

static specrt_status check_npy(const char *format, const char *path, bool *exists,
                               specrt_error *err) {
    struct stat info;
    *exists = stat(path, &info) == 0;
    if (strlen(path) > 4000)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "%.100s...: expected a shorter path",
                                path);
    if (*exists && !S_ISDIR(info.st_mode))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: is a file; %s writes d2t.npy and t2d.npy into a folder", path,
                                format);
    const char *dot = strrchr(path, '.');
    if (!*exists && dot && strcmp(dot, ".npy") == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: %s writes d2t.npy and t2d.npy into a folder; expected a name "
                                "without .npy",
                                path, format);
    return SPECRT_STATUS_OK;
}

specrt_status sl_token_map_check(const char *format, const char *path, bool force,
                                 specrt_error *err) {
    const npy_names names = npy_files(format, 0);
    char inside[4096];
    bool exists;
    if (strcmp(format, "npy") != 0 && !is_sized(format)) return sl_out_check(path, force, err);
    TRY(check_npy(format, path, &exists, err));
    if (!exists) return sl_out_check(path, force, err);
    if (is_sized(format)) return SPECRT_STATUS_OK;
    snprintf(inside, sizeof inside, "%s/%s", path, names.d2t);
    TRY(sl_out_check(inside, force, err));
    snprintf(inside, sizeof inside, "%s/%s", path, names.t2d);
    return sl_out_check(inside, force, err);
}

static specrt_status write_two(const job *j, const pair *p, out_folder *folder) {
    out_file *out;
    TRY(sl_out_folder_next(folder, &out, j->err));
    TRY(sl_npy_write('b', 1, p->t2d, j->n_vocab, out, j->err));
    TRY(sl_out_folder_next(folder, &out, j->err));
    return sl_npy_write('i', 8, p->d2t, j->n, out, j->err);
}

static specrt_status write_npy(const job *j) {
    const npy_names files = npy_files(j->format, j->n);
    const char *const names[] = {files.t2d, files.d2t};
    out_folder folder;
    bool exists;
    pair p;
    TRY(check_npy(j->format, j->path, &exists, j->err));
    TRY(pair_make(j, &p));
    specrt_status status =
        sl_out_folder_open(&folder, j->path, names, 2, 2, true, j->force, j->err);
    if (status == SPECRT_STATUS_OK)
        status = sl_out_folder_finish(&folder, write_two(j, &p, &folder), j->err);
    pair_free(&p);
    return status;
}

void sl_token_map_remove(const char *format, const char *path, int32_t n) {
    const npy_names names = npy_files(format, n);
    char inside[4096];
    unlink(path);
    snprintf(inside, sizeof inside, "%s/%s", path, names.d2t);
    unlink(inside);
    snprintf(inside, sizeof inside, "%s/%s", path, names.t2d);
    unlink(inside);
    if (strcmp(format, "npy") == 0 || is_sized(format)) rmdir(path);
}

/* ---- weights ---------------------------------------------------------------------------------- */

/* Tensors in the order safetensors itself writes: wider types first. */
static specrt_status write_st(const job *j) {
    static const char *const metadata[] = {"format", "pt"};
    pair p;
    st_tensor tensors[3], head = {0};
    out_file out;
    int n = 0;
    if (j->drafter) TRY(sl_head_cut_rows(j->drafter, j->ids, j->n, &head, j->err));
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

static specrt_status write_gguf(const job *j) {
    out_file out;
    if (!j->drafter)
        return specrt_error_set(
            j->err, SPECRT_STATUS_BAD_ARG,
            "format gguf: expected the drafter to rewrite (--drafter FILE.gguf)");
    TRY(sl_out_open(&out, j->path, j->force, j->err));
    return finish(&out, sl_head_cut_gguf(j->drafter, NULL, j->ids, j->n, &out, j->err), j->err);
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
    int32_t *sorted = (int32_t *)calloc((size_t)map->n, sizeof *sorted);
    if (!sorted) return sl_error_no_memory(err, path);
    memcpy(sorted, map->ids, (size_t)map->n * sizeof *sorted);
    qsort(sorted, (size_t)map->n, sizeof *sorted, sl_order_i32);
    specrt_status status = check_ids(map, sorted, err);
    const job j = {.ids = f->ascending ? sorted : map->ids,
                   .counts = map->counts,
                   .n = map->n,
                   .n_vocab = map->n_vocab,
                   .tokenizer = map->tokenizer_sha256,
                   .format = format,
                   .path = path,
                   .drafter = drafter,
                   .force = force,
                   .err = err};
    if (status == SPECRT_STATUS_OK) status = f->write(&j);
    free(sorted);
    return status;
}
