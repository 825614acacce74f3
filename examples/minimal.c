/* minimal.c : the ten likeliest draft tokens for one hidden state, over a bundle's static list.
 *
 *     minimal BUNDLE                                  with made-up weights: the calls, not sense
 *     minimal BUNDLE --head ROWS.f16 N_ROWS N_COLS    with yours, raw half-precision rows
 */
#define SPECRT_IMPLEMENTATION /* before other headers, in strict C */
#include "specrt.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int fail(const char *message) {
    fprintf(stderr, "minimal: %s\n", message);
    return 1;
}

/* The application's weights, mapped; NULL unless the file holds exactly n_bytes. */
static void *map_rows(const char *path, int64_t n_bytes) {
    int fd = open(path, O_RDONLY);
    if (fd < 0 || lseek(fd, 0, SEEK_END) != n_bytes) return NULL;
    void *rows = mmap(NULL, (size_t)n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    return rows == MAP_FAILED ? NULL : rows;
}

/* Halves of either sign between 1/16 and 1/8. */
static void *make_up_rows(int64_t n) {
    uint16_t *rows = malloc((size_t)n * sizeof *rows);
    uint32_t random = 1;
    for (int64_t i = 0; rows && i < n; i++) {
        random = random * 1664525u + 1013904223u;
        rows[i] = (uint16_t)((random >> 16 & 0x83ff) | 0x2c00);
    }
    return rows;
}

int main(int argc, char **argv) {
    int own = argc == 6 && strcmp(argv[2], "--head") == 0;
    if (argc != 2 && !own) return fail("usage: minimal BUNDLE [--head ROWS.f16 N_ROWS N_COLS]");

    specrt_error err;
    specrt_bundle *bundle;
    specrt_ranks ranks;
    if (specrt_bundle_open(argv[1], NULL, &bundle, &err)) return fail(err.msg);
    if (specrt_bundle_ranks(bundle, &ranks, &err)) return fail(err.msg);

    /* The draft head stays the application's. What is made up cannot be checked against the bundle. */
    int64_t n_rows = own ? atoi(argv[4]) : ranks.header->n_vocab, n_cols = own ? atoi(argv[5]) : 64;
    void *rows = own ? map_rows(argv[3], 2 * n_rows * n_cols) : make_up_rows(n_rows * n_cols);
    if (!rows) return fail("expected a file of N_ROWS x N_COLS halves");
    specrt_head_desc desc = {
        .rows = rows, .dtype = SPECRT_DTYPE_F16, .n_rows = n_rows, .n_cols = n_cols};
    specrt_head *head;
    if (specrt_head_bind(own ? bundle : NULL, &desc, NULL, &head, &err)) return fail(err.msg);

    /* Packed once, shared by all sessions; `static` without a size is what the bundle was calibrated for. */
    specrt_policy_desc wanted = {.text = "static"};
    specrt_policy *policy;
    if (specrt_policy_create(bundle, head, &wanted, &policy, &err)) return fail(err.msg);
    const specrt_shortlist *shortlist = specrt_policy_get_info(policy)->shortlist;

    /* One draft step: a hidden state in, logits over the list, the best target ids out. */
    float *hidden = malloc((size_t)n_cols * sizeof *hidden), logprobs[10];
    float *logits = malloc((size_t)shortlist->n_rows * sizeof *logits);
    int32_t ids[10], k = shortlist->n_rows < 10 ? shortlist->n_rows : 10;
    for (int64_t i = 0; i < n_cols; i++) hidden[i] = sinf((float)i);
    specrt_shortlist_logits(shortlist, hidden, 1, logits);
    specrt_shortlist_topk(shortlist, logits, 1, k, ids, logprobs);

    printf("the best of %d tokens (of %d)\n", shortlist->n_rows, ranks.header->n_vocab);
    for (int i = 0; i < k; i++) printf("%8d  %8.4f\n", ids[i], logprobs[i]);

    free(logits), free(hidden);
    specrt_policy_close(policy);
    specrt_head_close(head);
    specrt_bundle_close(bundle);
    if (!own) free(rows);
    return 0;
}
