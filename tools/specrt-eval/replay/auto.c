/* auto.c : see auto.h. Every way, fixed choices too, is a specrt_auto: those have all of its
 * parts left out. Cycles are walked as replay walks them; in a draft that has left the text, the
 * probabilities of the tokens that follow in the text stand in for those that the drafter would have had. */
#include "auto.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "impl.h"

enum { AUTO, FIXED, NO_GUARD, NO_DEPTH, NO_LISTS, NO_CONFIDENCE, NO_CERTAINTY };

typedef struct spent {
    double tokens, cost; /* in plain passes */
    double cycles, plain, passes, rows, probes;
} spent;

struct auto_run {
    auto_params params;
    const replay *r;
    int32_t num_steps;
    double *rows;     /* [policies] mean of each */
    spent *ways;      /* [AUTO_WAYS, n_sequences] */
    double *best;     /* [n_sequences] cost of its best fixed choice */
    double *fixed;    /* [policies, num_steps, n_sequences] costs */
    int *domain_best; /* [n_domains + 1] fixed choice of each, of all the last; -1: plain */
};

/* ---- one way over one sequence ---- */

typedef struct player {
    const auto_run *a;
    specrt_auto *auto_draft;
    const int *lists; /* [n_lists] policies */
    int n_lists;
    replay_walk walk; /* its carry goes on */
} player;

static const replay_token *token_of(const player *w, int list, int64_t sequence, int32_t i) {
    return &w->a->r->entrants[w->lists[list] + 1].told[sequence].tokens[i];
}

/* Levels drafted from token `at` on. */
static int32_t draft(player *w, const specrt_auto_choice *choice, int64_t sequence, int32_t at,
                     int32_t n_tokens, float *logprobs) {
    float path = 0;
    bool chain = w->a->r->trees[w->a->params.first_tree].topk == 1;
    for (int32_t n = 1; n <= choice->num_steps; n++) {
        int32_t i = at + n - 1 < n_tokens ? at + n - 1 : n_tokens - 1;
        path += chain ? token_of(w, choice->list, sequence, i)->logprob : NAN;
        logprobs[n - 1] = path;
        if (!specrt_auto_should_continue(w->auto_draft, n, path)) return n;
    }
    return choice->num_steps;
}

static int32_t first_list(const player *w, int64_t sequence, int32_t i) {
    int32_t list = 0;
    while (list < w->n_lists && !token_of(w, list, sequence, i)->held) list++;
    return list;
}

/* A cycle from token `at` on. @return tokens that it emits. */
static int32_t cycle(player *w, int64_t sequence, int32_t at, int32_t n_tokens, spent *sum) {
    const auto_run *a = w->a;
    const replay *r = a->r;
    specrt_auto_choice choice;
    float logprobs[SPECRT_TREE_MAX_STEPS], target_logprobs[SPECRT_TREE_MAX_STEPS + 1];
    int32_t lists[SPECRT_TREE_MAX_STEPS + 1], n = 0, ended = 0;
    specrt_auto_choose(w->auto_draft, &choice);
    int32_t n_passes = draft(w, &choice, sequence, at, n_tokens, logprobs);
    int tree = a->params.first_tree + (n_passes ? n_passes : 1) - 1;
    specrt_tree_params shape = r->trees[tree];
    shape.num_steps = n_passes;
    w->walk.level = w->walk.n = 0;
    while (!ended && at + n < n_tokens) {
        const replay_token *t = token_of(w, choice.list, sequence, at + n);
        lists[n] = w->n_lists > 1 ? first_list(w, sequence, at + n) : 0;
        target_logprobs[n++] = t->target_logprob;
        ended =
            walk_step(&w->walk, &shape, &r->levels[tree], t->row, (replay_drafted)t->trees[tree]);
    }
    specrt_auto_cycle c = {.n_passes = n_passes,
                           .n_accepted = n - 1,
                           .logprobs = r->trees[tree].topk == 1 ? logprobs : NULL,
                           .lists = w->n_lists > 1 ? lists : NULL,
                           .target_logprobs = target_logprobs};
    (void)specrt_auto_observe(w->auto_draft, &c);
    sum->passes += n_passes;
    sum->rows += n_passes ? a->rows[w->lists[choice.list]] : 0;
    return n;
}

