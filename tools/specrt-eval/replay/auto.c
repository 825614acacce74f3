/* auto.c : see auto.h. Cycles are walked as replay walks them; in a draft that has left the text, the
 * probabilities of the tokens that follow in the text stand in for those that the drafter would have had. */
#include "auto.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "impl.h"

enum { AUTO, FIXED };

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

/* The tree of n levels; a plain cycle walks the first, of no levels. */
static int tree_of(const auto_run *a, int32_t n) {
    return a->params.first_tree + (n ? n : 1) - 1;
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

/* A cycle from token `at` on, of so many levels from a list.
 *   target_logprobs : f32 [n_passes + 1], written: of what it emits
 * @return tokens that it emits. */
static int32_t cycle(player *w, int64_t sequence, int32_t at, int32_t list, int32_t n_passes,
                     float *target_logprobs) {
    const replay *r = w->a->r;
    int tree = tree_of(w->a, n_passes);
    int32_t n = 0, ended = 0, n_tokens = r->entrants[1].told[sequence].n;
    specrt_tree_params shape = r->trees[tree];
    shape.num_steps = n_passes;
    w->walk.level = w->walk.n = 0;
    while (!ended && at + n < n_tokens) {
        const replay_token *t = token_of(w, list, sequence, at + n);
        target_logprobs[n++] = t->target_logprob;
        ended =
            walk_step(&w->walk, &shape, &r->levels[tree], t->row, (replay_drafted)t->trees[tree]);
    }
    return n;
}

/* The same, as auto chooses. */
static int32_t chosen_cycle(player *w, int64_t sequence, int32_t at, int32_t n_tokens, spent *sum) {
    const auto_run *a = w->a;
    specrt_auto_choice choice;
    float logprobs[SPECRT_TREE_MAX_STEPS], target_logprobs[SPECRT_TREE_MAX_STEPS + 1];
    int32_t lists[SPECRT_TREE_MAX_STEPS + 1];
    specrt_auto_choose(w->auto_draft, &choice);
    int32_t n_passes = draft(w, &choice, sequence, at, n_tokens, logprobs);
    int32_t n = cycle(w, sequence, at, choice.list, n_passes, target_logprobs);
    for (int32_t i = 0; i < n && w->n_lists > 1; i++) lists[i] = first_list(w, sequence, at + i);
    specrt_auto_cycle c = {.n_passes = n_passes,
                           .n_accepted = n - 1,
                           .logprobs =
                               a->r->trees[tree_of(a, n_passes)].topk == 1 ? logprobs : NULL,
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
    for (int32_t at = 0; at < n_tokens;) at += chosen_cycle(w, sequence, at, n_tokens, sum);
    specrt_auto_get_stats(w->auto_draft, &after);
    sum->cost = after.cost - before.cost;
    sum->cycles = (double)(after.n_cycles - before.n_cycles);
    sum->plain = (double)(after.n_plain - before.n_plain);
    sum->probes = (double)(after.n_probes - before.n_probes);
}

/* ---- all of them ---- */

/* What auto_open() and auto_table() take. */
typedef struct table {
    auto_desc desc;
    specrt_tree_params tree;
    int32_t rows[SPECRT_AUTO_MAX_LISTS], places[SPECRT_AUTO_MAX_LISTS];
} table;

static void fill_table(const auto_run *a, const int *lists, int n_lists, table *t) {
    t->tree = a->r->trees[a->params.first_tree + a->params.n_trees - 1];
    t->tree.num_steps = a->num_steps;
    for (int i = 0; i < n_lists; i++) {
        t->rows[i] = (int32_t)a->rows[lists[i]];
        t->places[i] = i + 1;
    }
    t->desc = (auto_desc){a->params.costs, &t->tree, t->rows, t->places, n_lists};
}

/* Every cycle has n levels, and reads what it emitted before, but what the drafter keeps. */
static double play_fixed(player *w, int64_t sequence, int32_t n, double cost, double read) {
    float ignored[SPECRT_TREE_MAX_STEPS + 1];
    int32_t n_tokens = w->a->r->entrants[1].told[sequence].n, n_unread = 1;
    bool keeps = w->a->params.costs->keeps_chains && w->a->r->trees[tree_of(w->a, n)].topk == 1;
    double sum = 0;
    for (int32_t at = 0, emitted; at < n_tokens; at += emitted) {
        emitted = cycle(w, sequence, at, 0, n, ignored);
        sum += cost + (n_unread - 1) * read;
        n_unread = !keeps ? emitted : emitted == n + 1 ? 2 : 1;
    }
    return sum;
}

static void run_fixed(auto_run *a, int policy, int32_t n) {
    double cycles[SPECRT_TREE_MAX_STEPS + 1];
    double *costs = a->fixed + ((int64_t)policy * a->num_steps + n - 1) * a->r->n_sequences;
    player w = {.a = a, .lists = &policy, .n_lists = 1};
    table t;
    fill_table(a, &policy, 1, &t);
    double read = auto_table(&t.desc, cycles) / cycles[0];
    for (int64_t i = 0; i < a->r->n_sequences; i++) {
        costs[i] = play_fixed(&w, i, n, cycles[n] / cycles[0], read);
        if (costs[i] < a->best[i]) a->best[i] = costs[i];
    }
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

static specrt_status run_auto(auto_run *a, specrt_error *err) {
    player w = {.a = a, .lists = a->params.lists, .n_lists = a->params.n_lists};
    table t;
    fill_table(a, w.lists, w.n_lists, &t);
    TRY(auto_open(&t.desc, &w.auto_draft, err));
    for (int64_t i = 0; i < a->r->n_sequences; i++) play(&w, i, &a->ways[i]);
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
    TRY(sl_new(&a->rows, (size_t)n_policies, sizeof *a->rows, "auto", err));
    TRY(sl_new(&a->ways, AUTO_WAYS * n, sizeof *a->ways, "auto", err));
    TRY(sl_new(&a->best, n, sizeof *a->best, "auto", err));
    TRY(sl_new(&a->fixed, choices * n, sizeof *a->fixed, "auto", err));
    TRY(sl_new(&a->domain_best, (size_t)a->r->n_domains + 1, sizeof *a->domain_best, "auto", err));
    TRY(check_told(a, err));
    for (size_t i = 0; i < n; i++) a->best[i] = a->r->shared[i].n_tokens;
    for (int p = 0; p < n_policies; p++) {
        replay_figures f;
        replay_figures_of(a->r, p, 0, -1, &f);
        a->rows[p] = f.shortlist_rows.value;
    }
    for (int p = 0; p < n_policies; p++)
        for (int32_t k = 1; k <= a->num_steps; k++) run_fixed(a, p, k);
    for (int d = 0; d <= a->r->n_domains; d++)
        a->domain_best[d] = choose_fixed(a, d == a->r->n_domains ? -1 : d);
    take_fixed(a);
    return run_auto(a, err);
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
    return way == AUTO ? "auto" : "best fixed";
}

const char *auto_best_choice(const auto_run *a, int domain, int *n) {
    int best = a->domain_best[domain < 0 ? a->r->n_domains : domain];
    *n = best < 0 ? 0 : best % a->num_steps + 1;
    return best < 0 ? "plain" : replay_policy_text(a->r, best / a->num_steps);
}

void auto_figures_of(const auto_run *a, int way, int domain, auto_figures *out) {
    int64_t n = a->r->n_sequences, m = 0;
    replay_pair *best = (replay_pair *)calloc((size_t)n, sizeof *best);
    spent sum = {0};
    *out = (auto_figures){.speedup = NAN};
    if (!best) return;
    for (int64_t i = 0; i < n; i++) {
        const spent *s = &a->ways[(int64_t)way * n + i];
        if (!in_domain(a, i, domain) || s->tokens == 0) continue;
        best[m++] = (replay_pair){a->best[i], s->cost};
        sum.tokens += s->tokens, sum.cost += s->cost, sum.cycles += s->cycles;
        sum.plain += s->plain, sum.passes += s->passes, sum.rows += s->rows;
        sum.probes += s->probes;
    }
    double drafts = sum.cycles - sum.plain;
    out->speedup = sum.tokens / sum.cost;
    out->of_best = replay_ratio(best, m);
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
    printf("  %-24s %7.3f   %.3f  %.3f-%.3f %7.0f%% %6.2f %7.0f %7.1f\n", auto_way_name(way),
           f.speedup, f.of_best.value, f.of_best.low, f.of_best.high, 100 * f.plain_cycles, f.steps,
           f.rows, f.n_probes);
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
    printf("\n%-26s %7s   %-18s %8s %6s %7s %7s\n", "by the costs", "x plain", "of the best fixed",
           "plain", "levels", "rows", "probes");
    printf("%-26s %7s   %-18s %8s %6s %7s %7s\n", "", "", "for each prompt", "cycles", "", "",
           "/1000");
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
