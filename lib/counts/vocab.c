/* vocab.c : what counts know of their vocabulary, from a tokenizer or without one. */
#include <stdlib.h>
#include "counts/counts.h"
#include "base/error.h"

static specrt_status vocab_allocate(counts_vocab *v, int32_t n_vocab, const char *name,
                                    specrt_error *err) {
    v->n_vocab = n_vocab;
    snprintf(v->name, sizeof v->name, "%s", name);
    v->types = (uint8_t *)calloc((size_t)n_vocab, 1);
    return v->types ? SPECRT_STATUS_OK : sl_error_no_memory(err, NULL);
}

specrt_status sl_counts_vocab_from_tokenizer(const tokenizer *tok, counts_vocab *v,
                                             specrt_error *err) {
    int32_t n_terminators;
    const int32_t *terminators = sl_tokenizer_terminators(tok, &n_terminators);
    TRY(vocab_allocate(v, sl_tokenizer_n_vocab(tok), sl_tokenizer_name(tok), err));
    v->n_normal = sl_tokenizer_n_normal(tok);
    sl_tokenizer_fingerprint(tok, v->sha256);
    for (int32_t id = 0; id < v->n_vocab; id++) {
        token_type type = sl_tokenizer_type(tok, id);
        if (type == TOKEN_SPECIAL) v->types[id] = COUNTS_SPECIAL;
        if (type == TOKEN_RESERVED) v->types[id] = COUNTS_RESERVED;
    }
    for (int32_t i = 0; i < n_terminators; i++) v->types[terminators[i]] = COUNTS_TERMINATOR;
    return SPECRT_STATUS_OK;
}

specrt_status sl_counts_vocab_from_ids(int32_t n_vocab, counts_vocab *v, specrt_error *err) {
    TRY(vocab_allocate(v, n_vocab, "ids", err));
    v->n_normal = n_vocab;
    return SPECRT_STATUS_OK;
}
