/* specrt_llama_head.c : the rows of a drafter's head, where they lie in its GGUF. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "gguf.h"
#include "specrt_llama_impl.h"

static specrt_status map_file(const char *path, specrt_llama_head *out, specrt_error *err) {
    struct stat st;
    int fd = open(path, O_RDONLY);
    void *map = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0)
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd >= 0) close(fd);
    if (map == MAP_FAILED)
        return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot be opened", path);
    out->map = map;
    out->n_map = (size_t)st.st_size;
    return SPECRT_STATUS_OK;
}

static bool is_split(const struct gguf_context *gguf) {
    int64_t key = gguf_find_key(gguf, "split.count");
    return key >= 0 && gguf_get_kv_type(gguf, key) == GGUF_TYPE_UINT16 &&
           gguf_get_val_u16(gguf, key) > 1;
}

static const char *architecture(const struct gguf_context *gguf) {
    int64_t key = gguf_find_key(gguf, "general.architecture");
    return key >= 0 && gguf_get_kv_type(gguf, key) == GGUF_TYPE_STRING ? gguf_get_val_str(gguf, key)
                                                                       : "";
}

/* Gemma 4's drafter: a file of MTP layers alone, with a projection from what the head multiplies to the
 * target's states. */
static bool is_assistant(const struct gguf_context *gguf) {
    return strcmp(architecture(gguf), "gemma4-assistant") == 0;
}

static bool is_block(const struct gguf_context *gguf) {
    return strcmp(architecture(gguf), "dflash") == 0;
}

/* The key "<architecture>.<key>" of this type; -1: there is none. */
static int64_t find_key(const struct gguf_context *gguf, const char *arch, const char *key,
                        enum gguf_type type) {
    char name[128];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    int64_t id = gguf_find_key(gguf, name);
    return id >= 0 && gguf_get_kv_type(gguf, id) == type ? id : -1;
}

/* 0: there is no such number. */
static uint32_t whole_key(const struct gguf_context *gguf, const char *arch, const char *key) {
    int64_t id = find_key(gguf, arch, key, GGUF_TYPE_UINT32);
    return id >= 0 ? gguf_get_val_u32(gguf, id) : 0;
}

static float real_key(const struct gguf_context *gguf, const char *arch, const char *key) {
    int64_t id = find_key(gguf, arch, key, GGUF_TYPE_FLOAT32);
    return id >= 0 ? gguf_get_val_f32(gguf, id) : 0;
}

/* What llama.cpp's graphs of this architecture make of products: files of Granite and MiniCPM say what
 * logits are divided by, and Gemma 2 and 3n are capped at 30 where they say nothing. That it is so is for
 * the check at the start to find. */
static void read_logits(const struct gguf_context *gguf, specrt_head_desc *out) {
    const char *arch = architecture(gguf);
    if (is_assistant(gguf) || is_block(gguf))
        return; /* its graph ends in the product, whatever the file says */
    bool divides = strncmp(arch, "granite", 7) == 0 || strcmp(arch, "minicpm") == 0;
    bool caps = strcmp(arch, "gemma2") == 0 || strcmp(arch, "gemma3n") == 0;
    float scale = real_key(gguf, arch, "logit_scale");
    out->logit_scale = divides && scale != 0 ? 1 / scale : scale;
    out->softcap = real_key(gguf, arch, "final_logit_softcapping");
    if (caps && out->softcap == 0) out->softcap = 30;
}

/* Of an EAGLE-3 head or a block drafter: the layers of the target whose inputs it reads. */
static void read_layers(const struct gguf_context *gguf, specrt_llama_head *out) {
    int64_t key = find_key(gguf, architecture(gguf), "target_layers", GGUF_TYPE_ARRAY);
    enum gguf_type type = key < 0 ? GGUF_TYPE_COUNT : gguf_get_arr_type(gguf, key);
    if (type != GGUF_TYPE_INT32 && type != GGUF_TYPE_UINT32) return;
    size_t n = gguf_get_arr_n(gguf, key), kept = n < SPECRT_LLAMA_TAPS ? n : SPECRT_LLAMA_TAPS;
    out->n_target_layers = n < INT32_MAX ? (int32_t)n : INT32_MAX;
    memcpy(out->target_layers, gguf_get_arr_data(gguf, key), kept * sizeof *out->target_layers);
}

