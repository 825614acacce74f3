/* token_map.h : draft vocabularies in the neighbours' formats; docs/TOKEN_MAPS.md has the table.
 *
 * In memory a map is always the list of absolute target ids by draft id. */
#ifndef MODEL_TOKEN_MAP_H
#define MODEL_TOKEN_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include "formats/safetensors.h"
#include "specrt_tools.h"

typedef struct token_map {
    int32_t *ids; /* [n] owned */
    int32_t n;
    int32_t n_vocab;   /* rows of the target's vocabulary: the length of t2d; 0: unknown */
    uint64_t *counts;  /* [n] owned, from a frequency file; NULL: none */
    const char *kind;  /* what was read, static: "torch list"; NULL */
    bool was_offset;   /* its entries were offsets */
    int32_t n_dropped; /* repeated entries left out on reading */
    uint8_t tokenizer_sha256[32]; /* whose ids they are, where a file says it; all zero: not said */
} token_map;

typedef enum token_map_values {
    TOKEN_MAP_AUTO,
    TOKEN_MAP_ABSOLUTE, /* entry i is a target id */
    TOKEN_MAP_OFFSET,   /* entry i is a target id minus i, as EAGLE-3 stores it */
    TOKEN_MAP_BLOCKS    /* every entry of a text list stands for 16 ids, as exllamav3 reads it */
} token_map_values;

typedef struct token_map_options {
    token_map_values values; /* AUTO refuses a list that fits both readings */
    int32_t n_vocab;         /* ids must be below it; 0: unknown */
    bool dedupe;             /* keep the first of repeated ids; else they are an error */
} token_map_options;

/* sl_token_map_formats() : "sglang-pt, vllm-json, ..." for help and errors. */
const char *sl_token_map_formats(void);

/* sl_token_map_default_name() : the file a format is written to when none is given ("freq_32768.pt").
 * @return BAD_ARG listing the formats. */
specrt_status sl_token_map_default_name(const char *format, int32_t n, char *out, size_t bytes,
                                        specrt_error *err);

/* sl_token_map_from_ranks() : the first `size` ranks (0: the calibrated size), counts included.
 * @return BAD_ARG naming the limits: at least the forced ids, at most the valid ones. */
specrt_status sl_token_map_from_ranks(const specrt_ranks *ranks, int32_t size, token_map *out,
                                      specrt_error *err);

/* sl_token_map_for() : what `format` takes of `size` ids: sl_token_map_from_ranks(), for exllamav3
 * sl_vocab_groups().
 *   n_vocab : rows of the target's head; 0: the tokenizer's ids */
specrt_status sl_token_map_for(const char *format, const specrt_ranks *ranks, int32_t size,
                               int32_t n_vocab, token_map *out, specrt_error *err);

/* sl_token_map_check() : what sl_token_map_write() would refuse of `path`, before the work.
 * @return as sl_out_check(); for npy of its two files, where the folder is there; speculators', whose names
 * hold the size, are left to the writer. */
specrt_status sl_token_map_check(const char *format, const char *path, bool force,
                                 specrt_error *err);

/* sl_token_map_write() : FORMAT one of those of sl_token_map_formats(). Ids are checked unique and in
 * [0, n_vocab). Lists keep the map's order; the forms with d2t offsets and vllm-json are ascending by id.
 * token-freq has the map's counts, none below that of a later id, so that whoever cuts it by count cuts the
 * map. mtplx and exllamav3 have the digest of the tokenizer, where the map does.
 *   path    : a file; for npy and speculators a folder, made if missing
 *   drafter : gguf: the model to rewrite, required; safetensors: its head's rows are added, quantised ones in
 *             f16; else NULL
 * @return BAD_INPUT too for weights beyond f16 there. */
specrt_status sl_token_map_write(const token_map *map, const char *format, const char *path,
                                 const char *drafter, bool force, specrt_error *err);

/* sl_token_map_remove() : take back what sl_token_map_write() put where nothing was, of a map of n ids. */
void sl_token_map_remove(const char *format, const char *path, int32_t n);

/* sl_token_map_read() : any of those, and ModelOpt d2t.pt, token_freq.pt and EAGLE-3 checkpoints; told by
 * content. `path` may be a folder that holds d2t.npy, model.safetensors or pytorch_model.bin.
 *   options : NULL: all defaults */
specrt_status sl_token_map_read(const char *path, const token_map_options *options, token_map *out,
                                specrt_error *err);
/* sl_token_map_read_memory() : the same over one file's bytes, borrowed; `name` stands for the path. */
specrt_status sl_token_map_read_memory(const void *bytes, size_t n, const char *name,
                                       const token_map_options *options, token_map *out,
                                       specrt_error *err);
/* sl_token_map_read_st() : d2t and t2d of an open checkpoint; `name` stands for its path. */
specrt_status sl_token_map_read_st(const st *s, const char *name, const token_map_options *options,
                                   token_map *out, specrt_error *err);
void sl_token_map_free(token_map *map);

/* sl_token_map_values_of() : of "absolute", "offset", "blocks"; NULL is AUTO; false for other texts. */
bool sl_token_map_values_of(const char *text, token_map_values *out);

#endif
