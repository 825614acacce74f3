/* ordered.c : see ordered.h. Hot tokens stand first in each cluster, then the others ascending; a slot that
 * is free repeats the cluster's first token, which engines then score twice. */
#include "ordered.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "drafter_folder.h"

typedef struct ordering {
    const ordered_request *r;
    checkpoint c;
    int64_t n_vocab, width, n_clusters, topk, n_slots;
    specrt_clusters clusters; /* header NULL: a list alone */
    specrt_ranks ranks;
    uint8_t *hot;        /* [n_vocab] whether a token is in every cluster */
    int64_t *tokens;     /* [n_vocab] */
    uint16_t *centroids; /* bf16 [n_clusters, width] */
    st_tensor *tensors;
} ordering;

/* ---- sizes ------------------------------------------------------------------------------------ */

static specrt_status read_head(ordering *o, specrt_error *err) {
    specrt_head_desc head;
    const char *name;
    int64_t n = sl_checkpoint_number(&o->c, "vocab_size");
    TRY(sl_model_head(&o->c.m, NULL, &head, &name, err));
    o->n_vocab = head.n_rows;
    o->width = head.n_cols;
    if (head.dtype != SPECRT_DTYPE_BF16 && head.dtype != SPECRT_DTYPE_F16 &&
        head.dtype != SPECRT_DTYPE_F32)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: tensor \"%s\": expected BF16, whose rows engines gather, "
                                "found %s",
                                o->c.m.path, name, specrt_dtype_name(head.dtype));
    if (o->c.d2t || n != o->n_vocab)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%sconfig.json: vocab_size: expected %" PRId64
                                ", the rows of \"%s\""
                                ", found %" PRId64 "; give the drafter with its whole head",
                                o->c.folder, o->n_vocab, name, n);
    return SPECRT_STATUS_OK;
}

static specrt_status check_counts(ordering *o, specrt_error *err) {
    const ordered_request *r = o->r;
    const specrt_clusters_header *h = o->clusters.header;
    o->n_clusters = h ? h->n_clusters : r->n_clusters;
    if (h && r->n_clusters && r->n_clusters != h->n_clusters)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--clusters: expected %d, those of the bundle, found %" PRId64
                                "; build others: cluster-build --ordered --clusters %" PRId64,
                                (int)h->n_clusters, r->n_clusters, r->n_clusters);
    if (o->n_clusters < 1 || o->n_vocab % o->n_clusters)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--clusters: expected a divisor of the drafter's %" PRId64
                                " tokens, found %" PRId64,
                                o->n_vocab, o->n_clusters);
    o->n_slots = o->n_vocab / o->n_clusters;
    o->topk = r->topk ? r->topk : h ? o->clusters.schedule[0] : 1;
    if (o->topk > o->n_clusters)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--topk: expected at most the %" PRId64 " clusters, found %" PRId64,
                                o->n_clusters, o->topk);
    return SPECRT_STATUS_OK;
}

static specrt_status check_section(const ordering *o, specrt_error *err) {
    const specrt_clusters_header *h = o->clusters.header;
    int64_t most = 0;
    for (int32_t c = 0; c < h->n_clusters; c++)
        if (o->clusters.offsets[c + 1] - o->clusters.offsets[c] > most)
            most = o->clusters.offsets[c + 1] - o->clusters.offsets[c];
    if (h->n_rows == o->n_vocab && h->n_cols == o->width && most <= o->n_slots)
        return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "section 'centroid': expected clusters of at most %" PRId64
                            " rows of a head [%" PRId64 ", %" PRId64 "], found %" PRId64
                            " of [%d, %d]; build it: cluster-build --ordered --model %s",
                            o->n_slots, o->n_vocab, o->width, most, (int)h->n_rows, (int)h->n_cols,
                            o->r->drafter);
}

/* --hot of all slots is a list; else the bundle's clusters say what is hot. */
static specrt_status choose_source(ordering *o, specrt_error *err) {
    const ordered_request *r = o->r;
    bool is_list = r->hot && r->n_clusters && o->n_vocab / r->n_clusters == r->hot && r->topk <= 1;
    if (!is_list) TRY(specrt_bundle_clusters(r->bundle, "centroid", &o->clusters, err));
    TRY(check_counts(o, err));
    if (!is_list) return check_section(o, err);
    TRY(specrt_bundle_ranks(r->bundle, &o->ranks, err));
    if (o->ranks.header->n_valid >= o->n_slots && o->ranks.header->n_vocab <= o->n_vocab)
        return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "--hot: expected at most %d tokens, those the bundle ranks, of a "
                            "drafter with %d or more, found %" PRId64 " of %" PRId64,
                            (int)o->ranks.header->n_valid, (int)o->ranks.header->n_vocab, r->hot,
                            o->n_vocab);
}

