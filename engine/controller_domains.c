/* controller_domains.c : weights of their own for prompts that lie near each other, so that what is learnt
 * of one domain is there again when it comes back. A prompt's state is the mean of the target's features over
 * its first rows, of length 1; its domain is the one whose mean is nearest. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "engine/controller_impl.h"

/* A prompt opens a domain when its squared distance to the nearest mean is so many times that of the prompts
 * there, of which there are at least so many. */
#define DOMAIN_FAR 1.5
enum { DOMAIN_FEWEST = 4 };

/* ---- life ---------------------------------------------------------------------------------------- */

static specrt_status create_guard(engine_controller *c, kept_guard *g, specrt_error *err) {
    int64_t n;
    engine_align_masters(c->align, &n);
    g->values[GUARD_START] = c->start;
    for (int set = GUARD_GOOD; set < GUARD_SETS; set++) {
        g->values[set] = (float *)malloc((size_t)n * sizeof(float));
        if (!g->values[set]) return error_no_memory_for(err, "the drafter's alignment");
        memcpy(g->values[set], c->start, (size_t)n * sizeof(float));
    }
    return SPECRT_STATUS_OK;
}

specrt_status domain_create(engine_controller *c, specrt_error *err) {
    kept_domain *d = &c->domains[c->n_domains];
    specrt_status status = SPECRT_STATUS_OK;
    *d = (kept_domain){0};
    if (c->params.align.mode == ENGINE_ALIGN_LORA)
        status = specrt_align_create(c->head, c->n_logits, &c->params.gate, NULL, &d->gate, err);
    if (status == SPECRT_STATUS_OK && c->params.guard) status = create_guard(c, &d->guard, err);
    if (status == SPECRT_STATUS_OK && c->n_domains > 0)
        status = engine_align_state_create(c->align, c->start, &d->state, err);
    if (status == SPECRT_STATUS_OK && c->d_state > 0) {
        d->mean = (float *)calloc((size_t)c->d_state, sizeof *d->mean);
        if (!d->mean) status = error_no_memory_for(err, "the drafter's alignment");
    }
    if (status == SPECRT_STATUS_OK)
        c->n_domains++;
    else
        domain_free(d);
    return status;
}

void domain_free(kept_domain *d) {
    specrt_align_close(d->gate);
    engine_align_state_free(&d->state);
    for (int set = GUARD_GOOD; set < GUARD_SETS; set++) free(d->guard.values[set]);
    for (int i = 0; i < 2; i++) {
        kept_rows_free(&d->batches[i].past);
        kept_rows_free(&d->batches[i].drafted);
        free(d->batches[i].places);
    }
    free(d->mean);
    *d = (kept_domain){0};
}

/* ---- whose prompt it is -------------------------------------------------------------------------- */

static bool reserve_state(engine_controller *c, int32_t width) {
    if (c->d_state == width) return true;
    c->state = (float *)malloc((size_t)width * sizeof *c->state);
    c->domains[0].mean = (float *)calloc((size_t)width, sizeof(float));
    if (!c->state || !c->domains[0].mean) return false;
    c->d_state = width;
    return true;
}

/* The mean of rows, as a direction; zeros where it has none. */
static void make_state(engine_controller *c, const float *features, int32_t n) {
    double length = 0;
    for (int32_t i = 0; i < c->d_state; i++) {
        double sum = 0;
        for (int32_t row = 0; row < n; row++)
            sum += (double)features[(int64_t)row * c->d_state + i];
        c->state[i] = (float)(sum / n);
        length += (double)c->state[i] * (double)c->state[i];
    }
    length = sqrt(length);
    for (int32_t i = 0; i < c->d_state; i++)
        c->state[i] = length > 0 && isfinite(length) ? (float)((double)c->state[i] / length) : 0;
}

static double distance_to(const engine_controller *c, const kept_domain *d) {
    double sum = 0;
    for (int32_t i = 0; i < c->d_state; i++) {
        double x = (double)c->state[i] - (double)d->mean[i];
        sum += x * x;
    }
    return sum;
}

static bool is_far(const kept_domain *d, double distance) {
    return d->n >= DOMAIN_FEWEST && distance > DOMAIN_FAR * d->spread / (double)(d->n - 1);
}

static void join_domain(const engine_controller *c, kept_domain *d, double distance) {
    if (d->n > 0) d->spread += distance;
    d->n++;
    for (int32_t i = 0; i < c->d_state; i++) d->mean[i] += (c->state[i] - d->mean[i]) / (float)d->n;
}

/* Its masters and moments come in, those of the one before go out. */
static void switch_to(engine_controller *c, kept_domain *d) {
    if (d == c->at) return;
    controller_settle(c, true);
    engine_align_state state = d->state;
    d->state = (engine_align_state){0};
    engine_align_exchange(c->align, &state);
    c->at->state = state;
    c->at = d;
    c->stats.n_recalls++;
    if (c->params.guard)
        engine_align_draft(c->align, d->guard.values[d->guard.drafts]);
    else
        engine_align_swap(c->align);
}

void domain_recall(engine_controller *c, const float *features, int32_t n, int32_t width) {
    kept_domain *nearest = c->domains;
    if (!reserve_state(c, width)) return;
    make_state(c, features, n);
    for (int32_t i = 1; i < c->n_domains; i++)
        if (distance_to(c, &c->domains[i]) < distance_to(c, nearest)) nearest = &c->domains[i];
    double distance = distance_to(c, nearest);
    if (c->n_domains < c->params.n_domains && is_far(nearest, distance) &&
        domain_create(c, NULL) == SPECRT_STATUS_OK) {
        nearest = &c->domains[c->n_domains - 1];
        distance = 0;
    }
    join_domain(c, nearest, distance);
    switch_to(c, nearest);
}
