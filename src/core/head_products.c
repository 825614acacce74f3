/* head_products.c : owns the bound head, its check against a bundle, and every product with its rows.
 * Refuses integer types, strides that overlap and sizes that overflow. */
#include "core/head.h"
#include "core/simd.h"
#include "core/simd_kernels.h"
#include "core/blocks.h"

/* --- products --- */

/* Pointers to byte `at` of rows [first, first + 4), the last row standing in for those beyond it. */
static void specrt__head_four(const specrt_segment *s, int32_t first, int64_t at,
                              const uint8_t **out) {
    const uint8_t *rows = (const uint8_t *)s->rows + at;
    if (!s->places && first + 4 <= s->n_rows) {
        rows += (size_t)first * s->row_stride;
        for (int32_t r = 0; r < 4; r++, rows += s->row_stride) out[r] = rows;
        return;
    }
    for (int32_t r = 0; r < 4; r++) {
        int32_t row = first + r < s->n_rows ? first + r : s->n_rows - 1;
        out[r] = rows + (size_t)(s->places ? s->places[row] : row) * s->row_stride;
    }
}

/* Rows here and there lie in pages of their own, whose addresses take long to find: asked for early. */
static void specrt__head_walk(const specrt_segment *s, int32_t first, size_t row_bytes) {
    const uint8_t *rows[4];
    specrt__head_four(s, first, 0, rows);
    for (int r = 0; r < 4; r++)
        for (size_t page = 0; page < row_bytes; page += 4096) SPECRT__SIMD_PREFETCH(rows[r] + page);
}

/* Adds the biases of rows [begin, end) to their logits. */
static void specrt__head_bias(const specrt_segment *s, int32_t begin, int32_t end, float *logits) {
    if (!s->bias) return;
    for (int32_t row = begin; row < end; row++)
        logits[row] += s->bias[s->places ? s->places[row] : row];
}

enum {
    SPECRT__HEAD_CACHED = 32 << 20, /* bytes of rows that some cache may hold */
    SPECRT__HEAD_AHEAD = 8192       /* bytes to fetch ahead of a row that is read by itself */
};

static specrt__simd_four *specrt__head_four_of(const specrt__simd_kernels *kernels,
                                               specrt_dtype dtype, bool stream) {
    int format = specrt__simd_format(dtype);
    if (format < 0) return specrt__blocks_find(kernels, dtype)->four;
    return (stream ? kernels->stream : kernels->four)[format];
}

/* Logits of rows [begin, end) for one hidden row. */
static void specrt__head_single(const specrt__simd_kernels *kernels, const specrt_segment *s,
                                int32_t begin, int32_t end, int64_t n_cols, const float *hidden,
                                float *logits) {
    bool stream = !s->places && s->row_stride * (size_t)s->n_rows > SPECRT__HEAD_CACHED;
    specrt__simd_four *four = specrt__head_four_of(kernels, s->dtype, stream);
    size_t row_bytes = specrt_row_bytes(s->dtype, n_cols);
    int32_t ahead = 4;
    const uint8_t *rows[4], *next[4];
    float last[4];
    if (four != specrt__head_four_of(kernels, s->dtype, false))
        ahead = (int32_t)((SPECRT__HEAD_AHEAD + s->row_stride - 1) / s->row_stride);
    for (int32_t row = begin; row < end; row += 4) {
        specrt__head_four(s, row, 0, rows);
        specrt__head_four(s, row + ahead, 0, next);
        if (s->places) specrt__head_walk(s, row + 8, row_bytes);
        four(rows, next, hidden, n_cols, row + 4 <= end ? logits + row : last);
    }
    if (begin < end && (end - begin) % 4 != 0)
        memcpy(logits + end - (end - begin) % 4, last, (size_t)((end - begin) % 4) * sizeof *last);
    specrt__head_bias(s, begin, end, logits);
}

/* Bytes of 32 columns. */
static int64_t specrt__head_block_bytes(int format) {
    static const uint8_t bytes[SPECRT__SIMD_FORMATS] = {128, 64, 64, 34};
    return bytes[format];
}

enum {
    SPECRT__HEAD_SUMS = 24, /* sums kept for the next columns, of four rows and a tile each */
    SPECRT__HEAD_TILE = 4 * SPECRT__SIMD_MOST * 16,
    SPECRT__HEAD_TILES = 4, /* at a time, so that their hidden rows stay in a cache */
    SPECRT__HEAD_MOST = SPECRT__HEAD_TILES * SPECRT__SIMD_MOST,
    SPECRT__HEAD_COLS = 256 /* at a time where they are copied; twice as many of a single tile */
};