/* MTP layers of the file's tail, counted by its key where their tensors are in it: llama.cpp numbers them
 * after the trunk's layers. */
static int32_t count_mtp(const struct gguf_context *gguf) {
    uint32_t n = whole_key(gguf, architecture(gguf), "nextn_predict_layers");
    uint32_t n_blocks = whole_key(gguf, architecture(gguf), "block_count");
    char name[64];
    if (is_assistant(gguf)) return (int32_t)n;
    snprintf(name, sizeof name, "blk.%u.nextn.eh_proj.weight", (unsigned)(n_blocks - 1));
    return n > 0 && n <= n_blocks && gguf_find_tensor(gguf, name) >= 0 ? (int32_t)n : 0;
}

/* Of an MTP layer its own head, else the model's; where that is one with the embedding, the embedding. */
static int64_t find_head(const struct gguf_context *gguf, int32_t n_mtp, char name[64]) {
    uint32_t n_blocks = whole_key(gguf, architecture(gguf), "block_count");
    snprintf(name, 64, "blk.%u.nextn.shared_head_head.weight", n_blocks - (uint32_t)n_mtp);
    int64_t id = n_mtp > 0 ? gguf_find_tensor(gguf, name) : -1;
    if (id < 0) id = gguf_find_tensor(gguf, strcpy(name, "output.weight"));
    if (id < 0) id = gguf_find_tensor(gguf, strcpy(name, "token_embd.weight"));
    return id;
}

/* Which tokens the rows are of, where the file says so: llama.cpp's d2t holds their ids. */
static specrt_status read_ids(const char *path, const struct gguf_context *gguf,
                              struct ggml_context *meta, specrt_llama_head *out,
                              specrt_error *err) {
    int64_t id = gguf_find_tensor(gguf, "d2t"), n = out->desc.n_rows;
    if (id < 0) return SPECRT_STATUS_OK;
    const struct ggml_tensor *t = ggml_get_tensor(meta, "d2t");
    size_t begin = gguf_get_data_offset(gguf) + gguf_get_tensor_offset(gguf, id);
    if (t->type != GGML_TYPE_I64 || ggml_nelements(t) != n || begin > out->n_map ||
        (size_t)n > (out->n_map - begin) / sizeof(int64_t))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: d2t: expected an id of 64 bits for each of %lld rows", path,
                                (long long)n);
    int32_t *ids = out->ids = (int32_t *)malloc((size_t)n * sizeof *ids);
    if (!ids) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: no memory for d2t", path);
    for (int64_t i = 0; i < n; i++) {
        int64_t token;
        memcpy(&token, (const char *)out->map + begin + (size_t)i * sizeof token, sizeof token);
        if (token < 0 || token >= SPECRT_MAX_VOCAB)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: d2t: row %lld: expected an id below %d, found %lld", path,
                                    (long long)i, SPECRT_MAX_VOCAB, (long long)token);
        ids[i] = (int32_t)token;
    }
    out->desc.ids = ids;
    return SPECRT_STATUS_OK;
}

/* Where a tensor's rows lie in the mapping, by the file's own table. */
static specrt_status map_rows(const char *path, const struct gguf_context *gguf,
                              struct ggml_context *meta, const char *name,
                              const specrt_llama_head *file, specrt_head_desc *out,
                              specrt_error *err) {
    const struct ggml_tensor *t = ggml_get_tensor(meta, name);
    int64_t id = gguf_find_tensor(gguf, name);
    if (id < 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: expected a tensor %s", path,
                                name);
    specrt_dtype dtype = (specrt_dtype)t->type; /* specrt's numbers are ggml's */
    size_t row_bytes = specrt_row_bytes(dtype, t->ne[0]);
    if (row_bytes == 0)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: %s: type %s is not supported; requantise this tensor, as to "
                                "q8_0",
                                path, name, ggml_type_name(t->type));
    size_t begin = gguf_get_data_offset(gguf) + gguf_get_tensor_offset(gguf, id);
    if (begin > file->n_map || (size_t)t->ne[1] > (file->n_map - begin) / row_bytes)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: %s: ends beyond the file", path,
                                name);
    *out = (specrt_head_desc){.rows = (const char *)file->map + begin,
                              .dtype = dtype,
                              .n_rows = t->ne[1],
                              .n_cols = t->ne[0]};
    return SPECRT_STATUS_OK;
}

