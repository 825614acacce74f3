/* input.c : tokenizer, count files and model, opened and checked against each other before any
 * counting starts. */
#include "input.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/mpi.h"

/* ---- the vocabulary ---- */

/* Without a tokenizer nobody but --keep says what ends a text. */
static specrt_status vocab_from_ids(const calibrate_options *o, counts_vocab *v,
                                    specrt_error *err) {
    int32_t *keep, n_keep;
    TRY(sl_counts_vocab_from_ids((int32_t)o->n_vocab, v, err));
    TRY(calibrate_options_keep(o, NULL, v->n_vocab, &keep, &n_keep, err));
    for (int32_t i = 0; i < n_keep; i++) v->types[keep[i]] = COUNTS_TERMINATOR;
    free(keep);
    if (n_keep == 0)
        sl_cli_warn("no terminators are known, so the drafter may be unable to end a text; name "
                    "them with --keep");
    return SPECRT_STATUS_OK;
}

/* Everything that must be equal for counts to be added up, as the count file's #options. */
static void options_text(const calibrate_options *o, char out[256]) {
    snprintf(out, 256, "messages=%s" COUNTS_FOLDS "%d seed=%" PRId64 "%s%s%s", o->messages,
             o->n_folds, o->common.seed, o->by_language ? COUNTS_BY_LANGUAGE : "",
             o->field ? " field=" : "", o->field ? o->field : "");
}

/* Merged counts must be of the tokenizer that was given. */
static specrt_status check_counts_vocab(const calibrate_options *o, const counts_vocab *given,
                                        const counts_vocab *merged, specrt_error *err) {
    if (memcmp(given->sha256, merged->sha256, 32) == 0 && given->n_vocab == merged->n_vocab)
        return SPECRT_STATUS_OK;
    return specrt_error_set(
        err, SPECRT_STATUS_BAD_INPUT,
        "%s: counts of another tokenizer; expected %s with %" PRId32 " ids, found %s with %" PRId32,
        o->merge.items[0], given->name, given->n_vocab, merged->name, merged->n_vocab);
}

static specrt_status read_merged(const calibrate_options *o, counts *c, specrt_error *err) {
    /* Under MPI the ranks' counts are added up, so one of them brings in the files. */
    if (sl_mpi_rank() > 0 && o->corpus.n) return SPECRT_STATUS_OK;
    for (int i = 0; i < o->merge.n; i++) TRY(sl_counts_read(c, o->merge.items[i], err));
    sl_counts_decay(c, o->decay); /* nothing else was counted yet */
    return SPECRT_STATUS_OK;
}

/* Fill c->vocab from the tokenizer (c must be freed either way). */
static specrt_status open_vocab(const calibrate_options *o, tokenizer **tok, counts *c,
                                specrt_error *err) {
    if (!o->tokenizer) return SPECRT_STATUS_OK;
    if (strcmp(o->tokenizer, "none") == 0)
        return o->n_vocab ? vocab_from_ids(o, &c->vocab, err) : SPECRT_STATUS_OK;
    TRY(sl_tokenizer_open(o->tokenizer, tok, err));
    return sl_counts_vocab_from_tokenizer(*tok, &c->vocab, err);
}

specrt_status input_open_counts(const calibrate_options *o, tokenizer **tok, counts *c,
                                specrt_error *err) {
    counts given = {0};
    *tok = NULL;
    *c = (counts){0};
    specrt_status status = open_vocab(o, tok, &given, err);
    if (status == SPECRT_STATUS_OK && o->corpus.n) {
        options_text(o, given.options);
        *c = given;
        return read_merged(o, c, err);
    }
    if (status == SPECRT_STATUS_OK) status = read_merged(o, c, err);
    if (status == SPECRT_STATUS_OK && given.vocab.types)
        status = check_counts_vocab(o, &given.vocab, &c->vocab, err);
    sl_counts_free(&given);
    return status;
}

/* ---- the model ---- */

specrt_status input_open_model(const calibrate_options *o, const counts_vocab *v, model *m,
                               specrt_head_desc *head, const char **name, specrt_error *err) {
    TRY(sl_model_open(o->model, m, err));
    TRY(sl_model_head(m, o->tensor, head, name, err));
    if (head->n_rows < v->n_vocab)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: %s has %" PRId64 " rows; expected at least %" PRId32
                                ", the vocabulary of %s",
                                o->model, *name, head->n_rows, v->n_vocab, v->name);
    return sl_tokenizer_check_model(o->model, v->sha256, v->name, err);
}

size_t input_row_bytes(const specrt_head_desc *head) {
    switch (head->dtype) {
    case SPECRT_DTYPE_F32:
    case SPECRT_DTYPE_F16:
    case SPECRT_DTYPE_BF16:
    case SPECRT_DTYPE_Q8_0: return specrt_row_bytes(head->dtype, head->n_cols);
    default: return specrt_row_bytes(SPECRT_DTYPE_F16, head->n_cols);
    }
}

/* ---- parameters for the estimate of speed ---- */

static bool in_first_layer(const char *name) {
    static const char *const prefixes[] = {"blk.0.", "model.layers.0.", "layers.0."};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

static double layer_params(const model *m) {
    double sum = 0;
    int64_t n = 0;
    if (m->g) {
        const gguf_tensor *t = sl_gguf_tensors(m->g, &n);
        for (int64_t i = 0; i < n; i++)
            if (in_first_layer(t[i].name))
                sum += (double)t[i].dims[0] * (double)t[i].dims[1] * (double)t[i].dims[2] *
                       (double)t[i].dims[3];
        return sum;
    }
    const st_tensor *t = sl_st_tensors(m->s, &n);
    for (int64_t i = 0; i < n; i++) {
        double elements = in_first_layer(t[i].name);
        for (int32_t j = 0; j < t[i].n_dims; j++) elements *= (double)t[i].shape[j];
        sum += elements;
    }
    return sum;
}

/* The drafter of EAGLE for a target: embedding and head of its shape, one of its layers, and a
 * projection of two hidden states to one. */
static specrt_status eagle_params(const model *m, const specrt_head_desc *head, double *out,
                                  specrt_error *err) {
    double d = (double)head->n_cols, layer = layer_params(m);
    *out = 2 * (double)head->n_rows * d + layer + 2 * d * d;
    if (layer > 0) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "%s: has no first layer to size an EAGLE drafter by; give "
                            "--draft-params",
                            m->path);
}

static specrt_status check_params(const speed_model *m, specrt_error *err) {
    double head = (double)m->n_rows * m->d_draft;
    if (m->target_params == 0 || m->draft_params >= head) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "--draft-params %.0f: fewer than the %.0f of its full head; expected "
                            "all parameters of the drafter",
                            m->draft_params, head);
}

specrt_status input_speed(const calibrate_options *o, const model *m, const specrt_head_desc *head,
                          int32_t n_vocab, speed_model *out, specrt_error *err) {
    TRY(calibrate_options_rates(o, out, err));
    out->target_params = o->target_params;
    out->draft_params = o->draft_params;
    out->d_draft = o->d_draft;
    out->n_rows = head ? (int32_t)head->n_rows : n_vocab;
    out->source = "as given";
    if (head && out->n_rates) {
        if (out->target_params == 0) out->target_params = (double)sl_model_n_params(m);
        if (out->d_draft == 0) out->d_draft = (double)head->n_cols;
        if (out->draft_params == 0) {
            TRY(eagle_params(m, head, &out->draft_params, err));
            out->source = "an EAGLE drafter for it: embedding, head, one layer, projection";
        }
    }
    return check_params(out, err);
}
