/* best.c : what a comparison comes to: the policy to draft with, beside plain decoding and beside drafts from
 * the whole vocabulary. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "compare.h"
#include "base/error.h"
#include "base/html_plot.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"

/* ---- the verdict ---- */

/* Of an answer, in the mean. */
static double token_seconds(const comparison *c, int way) {
    double seconds = 0, tokens = 0;
    for (int i = 0; i < c->n_turns; i++) {
        const turn_sample *s = &c->ways[way].samples[i];
        seconds += s->seconds;
        tokens += (double)s->n_tokens;
    }
    return seconds / tokens;
}

/* Means of a request. */
static specrt_plain plain_of(const comparison *c) {
    specrt_plain p = {.token_seconds = token_seconds(c, PLAIN)};
    for (int i = 0; i < c->n_turns; i++) {
        const turn_sample *s = &c->ways[PLAIN].samples[i];
        p.prompt_seconds += s->times.prefill / c->n_turns;
        p.prompt_tokens += (double)s->n_prompt / c->n_turns;
        p.answer_tokens += (double)s->n_tokens / c->n_turns;
    }
    return p;
}

/* A target that drafts for itself shows what lists keep. Its speeds say nothing, so accept lengths decide.
 * (llama.cpp takes the MTP layers of the target's file.) */
static bool drafts_itself(const comparison *c) {
    return c->models.info->is_exact && c->options.draft && c->options.target &&
           strcmp(c->options.draft, c->options.target) == 0;
}

/* `auto` may draft little where little is accepted: not what it keeps tells its worst task, but the clock. */
static bool is_auto(const comparison *c, int way) {
    return c->ways[way].drafts.auto_draft != NULL;
}

static retained judge(const comparison *c, int way) {
    figures f;
    if (!is_auto(c, way)) return compare_retained(c, way);
    figures_of(c, way, -1, &f);
    retained r = {.mean = f.speedup_request};
    for (int d = 0; d < c->n_domains; d++) {
        figures_of(c, way, d, &f);
        if (f.n_turns > 0) retained_add_task(&r, c->domains[d], f.speedup_request);
    }
    return r;
}

/* In its worst task. kept : outlives what is returned, whose task it names */
static specrt_way at_worst(const comparison *c, int way, const retained *kept) {
    double share = retained_factor(kept);
    figures f;
    figures_of(c, way, -1, &f);
    specrt_way worst = {.name = c->ways[way].name,
                        .bytes = isnan(f.bytes_pass) ? 0 : f.bytes_pass,
                        .accept_length = f.accept_length * share,
                        .prompt_seconds = f.prefill,
                        .token_seconds = token_seconds(c, way) / share,
                        .ratio = compare_ratio(c, way, share, PLAIN, 1),
                        .task = retained_by_task(kept) ? kept->task : NULL};
    if (drafts_itself(c))
        worst.ratio = (specrt_ratio){f.accept_full * share, f.accept_full_ci.low * share,
                                     f.accept_full_ci.high * share};
    return worst;
}

/* Names of tasks come from files. */
static void decide_text(const comparison *c, compare_verdict *v) {
    if (!drafts_itself(c)) {
        specrt_advice_text(v->worst, &v->plain, &v->advice, v->text, sizeof v->text);
        sl_text_clean(v->text);
        return;
    }
    snprintf(v->text, sizeof v->text,
             "The target drafted for itself: this shows what lists keep, not speed, which needs a "
             "real drafter: an EAGLE head, an MTP module or a small GGUF with this tokenizer.");
}

specrt_status compare_decide(comparison *c, specrt_error *err) {
    compare_verdict *v = &c->verdict;
    size_t n = (size_t)(c->n_ways - FULL);
    specrt_error why;
    *v = (compare_verdict){.plain = plain_of(c), .pruned = {NAN, NAN, NAN}};
    TRY(sl_new(&v->kept, n, sizeof *v->kept, "a verdict", err));
    TRY(sl_new(&v->worst, n, sizeof *v->worst, "a verdict", err));
    TRY(sl_new(&v->ties, n, sizeof *v->ties, "a verdict", err));
    for (size_t i = 0; i < n; i++) {
        v->kept[i] = judge(c, FULL + (int)i);
        v->worst[i] = at_worst(c, FULL + (int)i, &v->kept[i]);
    }
    size_t first = drafts_itself(c) && n > 1; /* what lists keep, of lists */
    if (specrt_advise(v->worst + first, (int32_t)(n - first), &v->plain, v->ties + first,
                      &v->advice, &why)) {
        snprintf(v->text, sizeof v->text, "No verdict: %.500s.", why.msg);
        return SPECRT_STATUS_OK;
    }
    v->chosen = FULL + (int)first + v->advice.chosen;
    v->to_run = v->chosen;
    if (v->advice.outcome == SPECRT_OUTCOME_SLOWER && !drafts_itself(c)) v->to_run = PLAIN;
    double share = retained_factor(&v->kept[v->chosen - FULL]);
    if (v->chosen != FULL) v->pruned = compare_ratio(c, v->chosen, share, FULL, 1);
    decide_text(c, v);
    return SPECRT_STATUS_OK;
}

void compare_free_verdict(compare_verdict *v) {
    free(v->kept), free(v->worst), free(v->ties);
}

