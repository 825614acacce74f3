/* measure.c : how costs are measured: in rounds, so that what disturbs the machine for a while hits all sizes
 * alike. Lowers times that cannot be, and says that the machine was too busy to tell. */
#include "specrt_adapt.h"
#include "adapt/costs.h"
#include "core/base.h"
#include "core/os.h"

#define SPECRT__MEASURE_SECONDS   1.2
#define SPECRT__MEASURE_EXTRA     1.6  /* times the seconds: no size is added later */
#define SPECRT__MEASURE_TOLERANCE 0.07 /* of curves between measured sizes, as a share */
#define SPECRT__MEASURE_SPREAD    0.25 /* a greater one decides nothing */
#define SPECRT__MEASURE_OFF       1.5 /* times what a pass can take: the machine did something else */

enum {
    SPECRT__MEASURE_LEAST_ROUNDS = 2, /* for the sizes that the spread is of, whatever they take */
    SPECRT__MEASURE_ROUNDS = 5,
    SPECRT__MEASURE_ALL_ROUNDS = 12,
    SPECRT__MEASURE_MOST_ROUNDS = 20, /* of a disturbed machine */
    SPECRT__MEASURE_TIMES = 40,
    SPECRT__MEASURE_SITES = 128,
    SPECRT__MEASURE_LEAST_ROWS = 256,
    SPECRT__MEASURE_CHAIN = 9,   /* nodes of the longest chain that is tried */
    SPECRT__MEASURE_VERIFIED = 4 /* tokens of the pass that verifies three drafts */
};

/* A size of one kind of pass. */
typedef struct specrt__site {
    specrt_pass pass;
    int32_t size;
    bool held, asked; /* unseen by the curves; to be timed now */
    int32_t n;
    double times[SPECRT_PASS_TIMES][SPECRT__MEASURE_TIMES]; /* [n] each */
} specrt__site;

typedef struct specrt__survey {
    const specrt_meter *meter;
    specrt_costs *costs;
    double began, seconds;
    bool all;
    int32_t n_block; /* of the meter's drafts; 0: they are token by token */
    int32_t n, n_errors;
    specrt__site sites[SPECRT__MEASURE_SITES];
    double errors[(int)SPECRT__MEASURE_SITES * (int)SPECRT_PASS_TIMES];
} specrt__survey;

/* --- sizes --- */

static bool specrt__survey_add(specrt__survey *v, specrt_pass pass, int64_t size, bool held) {
    if (v->n == SPECRT__MEASURE_SITES) return false;
    specrt__site *s = &v->sites[v->n++];
    s->pass = pass;
    s->size = (int32_t)size;
    s->held = held;
    s->asked = true;
    return true;
}

/* @return the greatest that was added */
static int32_t specrt__survey_add_all(specrt__survey *v, specrt_pass pass, const int32_t *sizes,
                                      int32_t n, bool held) {
    int32_t last = 0;
    for (int32_t i = 0; i < n && sizes[i] <= v->meter->most[pass]; i++)
        specrt__survey_add(v, pass, last = sizes[i], held);
    return last;
}

/* Powers of two and all rows; held back, the sizes between them. */
static void specrt__survey_add_head(specrt__survey *v) {
    int64_t most = v->meter->most[SPECRT_PASS_HEAD];
    for (int64_t rows = SPECRT__MEASURE_LEAST_ROWS; rows < most; rows *= 2) {
        int64_t next = 2 * rows < most ? 2 * rows : most;
        specrt__survey_add(v, SPECRT_PASS_HEAD, rows, false);
        if (next > rows + 1)
            specrt__survey_add(v, SPECRT_PASS_HEAD, rows + (next - rows) / 2, true);
    }
    if (most > 0) specrt__survey_add(v, SPECRT_PASS_HEAD, most, false);
}

