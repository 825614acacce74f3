/* from_json.h : Hugging Face tokenizer.json, for from_json*.c and loaders that borrow its parts. */
#ifndef TOKENIZER_FROM_JSON_H
#define TOKENIZER_FROM_JSON_H

#include <json.h>
#include "tokenizer/tokenizer_impl.h"

/* Typed members of an object. Messages read "PATH: WHERE.KEY is ...; expected ...".
 * Absent and null members leave *out alone, or are an error if `required`. */
specrt_status sl_tok_json_bool(const tokenizer *tok, json_object *object, const char *where,
                               const char *key, bool required, bool *out, specrt_error *err);
specrt_status sl_tok_json_string(const tokenizer *tok, json_object *object, const char *where,
                                 const char *key, bool required, const char **out, size_t *n,
                                 specrt_error *err);
specrt_status sl_tok_json_bad(const tokenizer *tok, const char *where, const char *key,
                              json_object *found, const char *expected, specrt_error *err);

/* sl_tok_json_normalizer() : set tok's normalisation fields from the "normalizer" member. */
specrt_status sl_tok_json_normalizer(tokenizer *tok, json_object *spec, specrt_error *err);

/* sl_tok_json_pre_tokenizer() : set its splitter and prefix from the "pre_tokenizer" member; after the
 * normaliser.
 *   spelling : of the vocabulary, which follows from both */
specrt_status sl_tok_json_pre_tokenizer(tokenizer *tok, json_object *spec, tok_spelling *spelling,
                                        specrt_error *err);

#endif
