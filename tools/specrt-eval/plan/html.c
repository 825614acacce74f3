/* html.c : --report, the plan as one page. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/html_plot.h"
#include "base/io.h"
#include "plan.h"
#include "base/text.h"

static void write_advice(FILE *f, const plan *p) {
    char *text = NULL;
    size_t n = 0;
    FILE *words = open_memstream(&text, &n);
    if (!words) return;
    plan_advice(p, words);
    fclose(words);
    if (text) sl_html_lines(f, text);
    free(text);
}

static void number_cell(FILE *f, double x, int digits) {
    if (isnan(x))
        fputs("<td>-</td>", f);
    else
        fprintf(f, "<td>%.*f</td>", digits, x);
}

static void choice_row(FILE *f, const plan *p, const plan_choice *c, bool best) {
    bool plain = c->policy < 0;
    fprintf(f, "<tr%s><td><code>", best ? " class=\"chosen\"" : "");
    sl_html_text(f, plan_name(p, c));
    fputs("</code></td>", f);
    if (plain)
        fputs("<td>-</td><td>-</td><td>-</td>", f);
    else
        fprintf(f, "<td>%d</td><td>%d</td><td>%d</td>", (int)c->shape.num_steps, (int)c->shape.topk,
                (int)c->shape.num_draft_tokens);
    number_cell(f, plain ? NAN : c->accept_length, 2);
    if (plain)
        fputs("<td>-</td>", f);
    else
        fprintf(f, "<td>%s</td>", sl_text_count((uint64_t)(c->rows + 0.5)));
    number_cell(f, 1e3 * c->cycle, 2);
    number_cell(f, c->speed, 0);
    if (isnan(c->low))
        fputs("<td>-</td>", f);
    else
        fprintf(f, "<td>%.0f to %.0f</td>", c->low, c->high);
    number_cell(f, c->speed / p->plain_choice.speed, 2);
    number_cell(f, c->kept.mean > 0 ? 100 * c->kept.mean : NAN, 1);
    number_cell(f, advice_by_task(&c->kept) ? 100 * c->kept.worst : NAN, 1);
    if (p->n_check) {
        number_cell(f, c->measured, 0);
        number_cell(f, 100 * (c->speed / c->measured - 1), 1);
    }
    fputs("</tr>\n", f);
}

static void choice_table(FILE *f, const plan *p) {
    fputs("<h2>Policies, each with its best tree</h2>\n<div class=\"scroll\"><table><tr>"
          "<th>policy</th><th>num_steps</th><th>topk</th><th>num_draft_tokens</th>"
          "<th>accept length</th><th>rows</th><th>ms a cycle</th><th>tokens/s</th><th>95%</th>"
          "<th>x plain</th><th>% of full</th><th>worst task</th>",
          f);
    if (p->n_check) fputs("<th>measured</th><th>error %</th>", f);
    fputs("</tr>\n", f);
    for (int i = 0; i < p->n_choices; i++) choice_row(f, p, &p->choices[i], i == p->recommended);
    fprintf(f,
            "</table></div>\n<p class=\"note\">Expected, but for plain decoding, which was "
            "measured. The intervals hold what other prompts would change, how much cycles "
            "differed, and %.1f%%, by which the curves below are off (median; at worst %.0f%%) at "
            "sizes that were held back.</p>\n",
            100 * p->costs.error, 100 * p->costs.worst);
}

static void plot_head(FILE *f, const pass_costs *k) {
    static const char *const labels[] = {"1 row, first level", "1 row", "4 rows", "10 rows"};
    plot_series series[1 + PASS_WIDTHS];
    double y[1 + PASS_WIDTHS][CURVE_MOST];
    for (int w = 0; w <= PASS_WIDTHS; w++) {
        const curve *c = w ? &k->head[w - 1] : &k->head_first;
        for (int i = 0; i < c->n; i++) y[w][i] = 1e3 * c->y[i];
        series[w] = (plot_series){labels[w], c->x, y[w], c->n, w, false, true};
    }
    const plot p = {.title = "Head product and ranking",
                    .caption =
                        "By rows of the head, for the hidden rows of one drafter pass; the first "
                        "level finds caches as the target left them.",
                    .x = {"active rows", PLOT_LOG2, false, 0, 0},
                    .y = {"ms", PLOT_LINEAR, false, 0, 0},
                    .series = series,
                    .n_series = 1 + PASS_WIDTHS};
    sl_html_plot(f, &p);
}

static void plot_passes(FILE *f, const pass_costs *k) {
    double y[2][CURVE_MOST];
    for (int i = 0; i < k->target.n; i++) y[0][i] = 1e3 * k->target.y[i];
    for (int i = 0; i < k->draft.n; i++) y[1][i] = 1e3 * k->draft.y[i];
    const plot_series series[] = {
        {"target", k->target.x, y[0], k->target.n, 0, false, true},
        {"drafter's layer", k->draft.x, y[1], k->draft.n, 1, false, true}};
    const plot p = {.title = "Passes of the models",
                    .caption = "By nodes of the tree, with logits; the drafter by tokens.",
                    .x = {"nodes, tokens", PLOT_WHOLE, false, 0, 0},
                    .y = {"ms", PLOT_LINEAR, false, 0, 0},
                    .series = series,
                    .n_series = 2};
    sl_html_plot(f, &p);
}

/* Chains of the fastest policies: where another step stops paying. */
static void plot_chains(FILE *f, const plan *p) {
    enum { MOST = HTML_COLORS };
    plot_series series[MOST];
    double x[MOST][PLAN_SHAPES], y[MOST][PLAN_SHAPES];
    int n = 0;
    for (int i = 0; i < p->n_choices && n < MOST; i++)
        for (int r = 0; r < p->n_runs && p->choices[i].policy >= 0 && n < MOST; r++) {
            const plan_run *run = &p->runs[r];
            if (run->policy != p->choices[i].policy || p->choices[i].shape.topk != 1 ||
                run->shapes[0].topk != 1)
                continue;
            for (int s = 0; s < run->n_shapes; s++) {
                x[n][s] = run->shapes[s].num_steps;
                y[n][s] = plan_predict(p, run, s).speed;
            }
            series[n] = (plot_series){
                p->policies[run->policy].name, x[n], y[n], run->n_shapes, n, false, true};
            n++;
            break;
        }
    const plot chains = {.title = "Chains by length",
                         .caption = "Expected tokens per second of the fastest policies.",
                         .x = {"num_steps", PLOT_WHOLE, false, 0, 0},
                         .y = {"tokens/s", PLOT_LINEAR, false, 0, 0},
                         .series = series,
                         .n_series = n};
    if (n) sl_html_plot(f, &chains);
}

static void write_page(FILE *f, const plan *p) {
    char subtitle[160];
    snprintf(subtitle, sizeof subtitle,
             "%d prompts of up to %d tokens, temperature %g, %d threads, measured in %.0f s",
             p->n_prompts, (int)p->options.max_tokens, p->options.temperature,
             (int)p->options.common.threads, p->seconds);
    sl_html_begin(f, "A plan for this machine", subtitle);
    write_advice(f, p);
    choice_table(f, p);
    fputs("<h2>Costs</h2>\n<div class=\"plots\">\n", f);
    plot_head(f, &p->costs);
    plot_passes(f, &p->costs);
    plot_chains(f, p);
    fputs("</div>\n", f);
    sl_html_end(f);
}

specrt_status plan_write_report(const plan *p, const char *path, bool force, specrt_error *err) {
    out_file out;
    TRY(sl_out_open(&out, path, force, err));
    write_page(out.f, p);
    return sl_out_commit(&out, err);
}
