/* fuzz_tokenizer_gguf.c : any bytes as a vocabulary in a GGUF. */
#include "tokenizer_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return fuzz_loader(sl_tok_load_gguf, data, size);
}