/* ---- cards of the page ---- */

static void write_card(FILE *f, double value, int digits, const char *unit, const char *what) {
    fprintf(f, "<div><b>%.*f%s</b><span>%s", digits, value, unit, what);
}

static void write_speed(FILE *f, const specrt_ratio *r, const char *than) {
    write_card(f, r->value, 2, " x", than);
    fprintf(f, "%s</span></div>\n", specrt_outcome_name(specrt_ratio_outcome(r)));
}

void compare_write_cards(FILE *f, const comparison *c) {
    const compare_verdict *v = &c->verdict;
    figures x, full;
    if (!v->chosen) return;
    figures_of(c, v->chosen, -1, &x);
    figures_of(c, FULL, -1, &full);
    fputs("<div class=\"facts\">\n<div><b>", f);
    sl_html_code(f, c->ways[v->to_run].name);
    fputs("</b><span>to run</span></div>\n", f);
    if (!drafts_itself(c))
        write_speed(f, &v->worst[v->chosen - FULL].ratio, "plain decoding's speed: ");
    if (v->chosen != FULL) {
        if (!drafts_itself(c)) write_speed(f, &v->pruned, "the whole vocabulary's speed: ");
        write_card(f, 100 * x.accept_length / full.accept_length, 1, "%",
                   "of its accept length</span></div>\n");
        write_card(f, 100 * x.shortlist_rows / full.shortlist_rows, 1, "%",
                   "of its rows</span></div>\n");
    }
    fputs("</div>\n", f);
}

/* ---- in words, and as JSON ---- */

static void put_kept(const comparison *c, FILE *f) {
    const compare_verdict *v = &c->verdict;
    const retained *r = &v->kept[v->chosen - FULL];
    figures x, full;
    figures_of(c, v->chosen, -1, &x);
    figures_of(c, FULL, -1, &full);
    fprintf(
        f,
        "%s scores %s of %s rows a pass (%.3g of %.3g MB) and keeps %.1f%% of their accept length",
        c->ways[v->chosen].name, sl_text_count((uint64_t)(x.shortlist_rows + 0.5)),
        sl_text_count((uint64_t)(full.shortlist_rows + 0.5)), x.bytes_pass / 1e6,
        full.bytes_pass / 1e6, 100 * r->mean);
    if (retained_by_task(r))
        fprintf(f, ", %.1f%% in its worst task (%s)", 100 * r->worst, sl_text_name(r->task));
    fputs(".\n", f);
}

static void put_ties(const comparison *c, FILE *f) {
    const compare_verdict *v = &c->verdict;
    const char *before = "As fast within the error: ";
    for (int i = FULL; i < c->n_ways; i++) {
        if (i == v->chosen || !v->ties[i - FULL]) continue;
        fprintf(f, "%s%s", before, c->ways[i].name);
        before = ", ";
    }
    if (before[0] == ',') fprintf(f, "; %s reads the fewest bytes.\n", c->ways[v->chosen].name);
}

void compare_advice(const comparison *c, FILE *f) {
    const compare_verdict *v = &c->verdict;
    if (v->chosen) {
        if (!is_auto(c, v->chosen)) put_kept(c, f);
        if (!drafts_itself(c)) retained_put_speed(f, &v->pruned);
    }
    fprintf(f, "%s\n", v->text);
    if (!v->chosen) return;
    eval_put_head(f, c->ways[v->chosen].name);
    put_ties(c, f);
    if (!v->worst[v->chosen - FULL].task) fputs(RETAINED_BY_MEAN "\n", f);
}

char *compare_words(const comparison *c) {
    char *text = NULL;
    size_t n = 0;
    FILE *words = open_memstream(&text, &n);
    if (!words) return NULL;
    compare_advice(c, words);
    fclose(words);
    return text;
}

static const char *outcome_of(const specrt_ratio *r) {
    return isnan(r->value) ? NULL : specrt_outcome_name(specrt_ratio_outcome(r));
}

void compare_advice_json(const comparison *c, json_object *to) {
    const compare_verdict *v = &c->verdict;
    const specrt_way *chosen = v->chosen ? &v->worst[v->chosen - FULL] : NULL;
    json_object *as_fast = json_object_new_array();
    for (int i = FULL; i < c->n_ways; i++)
        if (v->chosen && i != v->chosen && v->ties[i - FULL])
            json_object_array_add(as_fast, sl_json_text(c->ways[i].name));
    sl_json_put(to, "recommended", sl_json_text(chosen ? c->ways[v->to_run].name : NULL));
    sl_json_put(to, "recommended_policy", sl_json_text(chosen ? chosen->name : NULL));
    sl_json_put(to, "recommended_by",
                sl_json_text(chosen && chosen->task ? "worst_domain" : "mean"));
    sl_json_put(to, "as_fast", as_fast);
    sl_json_put(to, "outcome",
                sl_json_text(chosen && !drafts_itself(c) ? outcome_of(&chosen->ratio) : NULL));
    sl_json_put(to, "pruning_outcome",
                sl_json_text(drafts_itself(c) ? NULL : outcome_of(&v->pruned)));
    char *words = compare_words(c);
    sl_json_put(to, "advice", sl_json_lines(words));
    free(words);
}
