/* fuzz_counts.c : any bytes are refused, or are counts that survive being written and read again. */
#include "counts/counts.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_text(const counts *c, char **text, size_t *n) {
    specrt_error err;
    out_file out = {.f = open_memstream(text, n), .path = (char *)(uintptr_t) "memory"};
    if (!out.f || sl_counts_write(c, &out, &err) || fclose(out.f)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    specrt_error err;
    counts c = {0}, again = {0};
    char *first, *second;
    size_t n_first, n_second;
    if (sl_counts_read_memory(&c, data, size, "fuzz", &err) == SPECRT_STATUS_OK) {
        write_text(&c, &first, &n_first);
        if (sl_counts_read_memory(&again, first, n_first, "again", &err)) abort();
        write_text(&again, &second, &n_second);
        if (n_first != n_second || memcmp(first, second, n_first) != 0) abort();
        free(first);
        free(second);
    }
    sl_counts_free(&c);
    sl_counts_free(&again);
    return 0;
}
