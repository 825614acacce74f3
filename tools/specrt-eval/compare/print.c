/* print.c : the comparison as a table for people and as JSON for machines. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "compare.h"
#include "base/error.h"
#include "base/io.h"
#include "base/json.h"
#include "base/text.h"

/* ---- table ---- */

static void print_interval(const interval *x, int way) {
    if (way == PLAIN || isnan(x->low))
        printf("  %9s", way == PLAIN ? "" : "-    ");
    else
        printf("  %4.2f-%-4.2f", x->low, x->high);
}

/* Two lines of titles. */
static void print_titles(int name_width) {
    int n;
    const compare_column *columns = compare_columns(&n);
    for (int line = 0; line < 2; line++) {
        printf("%-*s", name_width, line ? "policy" : "");
        for (int k = 0; k < n; k++) {
            const compare_column *x = &columns[k];
            if (x->width) printf(" %*s", x->width, line ? x->below : x->above);
            if (x->flags & COLUMN_SPREAD) printf("  %9s", line ? "interval" : "95%");
        }
        putchar('\n');
    }
}

static void print_row(const comparison *c, int i, int name_width) {
    int n;
    const compare_column *columns = compare_columns(&n);
    figures f;
    figures_of(c, i, -1, &f);
    printf("%-*s", name_width, c->ways[i].name);
    for (int k = 0; k < n; k++) {
        const compare_column *x = &columns[k];
        if (x->width) sl_text_number(compare_column_shown(x, i, &f), x->width, x->digits);
        if (!(x->flags & COLUMN_SPREAD)) continue;
        interval ends = compare_column_interval(x, &f);
        print_interval(&ends, i);
    }
    printf("  %s\n", i > FULL && retained_by_task(&f.kept) ? sl_text_name(f.kept.task) : "");
}

static int name_width(const comparison *c) {
    size_t width = 8;
    for (int i = 0; i < c->n_ways; i++)
        if (strlen(c->ways[i].name) > width) width = strlen(c->ways[i].name);
    return (int)width;
}

/* Domains as columns, as many as fit a wide terminal. */
static int columns_of(const comparison *c, int most) {
    return c->n_domains < most ? c->n_domains : most;
}

static void end_columns(const comparison *c, int n) {
    if (n > 0 && n < c->n_domains) printf("\n(%d more domains: --json has them)", c->n_domains - n);
    putchar('\n');
}

static void print_domains(const comparison *c, int width) {
    enum { MOST = 12 };
    int n = columns_of(c, MOST);
    printf("\n%-*s", width, "accept length");
    for (int d = 0; d < n; d++) putchar(' '), sl_text_pad_left(c->domains[d], 10, stdout);
    for (int i = FULL; i < c->n_ways; i++) {
        printf("\n%-*s", width, c->ways[i].name);
        for (int d = 0; d < n; d++) {
            figures f;
            figures_of(c, i, d, &f);
            sl_text_number(f.n_turns ? f.accept_length : NAN, 10, 2);
        }
    }
    printf("\n%-*s", width, "% in loops");
    for (int d = 0; d < n; d++) {
        figures f;
        figures_of(c, PLAIN, d, &f);
        sl_text_number(f.n_turns ? 100 * f.loop_share : NAN, 10, 1);
    }
    end_columns(c, n);
}

/* Each draw of prompts takes the same ones of the full vocabulary: where a policy drafts alike, nothing
 * is left of how prompts differ. */
static void print_shares(const comparison *c, int width) {
    enum { MOST = 9 };
    int n = c->n_domains > 1 ? columns_of(c, MOST) : 0;
    printf("\n%-*s %12s", width, "% of full, 95%", "all");
    for (int d = 0; d < n; d++) putchar(' '), sl_text_pad_left(c->domains[d], 12, stdout);
    for (int i = FULL + 1; i < c->n_ways; i++) {
        printf("\n%-*s", width, c->ways[i].name);
        for (int d = -1; d < n; d++) {
            figures f;
            figures_of(c, i, d, &f);
            if (f.n_prompts > 1)
                printf("  %5.1f-%-5.1f", 100 * f.accept_full_ci.low, 100 * f.accept_full_ci.high);
            else
                printf(" %12s", "-");
        }
    }
    end_columns(c, n);
}

