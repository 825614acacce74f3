/* fuzz_tokenizer_json.c : any bytes as a tokenizer.json. */
#include "tokenizer_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return fuzz_loader(sl_tok_load_json, data, size);
}