static void play(player *w, int64_t sequence, spent *sum) {
    int32_t n_tokens = w->a->r->entrants[1].told[sequence].n;
    specrt_auto_stats before, after;
    specrt_auto_get_stats(w->auto_draft, &before);
    specrt_auto_begin(w->auto_draft);
    *sum = (spent){.tokens = n_tokens};
    for (int32_t at = 0; at < n_tokens;) at += cycle(w, sequence, at, n_tokens, sum);
    specrt_auto_get_stats(w->auto_draft, &after);
    sum->cost = after.cost - before.cost;
    sum->cycles = (double)(after.n_cycles - before.n_cycles);
    sum->plain = (double)(after.n_plain - before.n_plain);
    sum->probes = (double)(after.n_probes - before.n_probes);
}

/* ---- all of them ---- */

static specrt_status open_way(const auto_run *a, const int *lists, int n_lists, int32_t num_steps,
                              uint32_t without, player *out, specrt_error *err) {
    int32_t rows[SPECRT_AUTO_MAX_LISTS], places[SPECRT_AUTO_MAX_LISTS];
    specrt_tree_params tree = a->r->trees[a->params.first_tree + a->params.n_trees - 1];
    for (int i = 0; i < n_lists; i++) {
        rows[i] = (int32_t)a->rows[lists[i]];
        places[i] = i + 1;
    }
    tree.num_steps = num_steps;
    const auto_desc desc = {a->params.costs, &tree, rows, places, n_lists, without};
    *out = (player){.a = a, .lists = lists, .n_lists = n_lists};
    return auto_open(&desc, &out->auto_draft, err);
}

static const uint32_t all_parts =
    SPECRT_AUTO_GUARD | SPECRT_AUTO_DEPTH | SPECRT_AUTO_LISTS | SPECRT_AUTO_CONFIDENCE;

static specrt_status run_fixed(auto_run *a, int policy, int32_t n, specrt_error *err) {
    player w;
    spent sum;
    double *costs = a->fixed + ((int64_t)policy * a->num_steps + n - 1) * a->r->n_sequences;
    TRY(open_way(a, &policy, 1, n, all_parts, &w, err));
    for (int64_t i = 0; i < a->r->n_sequences; i++) {
        play(&w, i, &sum);
        costs[i] = sum.cost;
        if (sum.cost < a->best[i]) a->best[i] = sum.cost;
    }
    specrt_auto_close(w.auto_draft);
    return SPECRT_STATUS_OK;
}

static bool in_domain(const auto_run *a, int64_t i, int domain) {
    return domain < 0 || a->r->shared[i].domain == domain;
}

/* The fixed choice that costs least over a domain; -1: plain decoding. */
static int choose_fixed(const auto_run *a, int domain) {
    int64_t n = a->r->n_sequences;
    double least = 0;
    int found = -1, n_choices = (a->r->n_entrants - 1) * a->num_steps;
    for (int64_t i = 0; i < n; i++)
        if (in_domain(a, i, domain)) least += a->r->shared[i].n_tokens;
    for (int k = 0; k < n_choices; k++) {
        double cost = 0;
        for (int64_t i = 0; i < n; i++)
            if (in_domain(a, i, domain)) cost += a->fixed[k * n + i];
        if (cost >= least) continue;
        least = cost;
        found = k;
    }
    return found;
}

static specrt_status run_way(auto_run *a, int number, specrt_error *err) {
    static const uint32_t parts[AUTO_WAYS] = {[NO_GUARD] = SPECRT_AUTO_GUARD,
                                              [NO_DEPTH] =
                                                  SPECRT_AUTO_DEPTH | SPECRT_AUTO_CONFIDENCE,
                                              [NO_LISTS] = SPECRT_AUTO_LISTS,
                                              [NO_CONFIDENCE] = SPECRT_AUTO_CONFIDENCE,
                                              [NO_CERTAINTY] = SPECRT_AUTO_CERTAINTY};
    int best = a->domain_best[a->r->n_domains], n_lists = a->params.n_lists;
    int32_t n = a->num_steps;
    player w;
    if (number == NO_DEPTH) n = best < 0 ? 1 : best % a->num_steps + 1;
    TRY(open_way(a, a->params.lists, n_lists, n, parts[number], &w, err));
    for (int64_t i = 0; i < a->r->n_sequences; i++)
        play(&w, i, &a->ways[(int64_t)number * a->r->n_sequences + i]);
    specrt_auto_close(w.auto_draft);
    return SPECRT_STATUS_OK;
}