static void print_acceptance(const comparison *c, int width) {
    int steps = compare_num_steps(c);
    if (steps > COMPARE_POSITIONS) steps = COMPARE_POSITIONS;
    printf("\n%-*s", width, "accepted at");
    for (int k = 0; k < steps; k++) printf(" %5d.", k + 1);
    for (int i = FULL; i < c->n_ways; i++) {
        figures f;
        figures_of(c, i, -1, &f);
        printf("\n%-*s", width, c->ways[i].name);
        for (int k = 0; k < steps; k++) sl_text_number(f.acceptance[k], 6, 3);
    }
    putchar('\n');
}

/* EvoSpec's Table 6, by both readings of recall. */
static void print_lists(const comparison *c, int width) {
    printf("\n%-*s %7s  %-26s %-26s\n", width, "the target's", "mass", "best tokens held, %",
           "of those in no fixed list, %");
    printf("%-*s %7s", width, "policy", "%");
    for (int twice = 0; twice < 2; twice++)
        for (int t = 0; t < WATCH_TOPS; t++) printf(" %*d", t ? 7 : 8, watch_top(t));
    putchar('\n');
    for (int i = FULL; i < c->n_ways; i++) {
        figures f;
        figures_of(c, i, -1, &f);
        printf("%-*s", width, c->ways[i].name);
        sl_text_number(100 * f.mass, 7, 2);
        for (int t = 0; t < WATCH_TOPS; t++) sl_text_number(100 * f.recall[t], t ? 7 : 8, 1);
        for (int t = 0; t < WATCH_TOPS; t++) sl_text_number(100 * f.recall_beyond[t], t ? 7 : 8, 1);
        putchar('\n');
    }
}

static void print_changes(const comparison *c, int width) {
    printf("\n%-*s tokens since the domain changed (%d times)\n%-*s", width, "accept length",
           c->n_changes, width, "policy");
    for (int s = 0; s < WATCH_SPANS; s++) printf(" %8s", watch_span_name(s));
    putchar('\n');
    for (int i = FULL; i < c->n_ways; i++) {
        printf("%-*s", width, c->ways[i].name);
        for (int s = 0; s < WATCH_SPANS; s++) sl_text_number(compare_span(c, i, s), 8, 2);
        putchar('\n');
    }
}

static bool any_events(const comparison *c) {
    for (int i = FULL; i < c->n_ways; i++)
        for (int t = 0; t < c->n_turns; t++)
            if (c->ways[i].samples[t].stats.n_events > 0) return true;
    return false;
}

/* On the time line of a cycle: drafting and the target's pass, then the update. */
static void print_events(const comparison *c, int width) {
    printf("\n%-*s %9s %10s %24s\n", width, "events: what could", "per 1,000", "cycle",
           "its update, ms");
    printf("%-*s %9s %10s %12s %11s\n", width, "not be drafted", "cycles", "ms", "with an event",
           "without");
    for (int i = FULL; i < c->n_ways; i++) {
        figures f;
        figures_of(c, i, -1, &f);
        if (!(f.events > 0)) continue;
        printf("%-*s", width, c->ways[i].name);
        sl_text_number(1000 * f.events, 9, 1);
        sl_text_number(1e3 * f.cycle, 10, 2);
        sl_text_number(1e3 * f.update_event, 13, 3);
        sl_text_number(1e3 * f.update_other, 11, 3);
        putchar('\n');
    }
}

/* What presets and bare names stand for. */
static void print_names(const comparison *c) {
    for (int i = FULL; i < c->n_ways; i++) {
        const compare_way *k = &c->ways[i];
        char canonical[EVAL_CANONICAL];
        const char *text = k->policy ? eval_policy_text(k->policy, k->name, canonical) : k->name;
        if (strcmp(text, k->name) != 0) printf("%s is %s\n", k->name, text);
    }
}

