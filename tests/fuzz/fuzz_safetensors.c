/* fuzz_safetensors.c : any bytes either fail to open, or hold tensors that can be read. */
#include "formats/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink; /* so that reads are not optimised away */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int64_t n;
    st *s;
    specrt_error err;
    if (sl_st_open_memory(data, size, "fuzz", &s, &err)) return 0;
    const st_tensor *tensors = sl_st_tensors(s, &n);
    for (int64_t i = 0; i < n; i++) {
        if (sl_st_find(s, tensors[i].name) != &tensors[i]) abort();
        for (size_t j = 0; j < tensors[i].bytes; j++) sink ^= tensors[i].data[j];
    }
    sl_st_close(s);
    return 0;
}
