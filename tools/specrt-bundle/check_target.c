/* check_target.c : what the target says, and what it asks of a list. */
#include "check.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/order.h"
#include "base/text.h"

static const char *const LIST =
    "take a list that has them, as vocabtrim-calibrate's; a trained head needs training for it";

/* ---- opening ------------------------------------------------------------------------------- */

static specrt_status add_end(check_target *t, int32_t id, specrt_error *err) {
    for (size_t i = 0; i < t->ends.n; i++)
        if (t->ends.ids[i] == id) return SPECRT_STATUS_OK;
    int32_t *end = (int32_t *)sl_more(&t->ends.ids, t->ends.n, sizeof *end);
    if (!end) return sl_error_no_memory(err, "terminators");
    *end = id;
    t->ends.n++;
    return SPECRT_STATUS_OK;
}

/* eos_token_id is a number or a list. */
static specrt_status add_ends_of(check_target *t, json_object *config, specrt_error *err) {
    json_object *ends = NULL;
    json_object_object_get_ex(config, "eos_token_id", &ends);
    bool list = json_object_is_type(ends, json_type_array);
    size_t n =
        list ? json_object_array_length(ends) : (size_t)json_object_is_type(ends, json_type_int);
    for (size_t i = 0; i < n && i < SPECRT_MAX_TERMINATORS; i++) {
        json_object *id = list ? json_object_array_get_idx(ends, i) : ends;
        if (json_object_is_type(id, json_type_int)) TRY(add_end(t, json_object_get_int(id), err));
    }
    return SPECRT_STATUS_OK;
}

/* A key of the whole, else of the part that reads text; borrowed, NULL: none. */
static json_object *value_of(json_object *config, const char *key) {
    json_object *value = NULL, *text;
    if (!json_object_object_get_ex(config, key, &value) &&
        json_object_object_get_ex(config, "text_config", &text))
        json_object_object_get_ex(text, key, &value);
    return value;
}

static int64_t number(json_object *config, const char *key) {
    json_object *value = value_of(config, key);
    return json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : 0;
}

/* As Qwen, and as DeepSeek and GLM name their number. */
static int64_t count_mtp(json_object *config) {
    int64_t n = number(config, "mtp_num_hidden_layers");
    return n ? n : number(config, "num_nextn_predict_layers");
}

static specrt_status open_folder(check_target *t, const char *folder, specrt_error *err) {
    static const char *const names[] = {"config.json", "generation_config.json"};
    char path[4096];
    struct stat info;
    for (int i = 0; i < 2; i++) {
        json_object *config;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (i > 0 && stat(path, &info) != 0) continue;
        TRY(sl_checkpoint_read_json(path, &config, err));
        if (i == 0) t->n_vocab = number(config, "vocab_size");
        if (i == 0) t->width = number(config, "hidden_size");
        if (i == 0) t->n_layers = number(config, "num_hidden_layers");
        if (i == 0) t->n_mtp = count_mtp(config);
        if (i == 0) t->tied = json_object_get_boolean(value_of(config, "tie_word_embeddings"));
        specrt_status status = add_ends_of(t, config, err);
        json_object_put(config);
        TRY(status);
    }
    return SPECRT_STATUS_OK;
}

/* Layers of a GGUF but the MTP layers of its end; 0: not said. */
static int64_t count_layers(const model *m, const mtp_tail *tail) {
    gguf_string arch = {"", 0};
    char key[96];
    int64_t n = 0;
    if (!m->g || !sl_gguf_get_string(m->g, "general.architecture", &arch)) return 0;
    snprintf(key, sizeof key, "%.*s.block_count", (int)(arch.n > 40 ? 40 : arch.n), arch.s);
    return sl_gguf_get_int(m->g, key, &n) && n > tail->n_layers ? n - tail->n_layers : 0;
}

static specrt_status open_file(check_target *t, const char *path, specrt_error *err) {
    model m;
    specrt_head_desc head;
    TRY(sl_model_open(path, &m, err));
    mtp_tail tail = {0};
    specrt_status status = sl_model_head(&m, NULL, &head, NULL, err);
    if (status == SPECRT_STATUS_OK) status = sl_mtp_tail(&m, &tail, err);
    t->n_mtp = tail.n_layers;
    t->n_layers = count_layers(&m, &tail);
    t->tied = tail.tied;
    t->n_vocab = head.n_rows;
    t->width = head.n_cols;
    sl_model_close(&m);
    return status;
}