/* ---- block drafters ------------------------------------------------------------------------------- */

static specrt_status refuse_block(const char *path, const struct gguf_context *gguf,
                                  specrt_error *err) {
    if (gguf_find_tensor(gguf, "selector_hidden.weight") >= 0)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: selector_hidden.weight: expected DFlash or DSpark, found a "
                                "selector (DFlash 2)",
                                path);
    if (gguf_find_tensor(gguf, "markov_w2.scale") >= 0)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: markov_w2.scale: a Markov head with a scale is not supported; "
                                "requantise it, as to q8_0",
                                path);
    return SPECRT_STATUS_OK;
}

static specrt_status read_markov(const char *path, const struct gguf_context *gguf,
                                 struct ggml_context *meta, specrt_llama_head *out,
                                 specrt_error *err) {
    if (gguf_find_tensor(gguf, "markov_w1.weight") < 0) return SPECRT_STATUS_OK;
    specrt_markov_desc *markov = (specrt_markov_desc *)calloc(1, sizeof *markov);
    if (!markov)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: no memory for a head", path);
    out->desc.markov = markov;
    TRY(map_rows(path, gguf, meta, "markov_w1.weight", out, &markov->from, err));
    TRY(map_rows(path, gguf, meta, "markov_w2.weight", out, &markov->to, err));
    if (markov->from.n_cols == markov->to.n_cols && markov->to.n_cols <= SPECRT_LLAMA_MAX_RANK)
        return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: markov_w2.weight: expected markov_w1's %lld columns, at most %d, "
                            "found %lld",
                            path, (long long)markov->from.n_cols, SPECRT_LLAMA_MAX_RANK,
                            (long long)markov->to.n_cols);
}

/* Its width is llama.cpp's to check. */
static specrt_status read_confidence(const char *path, const struct gguf_context *gguf,
                                     struct ggml_context *meta, specrt_llama_head *out,
                                     specrt_error *err) {
    specrt_head_desc proj, bias;
    if (gguf_find_tensor(gguf, "conf_proj.weight") < 0) return SPECRT_STATUS_OK;
    TRY(map_rows(path, gguf, meta, "conf_proj.weight", out, &proj, err));
    out->confidence = (float *)malloc((size_t)proj.n_cols * sizeof(float));
    if (!out->confidence)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: no memory for a head", path);
    specrt_row_decode(proj.dtype, proj.rows, proj.n_cols, out->confidence);
    if (gguf_find_tensor(gguf, "conf_proj.bias") < 0) return SPECRT_STATUS_OK;
    TRY(map_rows(path, gguf, meta, "conf_proj.bias", out, &bias, err));
    specrt_row_decode(bias.dtype, bias.rows, 1, &out->confidence_bias);
    return SPECRT_STATUS_OK;
}

static specrt_status read_block(const char *path, const struct gguf_context *gguf,
                                struct ggml_context *meta, specrt_llama_head *out,
                                specrt_error *err) {
    TRY(refuse_block(path, gguf, err));
    TRY(read_markov(path, gguf, meta, out, err));
    return read_confidence(path, gguf, meta, out, err);
}

/* ---- files ---------------------------------------------------------------------------------------- */