/* Blocks of one position and whole ones, then these behind more tokens; of all, lengths in between. */
static void specrt__survey_add_blocks(specrt__survey *v) {
    specrt__survey_add(v, SPECRT_PASS_DRAFT, 1, false);
    if (v->n_block > 1) specrt__survey_add(v, SPECRT_PASS_DRAFT, v->n_block, false);
    specrt__survey_add(v, SPECRT_PASS_DRAFT, v->n_block + SPECRT__COSTS_READ, false);
    for (int32_t n = 2; v->all && n < v->n_block; n *= 2)
        specrt__survey_add(v, SPECRT_PASS_DRAFT, n, false);
    for (int32_t n = 3; v->all && n < v->n_block; n *= 2)
        specrt__survey_add(v, SPECRT_PASS_DRAFT, n, true);
}

static void specrt__survey_fill(specrt__survey *v) {
    static const int32_t nodes[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48};
    static const int32_t other_nodes[] = {5, 7, 9, 14, 20, 28, 40, 54};
    static const int32_t drafts[] = {1, 8}, more_drafts[] = {2, 4, 10}, other_drafts[] = {3, 6};
    static const int32_t prompts[] = {16, 64, 256};
    const int32_t *most = v->meter->most;
    int32_t last = specrt__survey_add_all(v, SPECRT_PASS_TARGET, nodes, 11, false);
    int32_t nodes_most = most[0] < SPECRT_TREE_MAX_NODES ? most[0] : SPECRT_TREE_MAX_NODES;
    if (last < nodes_most) specrt__survey_add(v, SPECRT_PASS_TARGET, nodes_most, false);
    if (v->n_block > 0)
        specrt__survey_add_blocks(v);
    else
        specrt__survey_add_all(v, SPECRT_PASS_DRAFT, drafts, 2, false);
    if (!v->all) return;
    for (int32_t i = 0; i < 8 && other_nodes[i] < nodes_most; i++)
        specrt__survey_add(v, SPECRT_PASS_TARGET, other_nodes[i], true);
    specrt__survey_add_all(v, SPECRT_PASS_DRAFT, more_drafts, 3, false); /* of blocks, none */
    specrt__survey_add_all(v, SPECRT_PASS_DRAFT, other_drafts, 2, true);
    specrt__survey_add_head(v);
    last = specrt__survey_add_all(v, SPECRT_PASS_PROMPT, prompts, 3, false);
    if (last == 0 && most[SPECRT_PASS_PROMPT] > 0)
        specrt__survey_add(v, SPECRT_PASS_PROMPT, most[SPECRT_PASS_PROMPT], false);
}

/* --- curves --- */

static double specrt__survey_elapsed(const specrt__survey *v) {
    return specrt__os_seconds() - v->began;
}

/* The lower quartile, of which other programs can disturb three rounds in four, and on which a round that
 * found its memory in a cache has no say. low, high: ranks that enclose it with 95%, or all */
static double specrt__site_seconds(const specrt__site *s, int32_t time, double *low, double *high) {
    double x[SPECRT__MEASURE_TIMES], mass = pow(0.75, s->n), below = mass;
    int32_t n = 0, first = 0, last = s->n - 1;
    for (; n < s->n; n++) {
        int32_t i = n;
        for (; i > 0 && x[i - 1] > s->times[time][n]; i--) x[i] = x[i - 1];
        x[i] = s->times[time][n];
    }
    for (int32_t i = 0; i < last; i++) { /* below: the chance that at most i + 1 of n are */
        if (below <= 0.025) first = i;
        if (below >= 0.975) last = i;
        mass *= (n - i) / (3.0 * (i + 1));
        below += mass;
    }
    *low = x[first];
    *high = x[last];
    return x[(n - 1) / 4];
}

/* @return the curve of one of a pass's times; NULL: the pass has fewer */
static specrt_curve *specrt__survey_curve(specrt_costs *c, specrt_pass pass, int32_t time) {
    static const int32_t first[] = {0, 1, 2, 6, SPECRT__COSTS_CURVES};
    const char *name;
    int32_t i = first[pass] + time;
    return i < first[pass + 1] ? specrt__costs_curve(c, i, &name) : NULL;
}

/* A pass takes no longer than a larger one, and no longer than passes of fewer tokens that do its work.
 * @return whether one of a chain did, by more than noise; large trees have few rounds, and are lowered
 * alone */