specrt_status exam_open_target(exam *e, specrt_error *err) {
    check_target *t = &e->t;
    const char *path = e->q->target;
    struct stat info;
    int32_t n = 0;
    if (!path) return SPECRT_STATUS_OK;
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    TRY(folder ? open_folder(t, path, err) : open_file(t, path, err));
    TRY(sl_tokenizer_of_model_if_known(path, &t->tok, err));
    const int32_t *ends = t->tok ? sl_tokenizer_terminators(t->tok, &n) : NULL;
    for (int32_t i = 0; i < n; i++) TRY(add_end(t, ends[i], err));
    return SPECRT_STATUS_OK;
}

void exam_close_target(exam *e) {
    sl_tokenizer_close(e->t.tok);
    free(e->t.ends.ids);
}

/* ---- its tokens ------------------------------------------------------------------------------- */

specrt_status exam_tokenizer(exam *e, specrt_error *err) {
    tokenizer *own;
    uint8_t ours[32], theirs[32];
    TRY(sl_tokenizer_of_model_if_known(e->q->drafter, &own, err));
    if (own && e->t.tok) {
        sl_tokenizer_fingerprint(own, ours);
        sl_tokenizer_fingerprint(e->t.tok, theirs);
        if (memcmp(ours, theirs, 32) != 0)
            exam_find(e, "tokenizer", NULL, "take the drafter of this target",
                      "its tokenizer, %s, is another than the target's, %s",
                      sl_text_name(sl_tokenizer_name(own)),
                      sl_text_name(sl_tokenizer_name(e->t.tok)));
    }
    sl_tokenizer_close(own);
    return SPECRT_STATUS_OK;
}

static specrt_status sort_map(exam *e, specrt_error *err) {
    size_t n = (size_t)e->map.n;
    if (n == 0) return SPECRT_STATUS_OK;
    e->sorted = (int32_t *)malloc(n * sizeof *e->sorted);
    if (!e->sorted) return sl_error_no_memory(err, e->q->drafter);
    memcpy(e->sorted, e->map.ids, n * sizeof *e->sorted);
    qsort(e->sorted, n, sizeof *e->sorted, sl_order_i32);
    return SPECRT_STATUS_OK;
}

/* How many of ids [n] the head has no row for, and the first of them. */
static int32_t count_missing(const exam *e, const int32_t *ids, int32_t n, int32_t *first) {
    int32_t missing = 0;
    for (int32_t i = n - 1; e->map.n > 0 && i >= 0; i--) {
        if (bsearch(&ids[i], e->sorted, (size_t)e->map.n, sizeof *ids, sl_order_i32)) continue;
        missing++;
        *first = ids[i];
    }
    return missing;
}

static void check_ends(exam *e) {
    int32_t first = 0, n = count_missing(e, e->t.ends.ids, (int32_t)e->t.ends.n, &first);
    if (n > 0)
        exam_find(e, "terminators", NULL, LIST,
                  "%" PRId32 " of the target's %zu terminators have no row (%" PRId32
                  "): the end of a text is never drafted",
                  n, e->t.ends.n, first);
}

static specrt_status check_bytes(exam *e, specrt_error *err) {
    int32_t *ids, n, first = 0;
    TRY(sl_tokenizer_byte_tokens(e->t.tok, &ids, &n, err));
    int32_t missing = count_missing(e, ids, n, &first);
    free(ids);
    if (missing > 0)
        exam_find(e, "bytes", NULL, "vocabtrim-calibrate --keep bytes, and train for that list",
                  "%" PRId32 " of %" PRId32 " tokens of one byte have no row (%" PRId32
                  "): what is spelt by bytes is not drafted",
                  missing, n, first);
    return SPECRT_STATUS_OK;
}

/* What opens and closes thinking, by the words that published tokenizers have for it. */
static bool is_thinking(const tokenizer *tok, int32_t id) {
    static const char *const words[] = {"think", "thought", "reason", "channel"};
    char text[64] = "";
    size_t n;
    const uint8_t *bytes = sl_tokenizer_bytes(tok, id, &n);
    if (sl_tokenizer_type(tok, id) != TOKEN_SPECIAL || n >= sizeof text) return false;
    for (size_t i = 0; i < n; i++) text[i] = (char)tolower(bytes[i]);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(text, words[i])) return true;
    return false;
}

