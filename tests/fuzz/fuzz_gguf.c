/* fuzz_gguf.c : any bytes either fail to open or can be read and rewritten to the end. */
#include "formats/gguf.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink; /* so that reads are not optimised away */

static void read_values(const gguf *g) {
    int64_t n, n_strings, integer;
    double real;
    gguf_string text;
    const gguf_kv *kvs = sl_gguf_kvs(g, &n);
    for (int64_t i = 0; i < n; i++) {
        for (size_t j = 0; j < kvs[i].value_bytes; j++) sink ^= kvs[i].value[j];
        char key[32];
        snprintf(key, sizeof key, "%.*s", (int)(kvs[i].key.n < 31 ? kvs[i].key.n : 31),
                 kvs[i].key.s);
        sl_gguf_get_int(g, key, &integer);
        sl_gguf_get_real(g, key, &real);
        if (sl_gguf_get_string(g, key, &text) && text.n) sink ^= (uint8_t)text.s[text.n - 1];
        gguf_string *strings = sl_gguf_get_strings(g, key, &n_strings);
        for (int64_t j = 0; j < n_strings; j++)
            if (strings[j].n) sink ^= (uint8_t)strings[j].s[strings[j].n - 1];
        free(strings);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int64_t n;
    gguf *g;
    specrt_error err;
    if (sl_gguf_open_memory(data, size, "fuzz", &g, &err)) return 0;
    read_values(g);
    const gguf_tensor *tensors = sl_gguf_tensors(g, &n);
    for (int64_t i = 0; i < n; i++)
        for (size_t j = 0; j < tensors[i].bytes; j++) sink ^= tensors[i].data[j];
    out_file out;
    if (!sl_out_open(&out, "/dev/null", true, &err)) {
        if (sl_gguf_rewrite(g, NULL, 0, &out, &err)) abort();
        sl_out_abort(&out);
    }
    sl_gguf_close(g);
    return 0;
}
