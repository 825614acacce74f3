/* compare_print.c : the comparison as a table for people and as JSON for machines. */
#include <math.h>
#include <string.h>
#include "compare.h"
#include "json_make.h"
#include "text.h"

/* ---- table ---- */

static void put_number(double x, int width, int digits) {
    if (isnan(x))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, digits, x);
}

static void print_row(const comparison *c, int i, int name_width) {
    figures f;
    figures_of(c, i, -1, &f);
    printf("%-*s", name_width, c->contestants[i].name);
    put_number(i == PLAIN ? NAN : f.accept_length, 6, 2);
    if (i == PLAIN || isnan(f.accept_length_ci.low))
        printf("  %9s", i == PLAIN ? "" : "-    ");
    else
        printf("  %4.2f-%-4.2f", f.accept_length_ci.low, f.accept_length_ci.high);
    put_number(100 * f.coverage, 7, 1);
    put_number(f.active_rows, 7, 0);
    put_number(i == PLAIN ? NAN : f.draft * 1e3, 7, 2);
    put_number(i == PLAIN ? NAN : f.head * 1e3, 7, 2);
    put_number(f.target * 1e3, 7, 2);
    put_number(f.verify * 1e3, 7, 2);
    put_number(i == PLAIN ? NAN : f.update * 1e3, 7, 2);
    put_number(f.prefill * 1e3, 8, 1);
    put_number(f.tokens_per_second, 7, 1);
    put_number(f.speedup_plain, 7, 2);
    put_number(i == PLAIN ? NAN : f.speedup_full, 6, 2);
    putchar('\n');
}

static int name_width(const comparison *c) {
    size_t width = 8;
    for (int i = 0; i < c->n_contestants; i++)
        if (strlen(c->contestants[i].name) > width) width = strlen(c->contestants[i].name);
    return (int)width;
}

/* Domains as columns, as many as fit a wide terminal. */
static void print_domains(const comparison *c, int width) {
    enum { MOST = 12 };
    int n = c->n_domains < MOST ? c->n_domains : MOST;
    printf("\n%-*s", width, "accept length");
    for (int d = 0; d < n; d++) printf(" %10.10s", c->domains[d]);
    for (int i = FULL; i < c->n_contestants; i++) {
        printf("\n%-*s", width, c->contestants[i].name);
        for (int d = 0; d < n; d++) {
            figures f;
            figures_of(c, i, d, &f);
            put_number(f.n_turns ? f.accept_length : NAN, 10, 2);
        }
    }
    if (n < c->n_domains) printf("\n(%d more domains: --json has them)", c->n_domains - n);
    putchar('\n');
}

static void print_acceptance(const comparison *c, int width) {
    int steps = compare_num_steps(c);
    if (steps > COMPARE_POSITIONS) steps = COMPARE_POSITIONS;
    printf("\n%-*s", width, "accepted at");
    for (int k = 0; k < steps; k++) printf(" %5d.", k + 1);
    for (int i = FULL; i < c->n_contestants; i++) {
        figures f;
        figures_of(c, i, -1, &f);
        printf("\n%-*s", width, c->contestants[i].name);
        for (int k = 0; k < steps; k++) put_number(f.acceptance[k], 6, 3);
    }
    putchar('\n');
}

/* What presets and bare names stand for. */
static void print_names(const comparison *c) {
    for (int i = FULL; i < c->n_contestants; i++) {
        const contestant *k = &c->contestants[i];
        const char *text = specrt_policy_text(k->policy);
        if (strcmp(text, k->name) != 0) printf("%s is %s\n", k->name, text);
    }
}

void compare_print_table(const comparison *c) {
    int width = name_width(c);
    figures plain;
    figures_of(c, PLAIN, -1, &plain);
    printf("%-*s %6s  %9s %7s %7s %7s %7s %7s %7s %7s %8s %7s %7s %6s\n", width, "", "accept",
           "95%", "covered", "", "draft", "head", "target", "verify", "update", "prefill", "", "x",
           "x");
    printf("%-*s %6s  %9s %7s %7s %7s %7s %7s %7s %7s %8s %7s %7s %6s\n", width, "policy", "length",
           "interval", "%", "rows", "ms", "ms", "ms", "ms", "ms", "ms", "tok/s", "plain", "full");
    for (int i = 0; i < c->n_contestants; i++) print_row(c, i, width);
    if (c->n_domains > 1) print_domains(c, width);
    print_acceptance(c, width);
    putchar('\n');
    print_names(c);
    printf("%s turns, %s tokens, %.1f%% of them in repetition loops; %s tokens compared with plain "
           "decoding: %s\n",
           text_count((uint64_t)plain.n_turns), text_count((uint64_t)plain.n_tokens),
           100 * plain.loop_share, text_count((uint64_t)c->n_compared), check_outcome(c));
}

