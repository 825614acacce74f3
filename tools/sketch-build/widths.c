/* widths.c : which directions of a spectrum have 8, 4, 2, 1 or no bits, for a budget of bytes
 * (docs/METHODS.md, "Bands"). Every choice of falling widths in whole lines is tried: sums of the spectrum
 * make each one cheap, and the best is exact, the same for any number of threads. */
#include <math.h>
#include <stdlib.h>
#include "build.h"
#include "base/error.h"

enum { WIDTHS = 4 };
static const int32_t widths[WIDTHS] = {8, 4, 2, 1};

/* Share of a normal variable's square that the best even steps of a width lose (Max, "Quantizing for minimum
 * distortion", 1960, table II). */
static const double lost[WIDTHS] = {1.2e-4, 0.01154, 0.1188, 0.3634};

typedef struct choice {
    const double *sums; /* [d + 1] of the spectrum's first values */
    int32_t d;
    double bits, least; /* to spend; the least loss so far */
    int32_t now[WIDTHS], best[WIDTHS];
} choice;

/* What a choice loses. */
static double loss(const choice *c) {
    double sum = 0;
    int32_t at = 0;
    for (int w = 0; w < WIDTHS; w++) {
        sum += lost[w] * (c->sums[at + c->now[w]] - c->sums[at]);
        at += c->now[w];
    }
    return sum + c->sums[c->d] - c->sums[at];
}

/* The most directions of width w beside `used` others, with so many bits left. */
static int32_t room(const choice *c, int w, int32_t used, double left) {
    int32_t step = 32 / widths[w], lines = (c->d - used) / step;
    double paid = floor((left - 8 * BANDS_SCALE) / 32); /* a line is 32 bits of a row */
    if (paid < lines) lines = paid > 0 ? (int32_t)paid : 0;
    return lines * step;
}

/* Tries directions for width w and those below. Of the last width as many as go: each one helps. */
static void try_width(choice *c, int w, int32_t used, double left) {
    int32_t most = room(c, w, used, left), step = 32 / widths[w];
    if (w == WIDTHS - 1) {
        c->now[w] = most;
        double now = loss(c);
        if (now >= c->least || used + most == 0) return;
        c->least = now;
        for (int i = 0; i < WIDTHS; i++) c->best[i] = c->now[i];
        return;
    }
    for (int32_t n = 0; n <= most; n += step) {
        c->now[w] = n;
        try_width(c, w + 1, used + n, n ? left - (double)n * widths[w] - 8 * BANDS_SCALE : left);
    }
}

specrt_status widths_choose(const double *spectrum, int32_t d, double bytes, band_list *out,
                            specrt_error *err) {
    double *sums = malloc(((size_t)d + 1) * sizeof *sums);
    choice c = {.sums = sums, .d = d, .least = INFINITY};
    if (!sums) return sl_error_no_memory_for(err, "the widths");
    sums[0] = 0;
    for (int32_t k = 0; k < d; k++) sums[k + 1] = sums[k] + fmax(spectrum[k], 0);
    *out = (band_list){0};
    try_width(&c, 0, 0, 8 * (bytes - BANDS_CONSTANT));
    free(sums);
    for (int w = 0; w < WIDTHS; w++) {
        if (c.best[w] == 0) continue;
        out->rank += c.best[w];
        out->bands[out->n].rank = c.best[w];
        out->bands[out->n++].bits = widths[w];
    }
    if (out->n > 0) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "--bytes: expected %d or more, room for a line of codes, found %g",
                            BANDS_CONSTANT + BANDS_SCALE + 4, bytes);
}

double widths_bytes(const band_list *list, int32_t n_bands) {
    double bytes = BANDS_CONSTANT;
    for (int32_t i = 0; i < n_bands; i++)
        bytes += list->bands[i].rank * list->bands[i].bits / 8.0 + BANDS_SCALE;
    return bytes;
}
