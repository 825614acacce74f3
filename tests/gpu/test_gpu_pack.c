/* test_gpu_pack.c : rows packed on the device against the same rows copied one by one. */
#include <stdbool.h>
#include "specrt_tools.h"
#include "cuda/kernels.h"
#include "gpu.h"

enum { N_ROWS = 70, MAX_COLS = 320, BATCH = 3, CAPACITY = 45 };

GPU_RANDOM(7)

/* Distinct numbers below n, the first `count` of `out` [n]. */
static void draw_distinct(int32_t *out, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        int32_t j = random_below(i + 1);
        out[i] = out[j];
        out[j] = i;
    }
}

typedef struct packing_case {
    uint8_t rows[N_ROWS * MAX_COLS * 4], packed[BATCH * CAPACITY * MAX_COLS * 4];
    float bias[N_ROWS], packed_bias[BATCH * CAPACITY];
    int32_t ids[BATCH * CAPACITY], slots[BATCH * CAPACITY], n_slots[BATCH], tokens[N_ROWS];
} packing_case;

/* A head's rows, and how far those stand apart that are packed. */
typedef struct shape {
    specrt_dtype dtype;
    int32_t n_cols;
    size_t bytes, stride, packed_stride;
} shape;

static shape make_shape(specrt_dtype dtype, int32_t n_cols, size_t pad) {
    bool blocks = dtype == SPECRT_DTYPE_Q8_0, planes = dtype == SPECRT__CUDA_Q8_0_PLANES;
    shape s = {dtype, n_cols, specrt_row_bytes(planes ? SPECRT_DTYPE_Q8_0 : dtype, n_cols), 0, 0};
    s.stride = s.packed_stride = s.bytes + pad;
    if (blocks) s.packed_stride = (s.bytes + 15) / 16 * 16 + 8 * pad;
    return s;
}

/* Rows at places to fill, others as they were. row_of [N_ROWS]: by token. */
static void pack_on_cpu(packing_case *c, const int32_t *row_of, bool whole, bool biased,
                        const shape *s) {
    for (int32_t b = 0; b < BATCH; b++)
        for (int32_t i = 0; i < c->n_slots[b]; i++) {
            int32_t first = b * CAPACITY, at = first + (whole ? i : c->slots[first + i]);
            int32_t row = row_of[c->ids[at]];
            uint8_t *to = c->packed + (size_t)at * s->packed_stride;
            const uint8_t *from = c->rows + (size_t)row * s->stride;
            if (s->dtype == SPECRT_DTYPE_Q8_0)
                gpu_planes(from, s->n_cols, to);
            else
                memcpy(to, from, s->bytes);
            if (biased) c->packed_bias[at] = c->bias[row];
        }
}

static void draw_case(packing_case *c, bool mapped) {
    int32_t order[N_ROWS];
    for (size_t i = 0; i < sizeof c->rows; i++) c->rows[i] = (uint8_t)fixture_random(&random_state);
    for (int i = 0; i < N_ROWS; i++) c->bias[i] = fixture_normal(&random_state);
    draw_distinct(c->tokens, N_ROWS);
    for (int b = 0; b < BATCH; b++) {
        draw_distinct(order, N_ROWS);
        memcpy(c->ids + b * CAPACITY, order, CAPACITY * sizeof *order);
        draw_distinct(c->slots + b * CAPACITY, CAPACITY);
        c->n_slots[b] = b == 0 ? 0 : b == 1 ? CAPACITY : random_below(CAPACITY + 1);
    }
    if (!mapped)
        for (int32_t i = 0; i < N_ROWS; i++) c->tokens[i] = i;
}