/* ---- tensors ---------------------------------------------------------------------------------- */

/* Engines take the best K by products alone. */
static specrt_status make_centroids(ordering *o, specrt_error *err) {
    const specrt_clusters_header *h = o->clusters.header;
    int64_t n = o->n_clusters * o->width;
    for (int32_t c = 0; c < h->n_clusters; c++)
        if (o->clusters.b2[c] & 0x7fff)
            return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                    "section 'centroid': its router adds a bias, which engines do "
                                    "not");
    for (int64_t i = 0; i < n; i++) {
        float x;
        uint32_t bits;
        specrt_row_decode(SPECRT_DTYPE_F16, o->clusters.w2 + i, 1, &x);
        memcpy(&bits, &x, sizeof bits);
        o->centroids[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    return SPECRT_STATUS_OK;
}

/* Tokens in every cluster. */
static specrt_status find_hot(ordering *o, specrt_error *err) {
    const specrt_clusters *c = &o->clusters;
    int32_t *times;
    TRY(sl_new(&times, (size_t)o->n_vocab, sizeof *times, o->r->output, err));
    for (int32_t i = 0; i < c->header->n_members; i++) times[c->ids[i]]++;
    int64_t n = 0;
    for (int64_t id = 0; id < o->n_vocab; id++) n += o->hot[id] = times[id] == o->n_clusters;
    free(times);
    if (o->r->hot == 0 || n == o->r->hot) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "--hot: expected %" PRId64 ", the tokens that are in every cluster of "
                            "the bundle, found %" PRId64 "; build others: cluster-build --ordered "
                            "--hot %" PRId64,
                            n, o->r->hot, o->r->hot);
}

static void fill_cluster(ordering *o, int64_t c) {
    const specrt_clusters *s = &o->clusters;
    int64_t *out = o->tokens + c * o->n_slots, n = 0;
    for (int pass = 1; pass >= 0; pass--)
        for (uint32_t i = s->offsets[c]; i < s->offsets[c + 1]; i++)
            if (o->hot[s->ids[i]] == pass) out[n++] = s->ids[i];
    for (; n < o->n_slots; n++) out[n] = out[0];
}

static specrt_status fill(ordering *o, specrt_error *err) {
    if (!o->clusters.header) {
        for (int64_t i = 0; i < o->n_vocab; i++) o->tokens[i] = o->ranks.ids[i % o->n_slots];
        return SPECRT_STATUS_OK; /* centroids stay zero: any cluster will do */
    }
    TRY(find_hot(o, err));
    for (int64_t c = 0; c < o->n_clusters; c++) fill_cluster(o, c);
    return make_centroids(o, err);
}

/* All but an ordered head that was there, and two more. @return how many */
static specrt_status make_tensors(ordering *o, int *n_out, specrt_error *err) {
    int64_t n;
    const st_tensor *t = sl_st_tensors(o->c.m.s, &n);
    int m = 0;
    if (n > 100000)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED, "%s: has over 100,000 tensors",
                                o->c.m.path);
    TRY(sl_new(&o->tensors, (size_t)n + 2, sizeof *o->tensors, o->r->output, err));
    for (int64_t i = 0; i < n; i++)
        if (strcmp(t[i].name, ORDERED_CENTROIDS) != 0 && strcmp(t[i].name, ORDERED_TOKENS) != 0)
            o->tensors[m++] = t[i];
    o->tensors[m++] = (st_tensor){.name = ORDERED_TOKENS,
                                  .dtype = "I64",
                                  .n_dims = 1,
                                  .shape = {o->n_vocab},
                                  .data = (const uint8_t *)o->tokens,
                                  .bytes = (size_t)o->n_vocab * 8};
    o->tensors[m++] = (st_tensor){.name = ORDERED_CENTROIDS,
                                  .dtype = "BF16",
                                  .n_dims = 2,
                                  .shape = {o->n_clusters, o->width},
                                  .data = (const uint8_t *)o->centroids,
                                  .bytes = (size_t)(o->n_clusters * o->width) * 2};
    *n_out = m;
    return SPECRT_STATUS_OK;
}

/* ---- config.json ------------------------------------------------------------------------------ */