/* ---- JSON ---- */

static json_object *json_interval(const interval *x) {
    json_object *pair = json_object_new_array();
    json_object_array_add(pair, json_real(x->low));
    json_object_array_add(pair, json_real(x->high));
    return pair;
}

static json_object *json_intervals(const figures *f) {
    json_object *o = json_object_new_object();
    json_put(o, "accept_length", json_interval(&f->accept_length_ci));
    json_put(o, "tokens_per_second", json_interval(&f->tokens_per_second_ci));
    json_put(o, "speedup_plain", json_interval(&f->speedup_plain_ci));
    json_put(o, "speedup_full", json_interval(&f->speedup_full_ci));
    return o;
}

static void put_times(json_object *o, const figures *f) {
    json_put(o, "draft_ms", json_real(f->draft * 1e3));
    json_put(o, "head_ms", json_real(f->head * 1e3));
    json_put(o, "update_ms", json_real(f->update * 1e3));
    json_put(o, "target_ms", json_real(f->target * 1e3));
    json_put(o, "verify_ms", json_real(f->verify * 1e3));
    json_put(o, "prefill_ms", json_real(f->prefill * 1e3));
}

static json_object *json_acceptance(const figures *f) {
    json_object *array = json_object_new_array();
    for (int i = 0; i < COMPARE_POSITIONS && !isnan(f->acceptance[i]); i++)
        json_object_array_add(array, json_real(f->acceptance[i]));
    return array;
}

/* domain -1: all. */
static json_object *json_row(const comparison *c, int i, int domain) {
    const contestant *k = &c->contestants[i];
    json_object *o = json_object_new_object();
    figures f;
    figures_of(c, i, domain, &f);
    json_put(o, "policy", json_text(k->name));
    json_put(o, "policy_text", json_text(k->policy ? specrt_policy_text(k->policy) : NULL));
    json_put(o, "domain", json_text(domain < 0 ? "all" : c->domains[domain]));
    json_put(o, "n_prompts", json_whole((uint64_t)f.n_prompts));
    json_put(o, "n_turns", json_whole((uint64_t)f.n_turns));
    json_put(o, "n_tokens", json_whole((uint64_t)f.n_tokens));
    json_put(o, "accept_length", json_real(f.accept_length));
    json_put(o, "acceptance", json_acceptance(&f));
    json_put(o, "coverage", json_real(f.coverage));
    json_put(o, "active_rows", json_real(f.active_rows));
    put_times(o, &f);
    json_put(o, "tokens_per_second", json_real(f.tokens_per_second));
    json_put(o, "speedup_plain", json_real(f.speedup_plain));
    json_put(o, "speedup_full", json_real(f.speedup_full));
    json_put(o, "bytes_extra", json_whole((uint64_t)k->bytes_extra));
    json_put(o, "loop_share", json_real(f.loop_share));
    json_put(o, "temperature", json_real(c->options.temperature));
    json_put(o, "drafter", json_base_name(c->options.draft));
    json_put(o, "ci95", json_intervals(&f));
    json_put(o, "n_compared",
             json_whole(i == PLAIN || c->options.sampled_drafts ? 0 : (uint64_t)f.n_tokens));
    json_put(o, "first_divergence", json_text(c->diverged ? c->divergence : NULL));
    return o;
}

void compare_print_json(const comparison *c) {
    json_object *o = json_object_new_object(), *rows = json_object_new_array();
    json_put(o, "target", json_base_name(c->options.target));
    json_put(o, "drafter", json_base_name(c->options.draft));
    json_put(o, "chat_template", json_base_name(chat_name(c->chat)));
    json_put(o, "max_tokens", json_whole((uint64_t)c->options.max_tokens));
    json_put(o, "threads", json_whole((uint64_t)c->options.common.threads));
    for (int i = 0; i < c->n_contestants; i++) {
        json_object_array_add(rows, json_row(c, i, -1));
        for (int d = 0; d < c->n_domains && c->n_domains > 1; d++)
            json_object_array_add(rows, json_row(c, i, d));
    }
    json_put(o, "rows", rows);
    json_print(o);
}