/* What FIXED spends is known. */
static void take_fixed(auto_run *a) {
    int best = a->domain_best[a->r->n_domains];
    int64_t n = a->r->n_sequences;
    for (int64_t i = 0; i < n; i++) {
        double tokens = a->r->shared[i].n_tokens, cost = best < 0 ? tokens : a->fixed[best * n + i];
        a->ways[FIXED * n + i] = (spent){.tokens = tokens, .cost = cost, .cycles = 1};
        if (best < 0) a->ways[FIXED * n + i].plain = 1;
        if (best >= 0) a->ways[FIXED * n + i].passes = best % a->num_steps + 1;
        if (best >= 0) a->ways[FIXED * n + i].rows = a->rows[best / a->num_steps];
    }
}

static specrt_status check_told(const auto_run *a, specrt_error *err) {
    for (int e = 1; e < a->r->n_entrants; e++)
        for (int64_t i = 0; i < a->r->n_sequences; i++)
            if (a->r->shared[i].n_tokens > 0 && !a->r->entrants[e].told[i].tokens)
                return sl_error_no_memory_for(err, "auto");
    return SPECRT_STATUS_OK;
}

static specrt_status run(auto_run *a, specrt_error *err) {
    int n_policies = a->r->n_entrants - 1;
    size_t n = (size_t)a->r->n_sequences, choices = (size_t)(n_policies * a->num_steps);
    a->rows = (double *)calloc((size_t)n_policies, sizeof *a->rows);
    a->ways = (spent *)calloc(AUTO_WAYS * n, sizeof *a->ways);
    a->best = (double *)calloc(n, sizeof *a->best);
    a->fixed = (double *)calloc(choices * n, sizeof *a->fixed);
    a->domain_best = (int *)calloc((size_t)a->r->n_domains + 1, sizeof *a->domain_best);
    if (!a->rows || !a->ways || !a->best || !a->fixed || !a->domain_best)
        return sl_error_no_memory_for(err, "auto");
    TRY(check_told(a, err));
    for (size_t i = 0; i < n; i++) a->best[i] = a->r->shared[i].n_tokens;
    for (int p = 0; p < n_policies; p++) {
        replay_figures f;
        replay_figures_of(a->r, p, 0, -1, &f);
        a->rows[p] = f.active_rows.value;
    }
    for (int p = 0; p < n_policies; p++)
        for (int32_t k = 1; k <= a->num_steps; k++) TRY(run_fixed(a, p, k, err));
    for (int d = 0; d <= a->r->n_domains; d++)
        a->domain_best[d] = choose_fixed(a, d == a->r->n_domains ? -1 : d);
    take_fixed(a);
    for (int k = 0; k < AUTO_WAYS; k++)
        if (k != FIXED) TRY(run_way(a, k, err));
    return SPECRT_STATUS_OK;
}

specrt_status auto_run_all(const auto_params *params, auto_run **out, specrt_error *err) {
    auto_run *a = (auto_run *)calloc(1, sizeof *a);
    *out = NULL;
    if (!a) return sl_error_no_memory_for(err, "auto");
    a->params = *params;
    a->r = params->replay;
    a->num_steps = params->n_trees;
    specrt_status status = run(a, err);
    if (status == SPECRT_STATUS_OK)
        *out = a;
    else
        auto_run_free(a);
    return status;
}

void auto_run_free(auto_run *a) {
    if (!a) return;
    free(a->rows), free(a->ways), free(a->best), free(a->fixed), free(a->domain_best);
    free(a);
}

/* ---- figures ---- */

const char *auto_way_name(int way) {
    static const char *const names[AUTO_WAYS] = {
        "auto",          "best fixed",         "without the guard", "without depth by cycle",
        "without lists", "without confidence", "without certainty"};
    return names[way];
}

const char *auto_best_choice(const auto_run *a, int domain, int *n) {
    int best = a->domain_best[domain < 0 ? a->r->n_domains : domain];
    *n = best < 0 ? 0 : best % a->num_steps + 1;
    return best < 0 ? "plain" : replay_policy_text(a->r, best / a->num_steps);
}

