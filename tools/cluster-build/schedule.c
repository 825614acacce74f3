/* schedule.c : how many clusters each level of the tree gets. */
#include "build.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"

static const char *const shapes[] = {"harmonic", "flat"};

/* The shape of this name; NULL: it is none. */
static const char *shape_named(const char *name) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(name, shapes[i]) == 0) return shapes[i];
    return NULL;
}

/* Level t of a named shape that begins with `most` clusters. */
static int32_t level_of(const char *shape, int32_t most, int32_t t) {
    int32_t n = most;
    if (strcmp(shape, "harmonic") == 0 && t >= 2) n = most / (2 * (t + 1));
    return n > 1 ? n : 1;
}

/* Mean rows over the first levels. */
static void weigh(const double *rows_of, schedule *out) {
    out->rows = 0;
    for (int32_t t = 0; t < SCHEDULE_MEAN; t++)
        out->rows += rows_of[out->clusters[t < out->n ? t : out->n - 1]] / SCHEDULE_MEAN;
}

static void fill(const char *shape, int32_t most, const double *rows_of, schedule *out) {
    out->n = SCHEDULE_LEVELS;
    for (int32_t t = 0; t < SCHEDULE_LEVELS; t++) out->clusters[t] = level_of(shape, most, t);
    weigh(rows_of, out);
}

static specrt_status parse(const char *list, int32_t n_clusters, schedule *out, specrt_error *err) {
    const char *at = list;
    *out = (schedule){0};
    for (;;) {
        char *end;
        long n = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || n < 1 || n > n_clusters ||
            out->n == SCHEDULE_LEVELS)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "--schedule: expected harmonic, flat or 1 to %d "
                                    "numbers from 1 to the %d clusters, found '%s'",
                                    SCHEDULE_LEVELS, (int)n_clusters, list);
        out->clusters[out->n++] = (int32_t)n;
        if (!*end) return SPECRT_STATUS_OK;
        at = end + 1;
    }
}

specrt_status schedule_make(const char *name, double rows, const double *rows_of,
                            int32_t n_clusters, schedule *out, specrt_error *err) {
    const char *shape = shape_named(name);
    if (!shape) {
        TRY(parse(name, n_clusters, out, err));
        weigh(rows_of, out);
        return SPECRT_STATUS_OK;
    }
    double room = rows * (1 + 1e-9); /* sums of means are not exact */
    for (int32_t most = n_clusters; most > 0; most--) {
        fill(shape, most, rows_of, out);
        if (out->rows <= room) return SPECRT_STATUS_OK;
    }
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "--mean-rows: expected room for one of the %d clusters a level, %.0f "
                            "rows, found %.0f; give more rows or more clusters",
                            (int)n_clusters, rows_of[1], rows);
}
