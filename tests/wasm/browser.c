/* browser.c : what browser.html does, on this machine: a line for each policy, of rows a state and the sum */
#include "../../examples/browser/browser.c"

#include <stdio.h>
#include <string.h>

enum { STATES = 64 };

static char *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) exit(1);
    *n = (size_t)ftell(f);
    char *bytes = (char *)malloc(*n + 1);
    rewind(f);
    if (!bytes || fread(bytes, 1, *n, f) != *n) exit(1);
    bytes[*n] = '\0';
    fclose(f);
    return bytes;
}

/* A tensor of a safetensors file, whose header is searched as text. */
static const char *tensor(const char *file, const char *name, int32_t *n_rows, int32_t *n_cols) {
    unsigned long long n, from = 0;
    memcpy(&n, file, 8);
    const char *at = strstr(file + 8, name);
    const char *shape = at ? strstr(at, "\"shape\":[") : NULL;
    const char *offsets = at ? strstr(at, "\"data_offsets\":[") : NULL;
    if (!shape || !offsets || sscanf(shape + 9, "%d,%d", n_rows, n_cols) < 1 ||
        sscanf(offsets + 16, "%llu", &from) != 1)
        exit(2);
    return file + 8 + n + from;
}

/* Rows at their tokens' ids. */
static uint16_t *head_of(const char *file, int32_t *n_rows, int32_t *n_cols) {
    int32_t n_listed, none;
    const char *listed = tensor(file, "\"lm_head.weight\"", &n_listed, n_cols);
    const char *offsets = tensor(file, "\"d2t\"", &none, &none);
    tensor(file, "\"t2d\"", n_rows, &none);
    size_t bytes = (size_t)*n_cols * 2;
    uint16_t *rows = (uint16_t *)calloc((size_t)*n_rows, bytes);
    for (int64_t i = 0; i < n_listed; i++) {
        int64_t offset;
        memcpy(&offset, offsets + 8 * i, 8);
        memcpy(rows + (i + offset) * *n_cols, listed + (size_t)i * bytes, bytes);
    }
    return rows;
}

int main(int argc, char **argv) {
    size_t n_bundle, n_head;
    int32_t n_rows, n_cols, x = 1;
    if (argc < 4) return 2;
    const char *bytes = read_file(argv[1], &n_bundle);
    const uint16_t *rows = head_of(read_file(argv[2], &n_head), &n_rows, &n_cols);
    float *states = (float *)malloc(STATES * (size_t)n_cols * sizeof *states);
    for (int32_t i = 0; i < STATES * n_cols; i++) {
        x = (int32_t)(((uint32_t)x * 1103515245u + 12345u) & 0x7fffffff);
        states[i] = (float)((x >> 16) % 2001 / 1000.0 - 1);
    }
    if (page_open(bytes, n_bundle, rows, n_rows, n_cols)) return puts(page_error()), 3;
    for (int a = 3; a < argc; a++) {
        double n = 0;
        uint32_t sum = 0;
        if (page_choose(argv[a])) return puts(page_error()), 3;
        for (int32_t i = 0; i < STATES; i++) {
            int32_t best;
            float logprob;
            int32_t scored = page_route(i, states + (size_t)i * (size_t)n_cols, 1, &best, &logprob);
            if (scored == 0) return puts(page_error()), 3;
            n += scored;
            sum = sum * 31 + (uint32_t)best;
        }
        printf("%s %.0f %u\n", argv[a], n / STATES, sum);
    }
    return 0;
}
