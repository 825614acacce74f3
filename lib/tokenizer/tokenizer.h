/* tokenizer.h : text to token ids, exact to the id of the tokenizer's own library.
 *
 * Reads tiktoken rank files, Hugging Face tokenizer.json (BPE) and GGUF vocabularies (gpt2, llama). A
 * tokenizer is immutable and shared; each thread encodes through a tok_worker of its own. Text is
 * valid UTF-8 (utf8.h repairs it first) and may hold NULs. Special tokens are never produced from
 * text and BOS/EOS are never added. */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "specrt_tools.h"

typedef struct tokenizer tokenizer;

typedef enum token_type {
    TOKEN_NORMAL,  /* produced from text; byte tokens too */
    TOKEN_SPECIAL, /* control and added tokens: BOS, EOS, chat delimiters, tool calls */
    TOKEN_RESERVED, /* placeholders: <|reserved_special_token_7|>, <unused12>, holes in the id space */
} token_type;

/* sl_tokenizer_open() : tell the kind by content, not by name.
 *   path : a tokenizer.json, a GGUF, a tiktoken rank file (the family, hence specials and splitter, is
 *          told by its ranks; an unknown one is an error that lists those known), or a folder with one
 * @return IO, BAD_INPUT naming file and field, UNSUPPORTED naming the kind and what is supported; BAD_ARG
 * naming two files of a folder that holds several. */
specrt_status sl_tokenizer_open(const char *path, tokenizer **out, specrt_error *err);
void sl_tokenizer_close(tokenizer *tok);

/* sl_tokenizer_of_model() : what a model brings: the tokenizer of a GGUF, or the one in its folder. *out
 * NULL: it brings none.
 * @return as sl_tokenizer_open() for one that is there. */
specrt_status sl_tokenizer_of_model(const char *path, tokenizer **out, specrt_error *err);

/* sl_tokenizer_of_model_if_known() : the same for comparisons: *out is NULL too for one of a kind that is not
 * read. @return OK, IO, NO_MEMORY, BAD_ARG. */
specrt_status sl_tokenizer_of_model_if_known(const char *path, tokenizer **out, specrt_error *err);

const char *sl_tokenizer_name(const tokenizer *tok); /* "llama3 (tiktoken)" */
int32_t sl_tokenizer_n_vocab(const tokenizer *tok);  /* ids are [0, n_vocab), specials included */
int32_t sl_tokenizer_n_normal(const tokenizer *tok);
token_type sl_tokenizer_type(const tokenizer *tok, int32_t id);

/* sl_tokenizer_bytes() : the raw bytes of a token (a special's text), borrowed; NULL, 0 for a hole. */
const uint8_t *sl_tokenizer_bytes(const tokenizer *tok, int32_t id, size_t *n);

/* sl_tokenizer_find() : the id of a token by its raw bytes or special text; -1 if there is none. */
int32_t sl_tokenizer_find(const tokenizer *tok, const void *bytes, size_t n);

/* sl_tokenizer_byte_tokens() : the normal tokens that stand for one byte, by which any text can be written;
 * ascending. Of SentencePiece both forms, "a" and <0x61>.
 *   ids : [*n] owned; NULL when there are none */
specrt_status sl_tokenizer_byte_tokens(const tokenizer *tok, int32_t **ids, int32_t *n,
                                       specrt_error *err);

/* sl_tokenizer_terminators() : ids that end a generation (EOS, <|eot_id|>, <|im_end|>...), ascending. */
const int32_t *sl_tokenizer_terminators(const tokenizer *tok, int32_t *n);

/* sl_tokenizer_fingerprint() : specrt_tokenizer_hash_token over the normal tokens. */
void sl_tokenizer_fingerprint(const tokenizer *tok, uint8_t sha256[32]);

/* sl_tokenizer_check_model() : that a model's own tokenizer, where it can be read, is the expected one.
 *   sha256 : of the expected one; all zero: unknown, nothing is compared
 *   name   : its name
 * @return BAD_INPUT naming both, IO, NO_MEMORY */
specrt_status sl_tokenizer_check_model(const char *path, const uint8_t sha256[32], const char *name,
                                       specrt_error *err);

typedef struct tok_worker tok_worker;

/* Growable token ids; zero-initialise, free(ids). */
typedef struct id_list {
    int32_t *ids;
    size_t n, capacity;
} id_list;

specrt_status sl_tok_worker_create(const tokenizer *tok, tok_worker **out, specrt_error *err);
void sl_tok_worker_free(tok_worker *w);

/* sl_tok_worker_continue() : whether the documents that follow go on where another ended (units of one
 * text): then nothing that a tokenizer puts before a text, as SentencePiece its space, is put there. */
void sl_tok_worker_continue(tok_worker *w, bool continues);

/* sl_tok_encode() : append the ids of one document. @return OK or NO_MEMORY. */
specrt_status sl_tok_encode(tok_worker *w, const char *text, size_t n, id_list *out);

/* sl_tok_count() : counts[id] += occurrences in one document, u64 [n_vocab]; *n_tokens += how many. The
 * fast path: ids are never stored. */
specrt_status sl_tok_count(tok_worker *w, const char *text, size_t n, uint64_t *counts,
                           uint64_t *n_tokens);

#endif