static void run_case(specrt_dtype dtype, int32_t n_cols, size_t pad, bool whole, bool biased) {
    static packing_case c, out;
    int32_t row_of[N_ROWS];
    bool mapped = random_below(2) == 0;
    draw_case(&c, mapped);
    for (int32_t i = 0; i < N_ROWS; i++) row_of[c.tokens[i]] = i;
    shape s = make_shape(dtype, n_cols, pad);
    size_t packed_bytes = BATCH * CAPACITY * s.packed_stride;
    memset(&out, 0x55, sizeof out);
    memcpy(c.packed, out.packed, sizeof c.packed);
    memcpy(c.packed_bias, out.packed_bias, sizeof c.packed_bias);
    pack_on_cpu(&c, row_of, whole, biased, &s);

    specrt__cuda_head device = {gpu_copy(c.rows, N_ROWS * s.stride),
                                biased ? gpu_copy(c.bias, sizeof c.bias) : NULL,
                                gpu_copy(row_of, sizeof row_of),
                                dtype,
                                N_ROWS,
                                n_cols,
                                s.stride};
    specrt__cuda_packing all = {
        gpu_copy(c.ids, sizeof c.ids), whole ? NULL : gpu_copy(c.slots, sizeof c.slots),
        gpu_copy(c.n_slots, sizeof c.n_slots), gpu_copy(out.packed, packed_bytes),
        biased ? gpu_copy(out.packed_bias, sizeof out.packed_bias) : NULL};
    specrt__cuda_packing p[BATCH], *packings;
    for (int b = 0; b < BATCH; b++) {
        int first = b * CAPACITY;
        p[b].ids = all.ids + first;
        p[b].slots = whole ? NULL : all.slots + first;
        p[b].n = all.n + b;
        p[b].rows = (uint8_t *)all.rows + (size_t)first * s.packed_stride;
        p[b].bias = biased ? all.bias + first : NULL;
    }
    packings = gpu_copy(p, sizeof p);
    CHECK_INT(specrt__cuda_pack(&device, packings, BATCH, CAPACITY, s.packed_stride, NULL),
              SPECRT_STATUS_OK);
    gpu_get(out.packed, all.rows, packed_bytes);
    CHECK(memcmp(out.packed, c.packed, packed_bytes) == 0);
    if (biased) gpu_get(out.packed_bias, all.bias, sizeof out.packed_bias);
    CHECK(memcmp(out.packed_bias, c.packed_bias, sizeof c.packed_bias) == 0);
    const void *used[] = {device.rows, device.bias, device.row_of, all.ids, all.slots,
                          all.n,       all.rows,    all.bias,      packings};
    for (size_t i = 0; i < sizeof used / sizeof used[0]; i++) gpu_free((void *)(uintptr_t)used[i]);
}

TEST(formats, "every row format at odd shapes, whole and in part") {
    static const specrt_dtype dtypes[] = {SPECRT_DTYPE_F32, SPECRT_DTYPE_F16, SPECRT_DTYPE_BF16,
                                          SPECRT_DTYPE_Q8_0, SPECRT__CUDA_Q8_0_PLANES};
    static const int32_t n_cols[] = {32, 96, 256, 288};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        for (size_t j = 0; j < sizeof n_cols / sizeof n_cols[0]; j++)
            for (int k = 0; k < 4; k++)
                run_case(dtypes[i], n_cols[j], dtypes[i] == SPECRT_DTYPE_F32 ? 0 : (size_t)(2 * k),
                         k & 1, k & 2);
    run_case(SPECRT_DTYPE_F16, 37, 0, false, true); /* not even four bytes divide a row */
    run_case(SPECRT_DTYPE_F16, 1, 0, true, false);
}

TEST(refusals, "bad arguments give a status") {
    char some[64];
    specrt__cuda_head head = {some, NULL, NULL, SPECRT_DTYPE_F16, 4, 8, 16};
    specrt__cuda_packing p = {0};
    CHECK_INT(specrt__cuda_pack(NULL, &p, 1, 2, 16, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_pack(&head, NULL, 1, 2, 16, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_pack(&head, &p, 0, 2, 16, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_pack(&head, &p, 70000, 2, 16, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_pack(&head, &p, 1, 0, 16, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_pack(&head, &p, 1, 2, 14, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt__cuda_pack(&head, &p, 1, 2, 17, NULL), SPECRT_STATUS_BAD_ARG);
    head = (specrt__cuda_head){some, NULL, NULL, SPECRT_DTYPE_Q8_0, 1, 32, 34};
    CHECK_INT(specrt__cuda_pack(&head, &p, 1, 2, 40, NULL), SPECRT_STATUS_BAD_ARG);
    head.dtype = SPECRT_DTYPE_Q4_K;
    CHECK_INT(specrt__cuda_pack(&head, &p, 1, 2, 16, NULL), SPECRT_STATUS_UNSUPPORTED);
}