/* Rows [begin, end) against n hidden rows. Four rows and 2 or more hidden rows are a tile, whose sums are 16
 * lanes for each product:
 *
 *     hidden rows             first[0]   first[1]   ...   n
 *     rows begin to + 3       |  tile 0  |  tile 1  |     |    sums
 *     rows begin + 4 to + 7   |  tile 0  |  tile 1  |     |    sums + sums_stride
 *
 * The type of the rows decides what is looped over in which order, outer loops first:
 *
 *     f32              columns, rows, tiles   sums of all rows wait for the next columns (_parts)
 *     f16, bf16, q8_0  rows, tiles, columns   sums_stride 0: sums of four rows, added up at once (_columns)
 *     blocks           rows, columns, tiles   the same, of columns that are decoded for all tiles (_expand)
 *
 * In each of them a lane meets its columns from the first to the last, so the order changes no bit. Sums
 * begin as zeros at column 0, and lanes are added up behind the last column (_finish). Tiles are as even as
 * they go, so none has one hidden row, for which there is no tile. */
typedef struct specrt__head_work {
    const specrt__simd_kernels *kernels;
    const specrt_segment *segment;
    const float *hidden; /* [n, n_cols] */
    int64_t n_cols;
    int32_t n, n_tiles, begin, end;
    float *logits; /* [n, logits_stride] */
    size_t logits_stride;
    int32_t first[SPECRT__HEAD_TILES + 1]; /* hidden row of each tile */
    const float *at[SPECRT__HEAD_MOST]; /* the columns of each hidden row, as a kernel wants them */
    float *copies;      /* [n, some columns] for f32, or [n, 32]: those behind the last block */
    float *sums;        /* [rows / 4 or 1, n_tiles, a tile's] */
    size_t sums_stride; /* from four rows to the next; 0: theirs are not kept */
    float *decoded;     /* [4, SPECRT__BLOCKS_COLS] of blocks; as these two, aligned to 64 */
    float room[SPECRT__HEAD_COLS * SPECRT__HEAD_MOST + SPECRT__HEAD_SUMS * SPECRT__HEAD_TILE +
               4 * SPECRT__BLOCKS_COLS + 16];
} specrt__head_work;

/* Tiles as even as they go: the last of full ones would be mostly empty. */
static void specrt__head_divide(specrt__head_work *w) {
    int32_t most = w->kernels->n_hidden[specrt__head_tiles(w->segment->dtype)];
    w->n_tiles = (w->n + most - 1) / most;
    for (int32_t tile = 0; tile <= w->n_tiles; tile++) w->first[tile] = w->n * tile / w->n_tiles;
}

/* Columns [at, at + n) of a hidden row, 0 beyond the last. */
static void specrt__head_copy(const specrt__head_work *w, int32_t h, int64_t at, int64_t n,
                              float *to) {
    int64_t n_left = w->n_cols - at < n ? w->n_cols - at : n;
    memcpy(to, w->hidden + h * w->n_cols + at, (size_t)n_left * sizeof *to);
    memset(to + n_left, 0, (size_t)(n - n_left) * sizeof *to);
}

/* Columns [at, at + n) beside each other: hidden rows that come from memory as fast as they are multiplied
 * must not push each other from the first cache. */
static void specrt__head_gather(specrt__head_work *w, int64_t at, int64_t n) {
    for (int32_t h = 0; h < w->n; h++) {
        float *to = w->copies + h * n;
        specrt__head_copy(w, h, at, n, to);
        w->at[h] = to;
    }
}

/* All columns, where they are; those behind the last block are copied. */
static void specrt__head_point(specrt__head_work *w) {
    int64_t n_whole = w->n_cols / 32 * 32;
    for (int32_t h = 0; h < w->n; h++) {
        w->at[h] = w->hidden + h * w->n_cols;
        if (n_whole < w->n_cols) specrt__head_copy(w, h, n_whole, 32, w->copies + 32 * h);
    }
}

/* Adds the columns behind the last block, for n hidden rows from h0 on. */
static void specrt__head_last(const specrt__head_work *w, int32_t row, int32_t h0, int32_t n,
                              int64_t n_blocks, float *sums) {
    int format = specrt__simd_format(w->segment->dtype);
    const uint8_t *rows[4];
    const float *hidden[SPECRT__SIMD_MOST];
    specrt__simd_tail tail;
    specrt__head_four(w->segment, row, 0, rows);
    specrt__simd_pad(&tail, rows, w->n_cols, (size_t)specrt__head_block_bytes(format) / 32);
    for (int32_t i = 0; i < n; i++)
        hidden[i] =
            format == SPECRT__SIMD_F32 ? w->at[h0 + i] + 32 * n_blocks : w->copies + 32 * (h0 + i);
    w->kernels->tile[format][n - 2](tail.rows, tail.rows, 0, hidden, 1, sums, sums);
}