void compare_print_table(const comparison *c) {
    int width = name_width(c);
    figures plain;
    figures_of(c, PLAIN, -1, &plain);
    print_titles(width);
    for (int i = 0; i < c->n_ways; i++) print_row(c, i, width);
    if (c->n_domains > 1) print_domains(c, width);
    if (c->n_ways > FULL + 1) print_shares(c, width);
    print_acceptance(c, width);
    if (c->lists) print_lists(c, width);
    if (c->n_changes) print_changes(c, width);
    if (any_events(c)) print_events(c, width);
    if (c->n_alignments) compare_align_print(c, width);
    putchar('\n');
    print_names(c);
    compare_print_splits(c);
    compare_advice(c, stdout);
    printf("%s turns, %s tokens, %.1f%% of them in repetition loops (period <= %d)%s; %s tokens "
           "compared with plain decoding: %s\n",
           sl_text_count((uint64_t)plain.n_turns), sl_text_count((uint64_t)plain.n_tokens),
           100 * plain.loop_share, LOOP_LONGEST,
           plain.loop_share > 0 ? ", which flatter every policy" : "",
           sl_text_count((uint64_t)c->n_compared), compare_outcome(c));
}

/* ---- JSON ---- */

static bool in_json(const comparison *c, const compare_column *column) {
    return column->key && (c->short_tokens || !(column->flags & COLUMN_SHORT));
}

static void put_columns(json_object *o, const comparison *c, const figures *f) {
    int n;
    const compare_column *columns = compare_columns(&n);
    for (int k = 0; k < n; k++) {
        const compare_column *x = &columns[k];
        double value = x->scale_json * compare_column_value(x, f);
        if (in_json(c, x)) sl_json_put(o, x->key, sl_json_real(value));
    }
}

static json_object *json_intervals(const comparison *c, const figures *f) {
    int n;
    const compare_column *columns = compare_columns(&n);
    json_object *o = json_object_new_object();
    for (int k = 0; k < n; k++) {
        const compare_column *x = &columns[k];
        if (!in_json(c, x) || !x->interval) continue;
        interval ends = compare_column_interval(x, f);
        sl_json_put(o, x->key, sl_json_range(ends.low, ends.high));
    }
    return o;
}

static json_object *json_acceptance(const figures *f) {
    json_object *array = json_object_new_array();
    for (int i = 0; i < COMPARE_POSITIONS && !isnan(f->acceptance[i]); i++)
        json_object_array_add(array, sl_json_real(f->acceptance[i]));
    return array;
}

static json_object *json_tops(const double *values) {
    json_object *o = json_object_new_object();
    for (int t = 0; t < WATCH_TOPS; t++) {
        char key[16];
        snprintf(key, sizeof key, "%d", watch_top(t));
        sl_json_put(o, key, sl_json_real(values[t]));
    }
    return o;
}

static void put_watched(json_object *o, const comparison *c, int way, int domain,
                        const figures *f) {
    if (c->lists) {
        sl_json_put(o, "mass", sl_json_real(f->mass));
        sl_json_put(o, "recall", json_tops(f->recall));
        sl_json_put(o, "recall_beyond_fixed", json_tops(f->recall_beyond));
    }
    if (domain >= 0 || c->n_changes == 0) return;
    json_object *spans = json_object_new_object();
    for (int s = 0; s < WATCH_SPANS; s++)
        sl_json_put(spans, watch_span_name(s), sl_json_real(compare_span(c, way, s)));
    sl_json_put(o, "accept_length_since_change", spans);
}

static void put_worst(json_object *o, const figures *f) {
    bool known = retained_by_task(&f->kept);
    sl_json_put(o, "worst_domain", sl_json_text(known ? f->kept.task : NULL));
    sl_json_put(o, "worst_accept_full", sl_json_real(f->accept_worst));
}

