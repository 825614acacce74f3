/* token_map.h : draft vocabularies in the neighbours' formats (formats.md section 6).
 *
 * In memory a map is always the list of absolute target ids by draft id. */
#ifndef TOKEN_MAP_H
#define TOKEN_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include "specrt.h"

typedef struct token_map {
    int32_t *ids; /* [n] owned */
    int32_t n;
    int32_t n_vocab;  /* 0: unknown */
    uint64_t *counts; /* [n] owned, from a frequency file; NULL: none */
} token_map;

typedef enum token_map_values { TOKEN_MAP_AUTO, TOKEN_MAP_ABSOLUTE, TOKEN_MAP_OFFSET } token_map_values;

/* token_map_formats() : "sglang-pt, vllm-json, ..." for help and errors. */
const char *token_map_formats(void);

/* token_map_write() : FORMAT one of sglang-pt vllm-json text npy eagle3-pt safetensors gguf. Ids are
 * checked unique and in [0, n_vocab).
 *   drafter : model to slice (safetensors: its head, optional; gguf: required), or NULL */
specrt_status token_map_write(const token_map *map, const char *format, const char *path,
                              const char *drafter, bool force, specrt_error *err);

/* token_map_read() : any of those, ModelOpt d2t.pt and token_freq.pt; told by content.
 *   values  : AUTO refuses a list that fits both readings
 *   n_vocab : bound on ids; 0: unknown */
specrt_status token_map_read(const char *path, token_map_values values, int32_t n_vocab,
                             token_map *out, specrt_error *err);
void token_map_free(token_map *map);

#endif