static bool specrt__measure_lower(specrt_curve *c) {
    bool disturbed = false;
    for (int32_t k = 2 * c->n - 2; k > 0; k--) { /* down the sizes, then up again */
        int32_t i = k >= c->n ? k - c->n : c->n - k;
        double most =
            k >= c->n ? c->seconds[i + 1] : c->seconds[i - 1] * c->sizes[i] / c->sizes[i - 1];
        if (c->seconds[i] <= SPECRT__MEASURE_OFF * most) continue;
        c->seconds[i] = c->low[i] = c->high[i] = most;
        disturbed = disturbed || c->sizes[i] <= SPECRT__MEASURE_CHAIN;
    }
    return disturbed;
}

/* The width of a size's interval. */
static double specrt__measure_width(const specrt_curve *c, int32_t size) {
    for (int32_t i = 0; i < c->n; i++)
        if (c->sizes[i] == size) return c->high[i] - c->low[i];
    return 0;
}

SPECRT__INTERNAL void specrt__costs_judge(specrt_costs *c) {
    const specrt_curve *target = &c->target, *draft = &c->draft;
    int32_t most = target->n > 0 ? target->sizes[target->n - 1] : 1;
    int32_t n = most < SPECRT__MEASURE_VERIFIED ? most : SPECRT__MEASURE_VERIFIED;
    int32_t size = c->n_block > 0 ? c->n_block : 1, passes = c->n_block > 0 ? 1 : n - 1;
    double plain = specrt_curve_at(target, 1);
    double cycle = specrt_curve_at(target, n) + passes * specrt_curve_at(draft, size);
    double width = specrt__measure_width(target, n) + passes * specrt__measure_width(draft, size);
    c->spread = hypot(width / cycle, specrt__measure_width(target, 1) / plain);
    if (c->spread > SPECRT__MEASURE_SPREAD) c->disturbed = 1;
}

static void specrt__survey_make_curves(specrt__survey *v) {
    const char *name;
    specrt_curve *curve;
    SPECRT__CLEAR(v->costs, 1);
    v->costs->n_block = v->n_block;
    for (int32_t k = 0; k < v->n; k++) {
        const specrt__site *s = &v->sites[k];
        if (s->held || s->n == 0) continue;
        for (int32_t i = 0; (curve = specrt__survey_curve(v->costs, s->pass, i)) != NULL; i++) {
            double low, high, seconds = specrt__site_seconds(s, i, &low, &high);
            int32_t at = seconds > 0 ? specrt_curve_add(curve, s->size, seconds) : -1;
            if (at >= 0) curve->low[at] = low, curve->high[at] = high;
        }
    }
    bool target = specrt__measure_lower(&v->costs->target);
    bool draft = specrt__measure_lower(&v->costs->draft);
    v->costs->disturbed = target || draft;
    for (int32_t i = 0; (curve = specrt__costs_curve(v->costs, i, &name)) != NULL; i++)
        specrt_curve_make_monotone(curve);
    specrt__costs_judge(v->costs);
}

/* --- rounds --- */

static bool specrt__survey_decides(const specrt__survey *v, const specrt__site *s) {
    if (s->pass == SPECRT_PASS_DRAFT) return s->size == (v->n_block > 0 ? v->n_block : 1);
    int32_t most = v->meter->most[SPECRT_PASS_TARGET];
    int32_t n = most < SPECRT__MEASURE_VERIFIED ? most : SPECRT__MEASURE_VERIFIED;
    return s->pass == SPECRT_PASS_TARGET && (s->size == 1 || s->size == n);
}

/* Late in the first round a size is left out if there are two of its kind; of all that a meter times, only
 * long prompts are. */
static bool specrt__survey_skips(const specrt__survey *v, const specrt__site *s, int32_t round) {
    if (specrt__survey_decides(v, s)) return false;
    if (round > 0) return true;
    return (!v->all || s->pass == SPECRT_PASS_PROMPT) && s - v->sites > 1 && s[-2].pass == s->pass;
}