void auto_figures_of(const auto_run *a, int way, int domain, auto_figures *out) {
    int64_t n = a->r->n_sequences, m = 0;
    replay_pair *best = (replay_pair *)calloc(2 * (size_t)n, sizeof *best), *other = best + n;
    spent sum = {0};
    *out = (auto_figures){.speedup = NAN};
    if (!best) return;
    for (int64_t i = 0; i < n; i++) {
        const spent *s = &a->ways[(int64_t)way * n + i];
        if (!in_domain(a, i, domain) || s->tokens == 0) continue;
        best[m] = (replay_pair){a->best[i], s->cost};
        other[m++] = (replay_pair){a->ways[(int64_t)AUTO * n + i].cost, s->cost};
        sum.tokens += s->tokens, sum.cost += s->cost, sum.cycles += s->cycles;
        sum.plain += s->plain, sum.passes += s->passes, sum.rows += s->rows;
        sum.probes += s->probes;
    }
    double drafts = sum.cycles - sum.plain;
    out->speedup = sum.tokens / sum.cost;
    out->of_best = replay_ratio(best, m);
    out->of_auto = replay_ratio(other, m);
    out->plain_cycles = sum.plain / sum.cycles;
    out->steps = drafts > 0 ? sum.passes / drafts : 0;
    out->rows = drafts > 0 ? sum.rows / drafts : 0;
    out->n_probes = 1000 * sum.probes / sum.tokens;
    free(best);
}

/* ---- words ---- */

static void print_way(const auto_run *a, int way, int domain) {
    auto_figures f;
    auto_figures_of(a, way, domain, &f);
    printf("  %-24s %7.3f   %.3f  %.3f-%.3f   %.3f  %.3f-%.3f %7.0f%% %6.2f %7.0f %7.1f\n",
           auto_way_name(way), f.speedup, f.of_best.value, f.of_best.low, f.of_best.high,
           f.of_auto.value, f.of_auto.low, f.of_auto.high, 100 * f.plain_cycles, f.steps, f.rows,
           f.n_probes);
}

static void print_domain(const auto_run *a, int domain) {
    int n;
    const char *name = auto_best_choice(a, domain, &n);
    printf("%s: of fixed choices %s", domain < 0 ? "all" : replay_domain(a->r, domain), name);
    printf(n ? ", %d levels\n" : "\n", n);
    for (int way = 0; way < AUTO_WAYS; way++) print_way(a, way, domain);
}

void auto_print(const auto_run *a) {
    int n_domains = replay_n_domains(a->r);
    printf("\n%-26s %7s   %-18s   %-18s %8s %6s %7s %7s\n", "by the costs", "x plain",
           "of the best fixed", "of auto's speed", "plain", "levels", "rows", "probes");
    printf("%-26s %7s   %-18s   %-18s %8s %6s %7s %7s\n", "", "", "for each prompt", "", "cycles",
           "", "", "/1000");
    for (int d = -1; d < (n_domains > 1 ? n_domains : 0); d++) print_domain(a, d);
}

static json_object *way_json(const auto_run *a, int way, int domain) {
    json_object *o = json_object_new_object();
    auto_figures f;
    int n;
    auto_figures_of(a, way, domain, &f);
    sl_json_put(o, "way", sl_json_text(auto_way_name(way)));
    sl_json_put(o, "domain", sl_json_text(domain < 0 ? "all" : replay_domain(a->r, domain)));
    sl_json_put(o, "fixed_policy", sl_json_text(auto_best_choice(a, domain, &n)));
    sl_json_put(o, "fixed_steps", sl_json_whole((uint64_t)n));
    sl_json_put(o, "speedup_plain", sl_json_real(f.speedup));
    sl_json_put(o, "of_best", sl_json_real(f.of_best.value));
    sl_json_put(o, "of_best_ci95", sl_json_range(f.of_best.low, f.of_best.high));
    sl_json_put(o, "of_auto", sl_json_real(f.of_auto.value));
    sl_json_put(o, "of_auto_ci95", sl_json_range(f.of_auto.low, f.of_auto.high));
    sl_json_put(o, "plain_cycles", sl_json_real(f.plain_cycles));
    sl_json_put(o, "steps", sl_json_real(f.steps));
    sl_json_put(o, "rows", sl_json_real(f.rows));
    sl_json_put(o, "probes_by_1000", sl_json_real(f.n_probes));
    return o;
}

json_object *auto_json(const auto_run *a) {
    json_object *rows = json_object_new_array();
    int n_domains = replay_n_domains(a->r);
    for (int d = -1; d < (n_domains > 1 ? n_domains : 0); d++)
        for (int way = 0; way < AUTO_WAYS; way++) json_object_array_add(rows, way_json(a, way, d));
    return rows;
}
