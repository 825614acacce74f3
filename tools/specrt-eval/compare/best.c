/* best.c : what a comparison comes to: the policy to draft with, the fastest one beside plain
 * decoding, and the fastest that drafts from less than the whole vocabulary beside the one that drafts from
 * all of it. */
#include "compare.h"
#include "base/html_plot.h"
#include "base/json.h"
#include "base/text.h"

/* Tokens per second in the policy's worst task. */
static double worst_speed(const comparison *c, int policy) {
    retained r = compare_retained(c, policy);
    return compare_speed(c, policy) * advice_factor(&r);
}

static candidate candidate_of(const comparison *c, int policy, int fastest) {
    candidate k = {0};
    retained mine = compare_retained(c, policy), other = compare_retained(c, fastest);
    double factor = advice_factor(&mine) / advice_factor(&other);
    double cycles = 0;
    for (int i = 0; i < c->n_turns; i++) {
        const turn_sample *s = &c->contestants[policy].samples[i];
        k.rows += (double)s->stats.n_rows;
        cycles += (double)s->stats.n_cycles;
    }
    k.rows /= cycles;
    k.speed = worst_speed(c, policy);
    k.pays = policy == fastest ? 0 : compare_pays(c, policy, fastest, factor);
    return k;
}

/* Policies race with policies: plain decoding is what they are measured by, and never wins.
 * @return -1: there is none from `first` on */
static int fastest_from(const comparison *c, int first) {
    int fastest = -1;
    for (int i = first; i < c->n_contestants; i++)
        if (fastest < 0 || compare_speed(c, i) > compare_speed(c, fastest)) fastest = i;
    return fastest;
}

/* In its worst task. */
static int fastest_at_worst(const comparison *c) {
    int fastest = FULL;
    for (int i = FULL; i < c->n_contestants; i++)
        if (worst_speed(c, i) > worst_speed(c, fastest)) fastest = i;
    return fastest;
}

int compare_recommended(const comparison *c) {
    int fastest = fastest_at_worst(c), chosen = fastest;
    candidate best = candidate_of(c, fastest, fastest), now = best;
    for (int i = FULL; i < c->n_contestants; i++) {
        candidate k = candidate_of(c, i, fastest);
        if (!advice_prefers(&k, &now, &best)) continue;
        now = k;
        chosen = i;
    }
    return chosen;
}

bool compare_drafts(const comparison *c) {
    return compare_speed(c, fastest_from(c, FULL)) > compare_speed(c, PLAIN);
}

/* ---- cards of the page ---- */

static void write_card(FILE *f, double value, int digits, const char *unit, const char *what) {
    fprintf(f, "<div><b>%.*f%s</b><span>%s", digits, value, unit, what);
}

static void write_speed(FILE *f, const comparison *c, int policy, double ratio, const char *won,
                        const char *lost) {
    write_card(f, ratio, 2, " x", ratio > 1 ? won : lost);
    fputs(" <code>", f);
    sl_html_text(f, c->contestants[policy].name);
    fputs("</code></span></div>\n", f);
}

void compare_write_cards(FILE *f, const comparison *c) {
    figures x, full;
    int fastest = fastest_from(c, FULL);
    figures_of(c, fastest, -1, &x);
    fputs("<div class=\"facts\">\n", f);
    write_speed(f, c, fastest, x.speedup_plain, "plain decoding's speed, by",
                "no policy beat plain decoding; the nearest is");
    fastest = fastest_from(c, FULL + 1);
    if (fastest >= 0) {
        figures_of(c, FULL, -1, &full);
        figures_of(c, fastest, -1, &x);
        write_speed(f, c, fastest, x.speedup_full, "the whole vocabulary's speed, by",
                    "no policy beat the whole vocabulary; the nearest is");
        write_card(f, 100 * x.accept_length / full.accept_length, 1, "%",
                   "of its accept length</span></div>\n");
        write_card(f, 100 * x.shortlist_rows / full.shortlist_rows, 1, "%",
                   "of its rows</span></div>\n");
    }
    fputs("</div>\n", f);
}

/* ---- in words, and as JSON ---- */

static bool ties(const comparison *c, int policy) {
    int fastest = fastest_at_worst(c);
    candidate best = candidate_of(c, fastest, fastest), k = candidate_of(c, policy, fastest);
    return advice_ties(&k, &best);
}

static void put_ties(const comparison *c, FILE *f, int chosen) {
    const char *before = "As fast, within the error of these prompts: ";
    for (int i = FULL; i < c->n_contestants; i++) {
        if (i == chosen || !ties(c, i)) continue;
        fprintf(f, "%s%s", before, c->contestants[i].name);
        before = ", ";
    }
    if (before[0] == ',') fprintf(f, "; %s scores the fewest rows.\n", c->contestants[chosen].name);
}

static void put_retained(const comparison *c, FILE *f, int chosen) {
    retained r = compare_retained(c, chosen);
    if (!advice_by_task(&r)) {
        fputs(ADVICE_BY_MEAN "\n", f);
        return;
    }
    fprintf(
        f, "Its accept length is %.1f%% of the full vocabulary's, %.1f%% in the worst task (%s).\n",
        100 * r.mean, 100 * r.worst, sl_text_name(r.task));
}

static void put_verdict(const comparison *c, FILE *f, const char *what, int base,
                        const char *than) {
    int fastest = fastest_from(c, base + 1);
    if (fastest < 0) return;
    double ratio = compare_speed(c, fastest) / compare_speed(c, base);
    fprintf(f, "%s %s; at best %.2f x %s's speed, with %s.\n", what,
            advice_verdict(ratio, compare_pays(c, fastest, base, 1)), ratio, than,
            c->contestants[fastest].name);
}

void compare_advice(const comparison *c, FILE *f) {
    int chosen = compare_recommended(c);
    fprintf(f, "Recommended: %s%s.\n",
            compare_drafts(c) ? "" : "no drafts; plain decoding is fastest. Of the policies: ",
            c->contestants[chosen].name);
    put_retained(c, f, chosen);
    put_ties(c, f, chosen);
    put_verdict(c, f, "Speculation", PLAIN, "plain decoding");
    put_verdict(c, f, "Pruning", FULL, "the full vocabulary");
}

static json_object *json_pays(const comparison *c, int base) {
    int fastest = fastest_from(c, base + 1);
    return fastest < 0 ? NULL : json_object_new_int(compare_pays(c, fastest, base, 1));
}

void compare_advice_json(const comparison *c, json_object *to) {
    int chosen = compare_recommended(c);
    retained kept = compare_retained(c, chosen);
    json_object *as_fast = json_object_new_array();
    for (int i = FULL; i < c->n_contestants; i++)
        if (i != chosen && ties(c, i))
            json_object_array_add(as_fast, sl_json_text(c->contestants[i].name));
    sl_json_put(to, "recommended",
                sl_json_text(c->contestants[compare_drafts(c) ? chosen : PLAIN].name));
    sl_json_put(to, "recommended_policy", sl_json_text(c->contestants[chosen].name));
    sl_json_put(to, "recommended_by",
                sl_json_text(advice_by_task(&kept) ? "worst_domain" : "mean"));
    sl_json_put(to, "as_fast", as_fast);
    sl_json_put(to, "speculation_pays", json_pays(c, PLAIN));
    sl_json_put(to, "pruning_pays", json_pays(c, FULL));
}