static int specrt__survey_round(specrt__survey *v, int32_t round, double until) {
    for (int32_t k = 0; k < v->n; k++) {
        specrt__site *s = &v->sites[k];
        double seconds[SPECRT_PASS_TIMES] = {0};
        if (!s->asked || s->n == SPECRT__MEASURE_TIMES ||
            (specrt__survey_elapsed(v) > until && specrt__survey_skips(v, s, round)))
            continue;
        int code = v->meter->pass(v->meter->user, s->pass, s->size, seconds);
        if (code != 0) return code;
        for (int32_t i = 0; i < SPECRT_PASS_TIMES; i++) s->times[i][s->n] = seconds[i];
        s->n++;
    }
    for (int32_t k = 0; k < v->n; k++) v->sites[k].asked = v->sites[k].asked && v->sites[k].n > 0;
    return 0;
}

/* When time is up, the sizes that decide are still timed: an interval over two or three rounds is as wide as
 * all of their times. */
static bool specrt__survey_ends(specrt__survey *v, int32_t round, double until) {
    int32_t enough = v->all ? SPECRT__MEASURE_ALL_ROUNDS : SPECRT__MEASURE_ROUNDS;
    bool late = specrt__survey_elapsed(v) > until;
    if (round < SPECRT__MEASURE_LEAST_ROUNDS + v->all || (round < enough && !late)) return false;
    specrt__survey_make_curves(v);
    if (!late) return !v->costs->disturbed;
    return round >= enough || v->costs->spread <= SPECRT__MEASURE_SPREAD;
}

static int specrt__survey_rounds(specrt__survey *v, double until) {
    int code = 0;
    for (int32_t round = 0; round < SPECRT__MEASURE_MOST_ROUNDS && code == 0; round++) {
        if (specrt__survey_ends(v, round, until)) break;
        code = specrt__survey_round(v, round, round ? until : SPECRT__MEASURE_EXTRA * v->seconds);
    }
    return code;
}

/* --- sizes in between --- */

/* By what shares the curves miss what they have not seen. out: [n], as many times as the pass has.
 * @return the greatest */
static double specrt__survey_miss(const specrt__survey *v, const specrt__site *s, double *out,
                                  int32_t *n) {
    double worst = 0, low, high;
    const specrt_curve *curve;
    *n = 0;
    for (int32_t i = 0; (curve = specrt__survey_curve(v->costs, s->pass, i)) != NULL; i++) {
        double seconds = specrt__site_seconds(s, i, &low, &high);
        if (!(seconds > 0)) continue;
        double off = fabs(specrt_curve_at(curve, s->size) / seconds - 1);
        out[(*n)++] = off;
        if (off > worst) worst = off;
    }
    return worst;
}

/* The nearest size that the curves know, above (side 1) or below (-1). */
static specrt__site *specrt__survey_next_to(specrt__survey *v, const specrt__site *of,
                                            int32_t side) {
    specrt__site *found = NULL;
    for (int32_t i = 0; i < v->n; i++) {
        specrt__site *s = &v->sites[i];
        if (s->pass != of->pass || s->held || s->n == 0 || (s->size - of->size) * side <= 0)
            continue;
        if (!found || (found->size - s->size) * side > 0) found = s;
    }
    return found;
}

/* Ask again of a gap, and of its two halves unless they are narrow. @return whether any is asked for. */
static bool specrt__survey_split(specrt__survey *v, specrt__site *s) {
    bool any = false;
    for (int32_t side = -1; side <= 1; side += 2) {
        specrt__site *other = specrt__survey_next_to(v, s, side);
        int32_t half = other ? side * (other->size - s->size) / 2 : 0;
        if (half == 0 || half < s->size / 16 ||
            !specrt__survey_add(v, s->pass, s->size + side * half, true))
            continue;
        s->asked = other->asked = any = true;
    }
    return any;
}

/* Held sizes join the curves. Where these were far off, the next ones to be held are asked for, if there is
 * time; what they missed elsewhere stands. @return whether any are asked for. */