/* vLLM and transformers ask the top whether the embedding is the head, SGLang asks text_config. */
static specrt_status edit_config(const ordering *o, specrt_error *err) {
    ordered_head head;
    json_object *config = o->c.config, *text = NULL;
    sl_ordered_head_read(&o->c.m, &head);
    json_object_object_get_ex(config, "text_config", &text);
    if (text && !json_object_is_type(text, json_type_object))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%sconfig.json: text_config: expected an object, found %s; give "
                                "the drafter's own config.json",
                                o->c.folder, json_type_to_name(json_object_get_type(text)));
    json_object_object_add(config, "use_ordered_embeddings", json_object_new_boolean(1));
    json_object_object_add(config, "num_centroids", json_object_new_int64(o->n_clusters));
    json_object_object_add(config, "centroid_intermediate_top_k", json_object_new_int64(o->topk));
    json_object_object_add(config, "tie_word_embeddings", json_object_new_boolean(!head.has_head));
    if (text)
        json_object_object_add(text, "tie_word_embeddings",
                               json_object_new_boolean(!head.has_head));
    return SPECRT_STATUS_OK;
}

/* ---- all of it -------------------------------------------------------------------------------- */

/* What engines would load, before anything is written: the edited config, and the two new tensors. */
static specrt_status check_result(const ordering *o, int n, ordered_counts *out,
                                  specrt_error *err) {
    model m = o->c.m;
    ordered_head head;
    m.config = o->c.config;
    sl_ordered_head_read(&m, &head);
    head.ordering = &o->tensors[n - 2];
    head.centroids = &o->tensors[n - 1];
    TRY(sl_ordered_head_check(&head, o->r->drafter, err));
    return ordered_count(&head, out, err);
}

static specrt_status run(ordering *o, ordered_counts *counts, specrt_error *err) {
    drafter_folder f = {.c = &o->c, .config_changed = true, .weights_changed = true};
    TRY(sl_checkpoint_open(o->r->drafter, true, &o->c, err));
    TRY(read_head(o, err));
    TRY(choose_source(o, err));
    TRY(sl_new(&o->hot, (size_t)o->n_vocab, 1, o->r->output, err));
    TRY(sl_new(&o->tokens, (size_t)o->n_vocab, sizeof *o->tokens, o->r->output, err));
    TRY(sl_new(&o->centroids, (size_t)(o->n_clusters * o->width), sizeof *o->centroids,
               o->r->output, err));
    TRY(fill(o, err));
    TRY(make_tensors(o, &f.n_tensors, err));
    TRY(edit_config(o, err));
    TRY(check_result(o, f.n_tensors, counts, err));
    f.tensors = o->tensors;
    return drafter_folder_write(&f, o->r->output, o->r->force, err);
}

specrt_status ordered_write(const ordered_request *r, ordered_counts *counts, specrt_error *err) {
    ordering o = {.r = r};
    specrt_status status = run(&o, counts, err);
    free(o.hot);
    free(o.tokens);
    free(o.centroids);
    free(o.tensors);
    if (o.c.m.path) sl_checkpoint_close(&o.c);
    return status;
}

/* ---- what a head holds ------------------------------------------------------------------------ */

specrt_status ordered_count(const ordered_head *o, ordered_counts *out, specrt_error *err) {
    int64_t n_slots = o->n_vocab / o->n_clusters;
    int32_t *times, *last; /* clusters with a token, and 1 + the latest of them */
    *out = (ordered_counts){.n_clusters = (int32_t)o->n_clusters,
                            .topk = (int32_t)o->topk,
                            .n_slots = (int32_t)n_slots,
                            .batch = sl_ordered_head_batch(o->n_vocab, o->n_clusters, o->topk)};
    TRY(sl_new(&times, 2 * (size_t)o->n_vocab, sizeof *times, "the tokens", err));
    last = times + o->n_vocab;
    for (int64_t i = 0; i < o->n_vocab; i++) {
        int64_t id = sl_ordered_head_id(o, i);
        int32_t cluster = (int32_t)(i / n_slots) + 1;
        times[id] += last[id] != cluster;
        last[id] = cluster;
    }
    for (int64_t id = 0; id < o->n_vocab; id++) {
        out->n_tokens += times[id] > 0;
        out->n_hot += times[id] == o->n_clusters;
    }
    free(times);
    return SPECRT_STATUS_OK;
}

json_object *ordered_json(const ordered_counts *n) {
    json_object *o = json_object_new_object();
    sl_json_put(o, "n_clusters", json_object_new_int(n->n_clusters));
    sl_json_put(o, "topk", json_object_new_int(n->topk));
    sl_json_put(o, "n_slots", json_object_new_int(n->n_slots));
    sl_json_put(o, "n_tokens", json_object_new_int(n->n_tokens));
    sl_json_put(o, "n_hot", json_object_new_int(n->n_hot));
    sl_json_put(o, "batch", sl_json_real(n->batch));
    return o;
}
