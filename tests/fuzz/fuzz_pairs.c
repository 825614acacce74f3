/* fuzz_pairs.c : any bytes are refused, or are pairs that survive being written and read again. */
#include "counts/pairs.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_again(pairs *p, const pairs_header *header, char **bytes, size_t *n) {
    specrt_error err;
    out_file out = {.f = open_memstream(bytes, n), .path = (char *)(uintptr_t) "memory"};
    if (!out.f || sl_pairs_write(p, 1, header, &out, &err) || fclose(out.f)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    specrt_error err;
    pairs *p, *again;
    pairs_header header = {0}, header_again = {0};
    char *first, *second;
    size_t n_first, n_second;
    if (sl_pairs_create(0, 0, 1, ".", &p, &err) || sl_pairs_create(0, 0, 1, ".", &again, &err))
        abort();
    if (sl_pairs_read_memory(p, &header, data, size, "fuzz", &err) == SPECRT_STATUS_OK) {
        write_again(p, &header, &first, &n_first);
        if (sl_pairs_read_memory(again, &header_again, first, n_first, "again", &err)) abort();
        write_again(again, &header_again, &second, &n_second);
        if (n_first != n_second || memcmp(first, second, n_first) != 0) abort();
        free(first);
        free(second);
    }
    sl_pairs_free(p);
    sl_pairs_free(again);
    return 0;
}
