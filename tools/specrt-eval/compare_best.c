/* compare_best.c : what a comparison comes to: the fastest policy beside plain decoding, and the fastest
 * that drafts from less than the whole vocabulary beside the one that drafts from all of it. */
#include "compare.h"
#include "base/html_plot.h"

/* Policies race with policies: plain decoding is what they are measured by, and never wins. */
static int fastest_from(const comparison *c, int first, figures *best) {
    int fastest = -1;
    for (int i = first; i < c->n_contestants; i++) {
        figures x;
        figures_of(c, i, -1, &x);
        if (fastest >= 0 && !(x.tokens_per_second > best->tokens_per_second)) continue;
        *best = x;
        fastest = i;
    }
    return fastest;
}

/* ---- cards of the page ---- */

static void write_card(FILE *f, double value, int digits, const char *unit, const char *what) {
    fprintf(f, "<div><b>%.*f%s</b><span>%s", digits, value, unit, what);
}

static void write_speed(FILE *f, const comparison *c, int policy, double ratio, const char *won,
                        const char *lost) {
    write_card(f, ratio, 2, " x", ratio > 1 ? won : lost);
    fputs(" <code>", f);
    html_text(f, c->contestants[policy].name);
    fputs("</code></span></div>\n", f);
}

void compare_write_cards(FILE *f, const comparison *c) {
    figures x, full;
    int fastest = fastest_from(c, FULL, &x);
    fputs("<div class=\"facts\">\n", f);
    write_speed(f, c, fastest, x.speedup_plain, "plain decoding's speed, by",
                "no policy beat plain decoding; the nearest is");
    fastest = fastest_from(c, FULL + 1, &x);
    figures_of(c, FULL, -1, &full);
    if (fastest >= 0) {
        write_speed(f, c, fastest, x.speedup_full, "the whole vocabulary's speed, by",
                    "no policy beat the whole vocabulary; the nearest is");
        write_card(f, 100 * x.accept_length / full.accept_length, 1, "%",
                   "of its accept length</span></div>\n");
        write_card(f, 100 * x.active_rows / full.active_rows, 1, "%", "of its rows</span></div>\n");
    }
    fputs("</div>\n", f);
}

/* ---- lines under the table ---- */

static void print_speed(FILE *f, const comparison *c, int policy, double ratio, const char *than) {
    const char *name = c->contestants[policy].name;
    if (ratio > 1)
        fprintf(f, "fastest is %s, %.2f x %s\n", name, ratio, than);
    else
        fprintf(f, "no policy beat %s; the nearest is %s, %.2f x\n", than, name, ratio);
}

void compare_print_best(FILE *f, const comparison *c) {
    figures x;
    int fastest = fastest_from(c, FULL, &x);
    print_speed(f, c, fastest, x.speedup_plain, "plain decoding");
    fastest = fastest_from(c, FULL + 1, &x);
    if (fastest >= 0) print_speed(f, c, fastest, x.speedup_full, "the whole vocabulary");
}
