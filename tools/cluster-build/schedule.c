/* schedule.c : how many clusters each level of the tree gets. */
#include "build.h"

#include <stdlib.h>
#include <string.h>

/* Level t of a named shape that begins with `most` clusters. */
static int32_t level_of(const char *shape, int32_t most, int32_t t) {
    int32_t n = most;
    if (strcmp(shape, "german") == 0 && t >= 2) n = most / (2 * (t + 1));
    if (strcmp(shape, "halving") == 0 && t >= 2) n = most >> (t - 1);
    return n > 1 ? n : 1;
}

static void fill(const char *shape, int32_t most, schedule *out) {
    out->n = SCHEDULE_LEVELS;
    out->mean = 0;
    for (int32_t t = 0; t < SCHEDULE_LEVELS; t++) {
        out->clusters[t] = level_of(shape, most, t);
        if (t < SCHEDULE_MEAN) out->mean += (double)out->clusters[t] / SCHEDULE_MEAN;
    }
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
                                    "--schedule: expected german, halving, flat or 1 to %d numbers "
                                    "from 1 to the %d clusters, found '%s'",
                                    SCHEDULE_LEVELS, (int)n_clusters, list);
        out->clusters[out->n++] = (int32_t)n;
        if (!*end) break;
        at = end + 1;
    }
    for (int32_t t = 0; t < SCHEDULE_MEAN; t++)
        out->mean += (double)out->clusters[t < out->n ? t : out->n - 1] / SCHEDULE_MEAN;
    return SPECRT_STATUS_OK;
}

specrt_status schedule_make(const char *shape, double mean, int32_t n_clusters, schedule *out,
                            specrt_error *err) {
    if (strcmp(shape, "german") != 0 && strcmp(shape, "halving") != 0 && strcmp(shape, "flat") != 0)
        return parse(shape, n_clusters, out, err);
    int32_t most = n_clusters;
    for (fill(shape, most, out); out->mean > mean && most > 1; fill(shape, most, out)) most--;
    if (out->mean <= mean) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "--mean-rows: expected room for one of the %d clusters a level, found "
                            "that for %.3f; give more rows or more clusters",
                            (int)n_clusters, mean);
}