/* Logits of four rows from their sums, without the bias. */
static void specrt__head_finish(const specrt__head_work *w, int32_t row, const float *sums) {
    float *logits = w->logits + row, last[SPECRT__SIMD_MOST][4];
    for (int32_t tile = 0; tile < w->n_tiles; tile++, sums += SPECRT__HEAD_TILE) {
        int32_t n = w->first[tile + 1] - w->first[tile];
        if (row + 4 <= w->end) {
            w->kernels->lanes(sums, n, logits, w->logits_stride);
            logits += (size_t)n * w->logits_stride;
            continue;
        }
        w->kernels->lanes(sums, n, last[0], 4);
        for (int32_t i = 0; i < n; i++, logits += w->logits_stride)
            memcpy(logits, last[i], (size_t)(w->end - row) * sizeof *logits);
    }
}

/* Adds the columns [at, at + n); rows are fetched in shares, one by each tile. */
static void specrt__head_columns(specrt__head_work *w, int64_t at, int64_t n) {
    static const float zeros[SPECRT__HEAD_TILE] = {0};
    const specrt_segment *s = w->segment;
    int format = specrt__simd_format(s->dtype);
    int64_t bytes = specrt__head_block_bytes(format), n_blocks = n / 32;
    int64_t step = (bytes + w->n_tiles - 1) / w->n_tiles;
    int32_t ahead =
        (int32_t)specrt__base_align((uint64_t)(SPECRT__HEAD_AHEAD / (n_blocks * bytes + 1)) + 1, 4);
    float *sums = w->sums;
    for (int32_t row = w->begin; row < w->end; row += 4, sums += w->sums_stride) {
        const uint8_t *rows[4], *fetch[4], *next[4];
        specrt__head_four(s, row, at / 32 * bytes, rows);
        specrt__head_four(s, row + ahead, at / 32 * bytes, fetch);
        if (s->places && at == 0)
            specrt__head_walk(s, row + 8, specrt_row_bytes(s->dtype, w->n_cols));
        for (int32_t tile = 0, share = 0, r = 0; tile < w->n_tiles; tile++) {
            int32_t h0 = w->first[tile], n_hidden = w->first[tile + 1] - h0;
            float *to = sums + tile * SPECRT__HEAD_TILE;
            for (int p = 0; p < 4; p++) {
                next[p] = fetch[r] + share * n_blocks * step;
                if (++share == w->n_tiles) share = 0, r++;
            }
            w->kernels->tile[format][n_hidden - 2](rows, next, step, w->at + h0, n_blocks,
                                                   at == 0 ? zeros : to, to);
            if (n % 32 != 0) specrt__head_last(w, row, h0, n_hidden, n_blocks, to);
        }
        if (at + n == w->n_cols) specrt__head_finish(w, row, sums);
    }
}

/* Some columns of a few hidden rows stay in the first cache while many rows pass; the sums wait for the
 * next columns. That pays where memory is the bound: rows of f32. */
static void specrt__head_parts(specrt__head_work *w) {
    int64_t n_part = w->n_tiles > 1 ? SPECRT__HEAD_COLS : 2 * SPECRT__HEAD_COLS;
    w->sums_stride = (size_t)w->n_tiles * SPECRT__HEAD_TILE;
    for (int64_t at = 0; at < w->n_cols; at += n_part) {
        int64_t n = w->n_cols - at < n_part ? w->n_cols - at : n_part;
        specrt__head_gather(w, at, (n + 31) / 32 * 32);
        specrt__head_columns(w, at, n);
    }
}