static bool specrt__survey_judge(specrt__survey *v, bool refine) {
    bool any = false;
    double off[SPECRT_PASS_TIMES];
    int32_t n = v->n, n_off;
    specrt__survey_make_curves(v);
    for (int32_t k = 0; k < n; k++) v->sites[k].asked = false;
    for (int32_t k = 0; k < n; k++) {
        specrt__site *s = &v->sites[k];
        if (!s->held || s->n == 0) continue;
        double worst = specrt__survey_miss(v, s, off, &n_off);
        bool splits = worst > SPECRT__MEASURE_TOLERANCE && refine && specrt__survey_split(v, s);
        any = any || splits;
        for (int32_t i = 0; !splits && i < n_off; i++) v->errors[v->n_errors++] = off[i];
    }
    for (int32_t k = 0; k < n; k++) v->sites[k].held = false;
    return any;
}

/* --- all --- */

/* A round of the smallest passes reads the weights from disk, if need be. */
static int specrt__survey_take(specrt__survey *v) {
    double unused[SPECRT_PASS_TIMES], late = SPECRT__MEASURE_EXTRA * v->seconds;
    int code = v->meter->pass(v->meter->user, SPECRT_PASS_TARGET, 1, unused);
    if (code == 0) code = v->meter->pass(v->meter->user, SPECRT_PASS_DRAFT, 1, unused);
    if (code == 0) code = specrt__survey_rounds(v, v->seconds);
    while (code == 0 && specrt__survey_judge(v, specrt__survey_elapsed(v) < late))
        code = specrt__survey_rounds(v, late);
    return code;
}

static int specrt__measure_by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static specrt_status specrt__survey_run(specrt__survey *v, specrt_costs *out, specrt_error *err) {
    double busy = specrt__costs_load();
    v->began = specrt__os_seconds();
    v->costs = out;
    specrt__survey_fill(v);
    int code = specrt__survey_take(v);
    if (code != 0) {
        SPECRT__CLEAR(out, 1);
        return specrt_error_set(err, SPECRT_STATUS_HOST,
                                "costs: expected passes of both models, found that one failed with "
                                "%d",
                                code);
    }
    specrt__survey_make_curves(v);
    qsort(v->errors, (size_t)v->n_errors, sizeof *v->errors, specrt__measure_by_size);
    if (v->n_errors > 0) {
        out->error = v->errors[v->n_errors / 2];
        out->worst = v->errors[v->n_errors - 1];
    }
    specrt_costs_machine(out->machine);
    out->busy = busy;
    out->changed = 1;
    out->seconds = specrt__survey_elapsed(v);
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_costs_measure(const specrt_meter *meter, double seconds, int all,
                                              specrt_costs *out, specrt_error *err) {
    SPECRT__NEED(meter);
    SPECRT__NEED(out);
    SPECRT__CLEAR(out, 1);
    if (!meter->pass || meter->most[0] < 1 || meter->most[1] == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "costs: meter: expected passes of 1 token or more of target and "
                                "drafter, found %d and %d",
                                (int)meter->most[0], (int)meter->most[1]);
    specrt__survey *v = (specrt__survey *)calloc(1, sizeof *v);
    if (!v) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "costs: out of memory");
    v->meter = meter;
    v->n_block = meter->most[SPECRT_PASS_DRAFT] < 0 ? -meter->most[SPECRT_PASS_DRAFT] : 0;
    v->seconds = seconds > 0 ? seconds : SPECRT__MEASURE_SECONDS;
    v->all = all != 0;
    specrt_status status = specrt__survey_run(v, out, err);
    free(v);
    return status;
}

SPECRT_API int specrt_costs_busy(const specrt_costs *c, char *line) {
    char cores[64] = "", why[64] = "more work took less time";
    if (!c || !line) return 0;
    line[0] = '\0';
    if (!c->disturbed) return 0;
    if (c->spread > SPECRT__MEASURE_SPREAD)
        snprintf(why, sizeof why, "costs differ by %.0f%% between rounds", 100 * c->spread);
    if (c->busy >= 0.5)
        snprintf(cores, sizeof cores, "; the load was %.0f on %ld processors", c->busy,
                 specrt__os_processors());
    snprintf(line, SPECRT_COSTS_TEXT,
             "too busy to tell: %s; wait until the machine is idle, or measure for more seconds "
             "(plan --measure)%s",
             why, cores);
    return 1;
}
