/* shard.c : see shard.h. */
#include "base/shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/cli.h"
#include "base/mpi.h"

static bool env_int(const char *name, int64_t *out) {
    const char *text = name ? getenv(name) : NULL;
    char *end;
    if (!text || !*text) return false;
    *out = strtoll(text, &end, 10);
    return *end == '\0';
}

/* Rank variables of schedulers. Slurm's array ids may start anywhere and step. */
static const struct {
    const char *index, *count, *first, *step;
} schedulers[] = {
    {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN",
     "SLURM_ARRAY_TASK_STEP"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL, NULL},
    {"PMI_RANK", "PMI_SIZE", NULL, NULL},
};

/* By the first scheduler's variables, with a line that says so; unchanged where there are none. */
static int take_scheduler(shard *out) {
    for (size_t i = 0; i < sizeof schedulers / sizeof schedulers[0]; i++) {
        int64_t index, count, first = 0, step = 1;
        if (!env_int(schedulers[i].index, &index) || !env_int(schedulers[i].count, &count))
            continue;
        if (env_int(schedulers[i].first, &first) && env_int(schedulers[i].step, &step) && step > 0)
            index = (index - first) / step;
        if (count <= 1) return -1;
        if (index < 0 || index >= count)
            return sl_cli_usage("%s and %s: expected a rank from 0 to below the number of ranks, "
                                "found others; give --shard I/N",
                                schedulers[i].index, schedulers[i].count);
        *out = (shard){index, count};
        sl_cli_info("counting shard %" PRId64 " of %" PRId64 " (%s); --shard 0/1 counts all", index,
                    count, schedulers[i].index);
        return -1;
    }
    return -1;
}

int sl_shard_parse(const char *text, shard *out) {
    int read = 0;
    if (sscanf(text, "%" SCNd64 "/%" SCNd64 "%n", &out->index, &out->n, &read) != 2 || text[read] ||
        out->n < 1 || out->index < 0 || out->index >= out->n)
        return sl_cli_usage("--shard: expected I/N with 0 <= I < N, found '%s'", text);
    return -1;
}

int sl_shard_choose(const char *text, bool counts_only, bool has_corpus, const char *what,
                    shard *out) {
    int code = -1;
    *out = (shard){0, 1};
    if (text)
        code = sl_shard_parse(text, out);
    else if (sl_mpi_n_ranks() == 1 && counts_only && has_corpus)
        code = take_scheduler(out);
    if (code < 0 && text && out->n > 1 && !counts_only)
        sl_cli_warn("the %s will contain shard %s of the corpus only; combine shards with "
                    "--counts-out and --merge",
                    what, text);
    out->index += out->n * sl_mpi_rank();
    out->n *= sl_mpi_n_ranks();
    return code;
}