/* Four rows are decoded for all tiles, some columns at a time. */
static void specrt__head_expand(specrt__head_work *w) {
    static const float zeros[SPECRT__HEAD_TILE] = {0};
    const specrt__blocks_kernels *blocks = specrt__blocks_find(w->kernels, w->segment->dtype);
    size_t part_bytes = specrt_row_bytes(w->segment->dtype, SPECRT__BLOCKS_COLS);
    const float *hidden[SPECRT__SIMD_MOST];
    const uint8_t *from[4], *next[4], *rows[4];
    for (int r = 0; r < 4; r++) rows[r] = (const uint8_t *)(w->decoded + r * SPECRT__BLOCKS_COLS);
    for (int32_t row = w->begin; row < w->end; row += 4) {
        specrt__head_four(w->segment, row, 0, from);
        specrt__head_four(w->segment, row + 4, 0, next);
        for (int64_t at = 0; at < w->n_cols; at += SPECRT__BLOCKS_COLS) {
            int64_t n = w->n_cols - at;
            if (n > SPECRT__BLOCKS_COLS) n = SPECRT__BLOCKS_COLS;
            blocks->expand(from, next, n, w->decoded);
            for (int r = 0; r < 4; r++) from[r] += part_bytes, next[r] += part_bytes;
            for (int32_t tile = 0; tile < w->n_tiles; tile++) {
                int32_t h0 = w->first[tile], n_hidden = w->first[tile + 1] - h0;
                float *sums = w->sums + tile * SPECRT__HEAD_TILE;
                for (int32_t h = 0; h < n_hidden; h++) hidden[h] = w->at[h0 + h] + at;
                w->kernels->tile[SPECRT__SIMD_F32][n_hidden - 2](rows, rows, 0, hidden, n / 32,
                                                                 at == 0 ? zeros : sums, sums);
            }
        }
        specrt__head_finish(w, row, w->sums);
    }
}

/* Logits of rows [begin, end) for n > 1 hidden rows: four rows at a time, each read from memory once. */
static void specrt__head_several(const specrt__simd_kernels *kernels, const specrt_segment *s,
                                 int32_t begin, int32_t end, int64_t n_cols, const float *hidden,
                                 int32_t n, float *logits, size_t logits_stride) {
    bool parts = s->dtype == SPECRT_DTYPE_F32;
    int32_t n_hidden = kernels->n_hidden[specrt__head_tiles(s->dtype)];
    int32_t most = SPECRT__HEAD_TILES * n_hidden;
    int32_t n_tiles = ((n < most ? n : most) + n_hidden - 1) / n_hidden;
    int32_t n_rows = SPECRT__HEAD_SUMS / n_tiles * 4;
    specrt__head_work w;
    w.kernels = kernels, w.segment = s, w.n_cols = n_cols;
    w.logits_stride = logits_stride, w.sums_stride = 0;
    w.copies = (float *)(void *)(((uintptr_t)w.room + 63) & ~(uintptr_t)63);
    w.sums = w.copies + SPECRT__HEAD_COLS * SPECRT__HEAD_MOST;
    w.decoded = w.sums + SPECRT__HEAD_SUMS * SPECRT__HEAD_TILE;
    for (; begin < end; begin += n_rows)
        for (int32_t h = 0; h < n; h += w.n) { /* never one alone */
            w.n = n - h <= most ? n - h : n - h < 2 * most ? (n - h) / 2 : most;
            specrt__head_divide(&w);
            w.hidden = hidden + h * n_cols;
            w.logits = logits + (size_t)h * logits_stride;
            w.begin = begin, w.end = end - begin < n_rows ? end : begin + n_rows;
            if (specrt__simd_format(s->dtype) < 0)
                specrt__head_point(&w), specrt__head_expand(&w);
            else if (parts)
                specrt__head_parts(&w);
            else
                specrt__head_point(&w), specrt__head_columns(&w, 0, n_cols);
            for (int32_t i = 0; i < w.n; i++)
                specrt__head_bias(s, w.begin, w.end, w.logits + (size_t)i * logits_stride);
        }
}

/* Logits of rows [begin, end) for n hidden rows.
 *   logits : f32, n rows of logits_stride */
SPECRT__INTERNAL void specrt__head_products(const specrt__simd_kernels *kernels,
                                            const specrt_segment *s, int32_t begin, int32_t end,
                                            int64_t n_cols, const float *hidden, int32_t n,
                                            float *logits, size_t logits_stride) {
    if (n == 1)
        specrt__head_single(kernels, s, begin, end, n_cols, hidden, logits);
    else if (n > 1)
        specrt__head_several(kernels, s, begin, end, n_cols, hidden, n, logits, logits_stride);
}

/* --- from products to logits: scaled, then capped (specrt_head_desc.logit_scale) --- */

/* The same of n products, in place. Monotone: which logits are the best stays. */
SPECRT__INTERNAL void specrt__head_shape(const specrt_head_desc *desc, int32_t n, float *x) {
    float scale = desc->logit_scale, cap = desc->softcap;
    if (specrt__head_is_plain(desc)) return;
    for (int32_t i = 0; i < n; i++) x[i] *= scale;
    for (int32_t i = 0; i < n && cap > 0; i++) x[i] = cap * tanhf(x[i] / cap);
}