static void check_thinking(exam *e) {
    int32_t n_tags = 0, n = 0, first = 0, id = e->t.tok ? sl_tokenizer_n_vocab(e->t.tok) : 0;
    size_t length = 0;
    while (id-- > 0) {
        if (!is_thinking(e->t.tok, id)) continue;
        n_tags++;
        n += count_missing(e, &id, 1, &first);
    }
    if (n == 0) return;
    char text[64]; /* is_thinking() takes shorter ones alone */
    const uint8_t *bytes = sl_tokenizer_bytes(e->t.tok, first, &length);
    snprintf(text, sizeof text, "%.*s", (int)length, (const char *)bytes);
    exam_find(e, "thinking", NULL, LIST,
              "%" PRId32 " of the target's %" PRId32 " thinking tags have no row (%" PRId32
              ", %s): where thinking begins or ends is never drafted",
              n, n_tags, first, sl_text_name(text));
}

/* A list that says whose ids it has. */
static void check_digest(exam *e, const uint8_t said[32], const char *what) {
    static const uint8_t unknown[32];
    uint8_t theirs[32];
    if (!e->t.tok || memcmp(said, unknown, 32) == 0) return;
    sl_tokenizer_fingerprint(e->t.tok, theirs);
    if (memcmp(said, theirs, 32) != 0)
        exam_find(e, "tokenizer", NULL, "calibrate with the target's tokenizer",
                  "%s is for another tokenizer than the target's, %s", what,
                  sl_text_name(sl_tokenizer_name(e->t.tok)));
}

specrt_status exam_tokens(exam *e, specrt_error *err) {
    TRY(sort_map(e, err));
    check_digest(e, e->map.tokenizer_sha256, "the list");
    check_ends(e);
    check_thinking(e);
    return e->q->keep ? check_bytes(e, err) : SPECRT_STATUS_OK;
}

/* ---- the bundle ------------------------------------------------------------------------------- */

/* What the bundle lists at the map's size: for blocks whole groups. */
static specrt_status expected_map(const exam *e, const specrt_ranks *ranks, int32_t n_vocab,
                                  token_map *out, specrt_error *err) {
    bool groups = e->map.kind && strcmp(e->map.kind, "list of blocks") == 0;
    return sl_token_map_for(groups ? "exllamav3" : "text", ranks, e->map.n, n_vocab, out, err);
}

static void compare_maps(exam *e, const token_map *expected) {
    int32_t first = 0, n = count_missing(e, expected->ids, expected->n, &first);
    if (n > 0 || expected->n != e->map.n)
        exam_find(e, "mapping", NULL,
                  "export the list from this bundle; a trained head needs the one that it was "
                  "trained with",
                  "%" PRId32 " of its %" PRId32 " ids are others than the bundle's of that size "
                  "(%" PRId32 " is missing)",
                  n, e->map.n, first);
}

static specrt_status compare_bundle(exam *e, const specrt_bundle *bundle, specrt_error *err) {
    const specrt_ident *ident = specrt_bundle_ident(bundle);
    int32_t rows = ident && ident->head_rows ? ident->head_rows : (int32_t)e->t.n_vocab;
    specrt_ranks ranks;
    specrt_error why;
    token_map expected;
    TRY(specrt_bundle_ranks(bundle, &ranks, err));
    if (ident) check_digest(e, ident->tokenizer_sha256, "the bundle");
    if (e->map.n == 0) return SPECRT_STATUS_OK;
    specrt_status status = expected_map(e, &ranks, rows, &expected, &why);
    if (status == SPECRT_STATUS_BAD_ARG) {
        exam_find(e, "mapping", NULL, "export a list from this bundle", "%s", why.msg);
        return SPECRT_STATUS_OK;
    }
    if (status != SPECRT_STATUS_OK) return specrt_error_set(err, status, "%s", why.msg);
    compare_maps(e, &expected);
    sl_token_map_free(&expected);
    return SPECRT_STATUS_OK;
}

specrt_status exam_bundle(exam *e, specrt_error *err) {
    specrt_bundle *bundle;
    if (!e->q->bundle) return SPECRT_STATUS_OK;
    TRY(specrt_bundle_open(e->q->bundle, NULL, &bundle, err));
    specrt_status status = compare_bundle(e, bundle, err);
    specrt_bundle_close(bundle);
    return status;
}