/* n_mtp : MTP layers that draft */
static specrt_status find_rows(const char *path, const struct gguf_context *gguf,
                               struct ggml_context *meta, int32_t n_mtp, specrt_llama_head *out,
                               specrt_error *err) {
    if (is_split(gguf))
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: split.count: expected one file, found a part; join them with "
                                "llama-gguf-split --merge",
                                path);
    if (gguf_find_tensor(gguf, "output.bias") >= 0)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: output.bias: a drafter's head with a bias is not supported",
                                path);
    char name[64];
    int64_t id = find_head(gguf, n_mtp, name);
    if (id < 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected a tensor output.weight or token_embd.weight", path);
    return map_rows(path, gguf, meta, name, out, &out->desc, err);
}

static specrt_status read_drafter(const char *path, const struct gguf_context *gguf,
                                  struct ggml_context *meta, specrt_llama_head *out,
                                  specrt_error *err) {
    char name[64];
    out->n_mtp = count_mtp(gguf);
    if (!is_block(gguf) || find_head(gguf, 0, name) >= 0)
        TRY(find_rows(path, gguf, meta, out->n_mtp, out, err));
    if (is_assistant(gguf))
        TRY(map_rows(path, gguf, meta, "nextn.post_projection.weight", out, &out->projection, err));
    read_logits(gguf, &out->desc);
    read_layers(gguf, out);
    if (is_block(gguf)) TRY(read_block(path, gguf, meta, out, err));
    return read_ids(path, gguf, meta, out, err);
}

static specrt_status read_target(const char *path, const struct gguf_context *gguf,
                                 struct ggml_context *meta, specrt_llama_head *out,
                                 specrt_error *err) {
    return find_rows(path, gguf, meta, 0, out, err);
}

typedef specrt_status read_function(const char *path, const struct gguf_context *gguf,
                                    struct ggml_context *meta, specrt_llama_head *out,
                                    specrt_error *err);

static specrt_status open_file(const char *path, read_function *read, specrt_llama_head *out,
                               specrt_error *err) {
    struct ggml_context *meta = NULL;
    memset(out, 0, sizeof *out);
    TRY(map_file(path, out, err));
    struct gguf_init_params how = {.no_alloc = true, .ctx = &meta};
    struct gguf_context *gguf = gguf_init_from_file(path, how);
    specrt_status status =
        gguf ? read(path, gguf, meta, out, err)
             : specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: not a GGUF file", path);
    gguf_free(gguf);
    ggml_free(meta);
    if (status != SPECRT_STATUS_OK) specrt_llama_head_close(out);
    return status;
}

specrt_status specrt_llama_head_open(const char *path, specrt_llama_head *out, specrt_error *err) {
    return open_file(path, read_drafter, out, err);
}

specrt_status specrt_llama_head_share(specrt_llama_head *head, const char *target,
                                      specrt_error *err) {
    specrt_llama_head file;
    if (head->desc.rows)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "head: expected a drafter without one, found %lld rows",
                                (long long)head->desc.n_rows);
    TRY(open_file(target, read_target, &file, err));
    file.desc.markov = head->desc.markov;
    head->desc = file.desc;
    head->map_of_target = file.map;
    head->n_map_of_target = file.n_map;
    return SPECRT_STATUS_OK;
}

specrt_status specrt_llama_head_number(specrt_llama_head *head, int32_t n_vocab,
                                       specrt_error *err) {
    int32_t n = (int32_t)head->desc.n_rows;
    if (head->desc.ids || n >= n_vocab) return SPECRT_STATUS_OK;
    head->ids = (int32_t *)malloc((size_t)n * sizeof *head->ids);
    if (!head->ids)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for %d ids", (int)n);
    for (int32_t i = 0; i < n; i++) head->ids[i] = i;
    head->desc.ids = head->ids;
    return SPECRT_STATUS_OK;
}

void specrt_llama_head_close(specrt_llama_head *head) {
    if (head->map) munmap(head->map, head->n_map);
    if (head->map_of_target) munmap(head->map_of_target, head->n_map_of_target);
    free((void *)(uintptr_t)head->desc.markov);
    free(head->confidence);
    free(head->ids);
    memset(head, 0, sizeof *head);
}