/* domain -1: all. */
static json_object *json_row(const comparison *c, int i, int domain) {
    const compare_way *k = &c->ways[i];
    json_object *o = json_object_new_object();
    char text[EVAL_CANONICAL];
    figures f;
    figures_of(c, i, domain, &f);
    sl_json_put(o, "policy", sl_json_text(k->name));
    sl_json_put(o, "policy_text",
                sl_json_text(k->policy ? eval_policy_text(k->policy, k->name, text) : NULL));
    sl_json_put(o, "domain", sl_json_text(domain < 0 ? "all" : c->domains[domain]));
    sl_json_put(o, "n_prompts", sl_json_whole((uint64_t)f.n_prompts));
    sl_json_put(o, "n_turns", sl_json_whole((uint64_t)f.n_turns));
    sl_json_put(o, "n_tokens", sl_json_whole((uint64_t)f.n_tokens));
    put_columns(o, c, &f);
    if (domain < 0 && i != PLAIN) put_worst(o, &f);
    sl_json_put(o, "acceptance", json_acceptance(&f));
    put_watched(o, c, i, domain, &f);
    if (domain < 0) sl_json_put(o, "n_same", sl_json_whole((uint64_t)k->n_same));
    sl_json_put(o, "bytes_extra", sl_json_whole((uint64_t)k->bytes_extra));
    if (k->controller && domain < 0) sl_json_put(o, "align", compare_align_json(k));
    sl_json_put(o, "temperature", sl_json_real(c->options.temperature));
    sl_json_put(o, "drafter", sl_json_base_name(c->options.draft));
    sl_json_put(o, "ci95", json_intervals(c, &f));
    sl_json_put(o, "n_compared",
                sl_json_whole(i == PLAIN || c->options.sampled_drafts ? 0 : (uint64_t)f.n_tokens));
    sl_json_put(o, "first_divergence", sl_json_text(c->diverged ? c->divergence : NULL));
    return o;
}

static json_object *json_of(const comparison *c) {
    json_object *o = json_object_new_object(), *rows = json_object_new_array();
    sl_json_put(o, "target", sl_json_base_name(c->options.target));
    sl_json_put(o, "drafter", sl_json_base_name(c->options.draft));
    chat_put_json(c->chat, o);
    sl_prompts_put_json(&c->prompts, o);
    sl_json_put(o, "max_tokens", sl_json_whole((uint64_t)c->options.max_tokens));
    if (c->short_tokens) sl_json_put(o, "short_tokens", sl_json_whole((uint64_t)c->short_tokens));
    sl_json_put(o, "threads", sl_json_whole((uint64_t)c->options.common.threads));
    sl_json_put(o, "engine", sl_json_text(c->models.info->engine));
    sl_json_put(o, "rounds", sl_json_whole((uint64_t)c->rounds));
    sl_json_put(o, "num_steps", sl_json_whole((uint64_t)c->options.num_steps));
    sl_json_put(o, "n_unanswered", sl_json_whole((uint64_t)c->n_unanswered));
    compare_advice_json(c, o);
    for (int i = 0; i < c->n_ways; i++) {
        json_object_array_add(rows, json_row(c, i, -1));
        for (int d = 0; d < c->n_domains && c->n_domains > 1; d++)
            json_object_array_add(rows, json_row(c, i, d));
    }
    sl_json_put(o, "rows", rows);
    sl_json_put(o, "splits", compare_splits_json(c));
    if (c->n_alignments || c->stream) sl_json_put(o, "requests", compare_align_requests(c));
    return o;
}

void compare_print_json(const comparison *c) {
    sl_json_print(json_of(c));
}

specrt_status compare_write_json(const comparison *c, const char *path, bool force,
                                 specrt_error *err) {
    char *text = sl_json_to_text(json_of(c));
    if (!text) return sl_error_no_memory(err, path);
    size_t n = strlen(text);
    text[n] = '\n'; /* a line, of known length */
    specrt_status status = sl_out_bytes(path, force, text, n + 1, err);
    free(text);
    return status;
}
