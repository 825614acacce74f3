/* sl_html_plot.c : see sl_html_plot.h. */
#include "base/html_plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"

/* The drawing area inside the SVG, in its own units: on a screen of 390 pixels three of four. */
enum { WIDTH = 460, HEIGHT = 340, LEFT = 56, RIGHT = 446, TOP = 18, BOTTOM = 288 };

static const char style[] =
    ":root{--bg:#fbfbfa;--card:#fff;--ink:#1c1e21;--soft:#667;--line:#dfe1e5;--grid:#eceef1;"
    "--c0:#2563c9;--c1:#ad5600;--c2:#17784e;--c3:#8a4fcf;--c4:#c73e54;--c5:#0b7885;--c6:#846527;"
    "--c7:#c0488f;--gray:#a9adb5;--pick:#eaf1fc}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#14161a;--card:#1c1f25;--ink:#e8e9ec;"
    "--soft:#9aa0ab;--line:#343943;--grid:#272b33;--c0:#6ea0f5;--c1:#f2a254;--c2:#58c492;"
    "--c3:#b98cf0;--c4:#f07f90;--c5:#55c3d1;--c6:#cfae6b;--c7:#ea8cc2;--gray:#6b717d;--pick:#"
    "22304a}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"
    "'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}\n"
    "main{max-width:1320px;margin:0 auto;padding:28px 24px 48px}\n"
    "h1{font-size:26px;margin:0;letter-spacing:-.01em}\n"
    "h2{font-size:18px;margin:34px 0 10px}\n"
    ".subtitle{color:var(--soft);margin:4px 0 0}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));"
    "gap:18px}\n"
    "figure{margin:0;padding:16px 16px 12px;background:var(--card);border:1px solid var(--line);"
    "border-radius:10px}\n"
    "figure h3{font-size:15px;margin:0 0 2px}\n"
    "figure p{margin:0;color:var(--soft);font-size:13px}\n"
    "svg{display:block;width:100%;max-width:540px;height:auto;margin-top:6px}\n"
    "svg text{fill:var(--soft);font-size:13px}\n"
    "svg .mark{fill:var(--ink)}\n"
    ".grid{stroke:var(--grid)}.axis{stroke:var(--line)}\n"
    ".rule{stroke:var(--soft);stroke-dasharray:2 3}\n"
    ".curve{fill:none;stroke-width:2;stroke-linejoin:round}\n"
    ".dash{stroke-dasharray:6 4}.thin{stroke-width:1}\n"
    ".lead{fill:none;stroke-width:1}\n"
    ".dot{stroke-width:1.5}.dot.dash{fill:var(--card);stroke-dasharray:none}\n"
    "svg .name{paint-order:stroke;stroke:var(--card);stroke-width:4px;stroke-linejoin:round}\n"
    "ul.legend{display:flex;flex-wrap:wrap;gap:2px 18px;list-style:none;margin:4px 0 0;padding:0;"
    "font-size:13px}\n"
    "ul.legend svg{display:inline-block;width:26px;height:8px;margin:0 6px 1px 0}\n"
    "svg rect{stroke:var(--card)}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;background:var(--card)}\n"
    ".scroll{overflow-x:auto;border:1px solid var(--line);border-radius:10px;"
    "background:var(--card);width:fit-content;max-width:100%}\n"
    "th,td{padding:5px 11px;text-align:right;white-space:nowrap;"
    "border-bottom:1px solid var(--grid)}\n"
    "th{color:var(--soft);font-weight:500;font-size:13px}\n"
    "td:first-child,th:first-child{text-align:left;position:sticky;left:0;background:inherit}\n"
    "tr{background:var(--card)}\n"
    "td code{white-space:normal}\n"
    "tr:last-child td{border-bottom:0}\n"
    "tr.chosen{font-weight:650;background:var(--pick)}\n"
    ".badge{margin-left:8px;padding:1px 7px;border-radius:9px;font-size:11.5px;font-weight:600;"
    "background:var(--c0);color:var(--card)}.badge.best{background:var(--c2)}\n"
    "code,.token{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',"
    "monospace;font-size:13px}\n"
    ".tokens{display:flex;flex-wrap:wrap;gap:6px;margin:0;padding:0;list-style:none}\n"
    ".tokens li{display:flex;gap:8px;align-items:baseline;padding:2px 9px;"
    "border:1px solid var(--line);border-radius:6px;background:var(--card)}\n"
    ".tokens .token{unicode-bidi:isolate;white-space:pre}\n"
    ".tokens small{color:var(--soft);font-size:11.5px}\n"
    ".facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;"
    "margin:20px 0 18px}\n"
    ".facts div{background:var(--card);border:1px solid var(--line);border-radius:10px;"
    "padding:10px 14px}\n"
    ".facts b{display:block;font-size:21px;font-weight:600;letter-spacing:-.01em;"
    "overflow-wrap:anywhere}\n"
    ".facts span{color:var(--soft);font-size:13px}\n"
    ".note{color:var(--soft);font-size:13px;max-width:80em}\n"
    "@media(max-width:30rem){main{padding:20px 10px}figure{padding:12px 8px}}\n";

/* ---- pages ---- */

/* breaks : characters before which a line may break */
static void put_text(FILE *f, const char *text, const char *breaks) {
    char *clean = strdup(text);
    if (clean) sl_text_clean(clean);
    for (const char *p = clean; p && *p; p++) {
        if (strchr(breaks, *p)) fputs("<wbr>", f);
        switch (*p) {
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        case '&': fputs("&amp;", f); break;
        case '"': fputs("&quot;", f); break;
        default: fputc(*p, f);
        }
    }
    free(clean);
}

void sl_html_text(FILE *f, const char *text) {
    put_text(f, text, "");
}

void sl_html_code(FILE *f, const char *text) {
    fputs("<code>", f);
    put_text(f, text, "+@");
    fputs("</code>", f);
}

void sl_html_lines(FILE *f, char *text) {
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        fputs("<p>", f);
        sl_html_text(f, line);
        fputs("</p>\n", f);
    }
}

void sl_html_begin(FILE *f, const char *title, const char *subtitle) {
    fputs("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
          f);
    sl_html_text(f, title);
    fprintf(f, "</title>\n<style>\n%s</style>\n<main>\n<h1>", style);
    sl_html_text(f, title);
    fputs("</h1>\n<p class=\"subtitle\">", f);
    sl_html_text(f, subtitle);
    fputs("</p>\n", f);
}

void sl_html_end(FILE *f) {
    fputs("</main>\n</html>\n", f);
}

/* ---- axes ---- */

static double to_scale(plot_scale scale, double value) {
    switch (scale) {
    case PLOT_LOG2: return log2(value);
    case PLOT_LOG10: return log10(value);
    default: return value;
    }
}

static double position(const plot_axis *a, double value, double begin, double end) {
    double low = to_scale(a->scale, a->min), high = to_scale(a->scale, a->max);
    return begin + (to_scale(a->scale, value) - low) / (high - low) * (end - begin);
}

static double x_of(const plot *p, double value) {
    return position(&p->x, value, LEFT, RIGHT);
}

static double y_of(const plot *p, double value) {
    return position(&p->y, value, BOTTOM, TOP);
}

static bool drawable(const plot *p, const plot_series *s, int i) {
    return isfinite(s->x[i]) && isfinite(s->y[i]) && (p->x.scale == PLOT_LINEAR || s->x[i] > 0) &&
           (p->y.scale == PLOT_LINEAR || s->y[i] > 0);
}

/* Bounds of the data where the caller set none; never an empty range. */
static void fit_axis(plot *p, plot_axis *a, bool is_x) {
    if (a->min != 0 || a->max != 0) return;
    double low = INFINITY, high = -INFINITY;
    for (int s = 0; s < p->n_series; s++)
        for (int i = 0; i < p->series[s].n; i++) {
            if (!drawable(p, &p->series[s], i)) continue;
            double value = is_x ? p->series[s].x[i] : p->series[s].y[i];
            low = fmin(low, value);
            high = fmax(high, value);
        }
    if (!(low <= high)) low = high = 1;
    if (low == high && a->scale == PLOT_LINEAR) low -= 0.5, high += 0.5;
    if (low == high) high = 2 * low;
    if (a->scale == PLOT_LINEAR && !is_x) {
        double margin = 0.06 * (high - low);
        low -= margin, high += margin;
    }
    a->min = low;
    a->max = high;
}

/* The step between ticks: 1, 2 or 5 times a power of ten, for about `n` of them. */
static double linear_step(double range, int n) {
    double raw = range / n, power = pow(10, floor(log10(raw)));
    double part = raw / power;
    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

enum { MAX_TICKS = 64 };

static int axis_ticks(const plot_axis *a, double out[MAX_TICKS]) {
    double low = to_scale(a->scale, a->min), high = to_scale(a->scale, a->max);
    bool logs = a->scale == PLOT_LOG2 || a->scale == PLOT_LOG10;
    double step = logs ? ceil((high - low) / 12) : linear_step(high - low, 6);
    int n = 0;
    if (step < 1 && a->scale != PLOT_LINEAR) step = 1;
    for (double t = ceil(low / step - 1e-9) * step; t <= high + 1e-9 * step && n < MAX_TICKS;
         t += step) {
        if (fabs(t) < 1e-9 * step) t = 0; /* no "-0" */
        out[n++] = a->scale == PLOT_LOG2 ? exp2(t) : a->scale == PLOT_LOG10 ? pow(10, t) : t;
    }
    return n;
}

/* more : digits beyond those that tell the ticks apart. */
static void tick_text(const plot_axis *a, double value, int more, char out[32]) {
    double unit = a->scale == PLOT_LOG2 ? 1024 : 1000;
    double step = linear_step(a->max - a->min, 6);
    if (a->percent) {
        int digits = step < 0.001 ? 2 : step < 0.01 ? 1 : 0;
        snprintf(out, 32, "%.*f%%", digits + more, 100 * value);
    } else if (a->scale == PLOT_LINEAR) {
        int digits = step < 0.01 ? 3 : step < 0.1 ? 2 : step < 1 ? 1 : 0;
        snprintf(out, 32, "%.*f", digits + more, value);
    } else if (value < unit) {
        snprintf(out, 32, "%g", value);
    } else {
        int power = 0;
        while (value >= unit && power < 4) value /= unit, power++;
        snprintf(out, 32, "%g%c", value, " kMGT"[power]);
    }
}

static void put_axis_label(FILE *f, const plot_axis *a) {
    sl_html_text(f, a->label);
    if (a->scale == PLOT_LOG2 || a->scale == PLOT_LOG10) fputs(" (logarithmic)", f);
}

static void draw_axes(FILE *f, const plot *p) {
    double ticks[MAX_TICKS];
    char text[32];
    int n = axis_ticks(&p->y, ticks);
    for (int i = 0; i < n; i++) {
        double y = y_of(p, ticks[i]);
        tick_text(&p->y, ticks[i], 0, text);
        fprintf(f, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, y, RIGHT);
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8, y + 4,
                text);
    }
    n = axis_ticks(&p->x, ticks);
    for (int i = 0; i < n; i++) {
        double x = x_of(p, ticks[i]);
        tick_text(&p->x, ticks[i], 0, text);
        fprintf(f, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>", x, TOP, BOTTOM);
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x, BOTTOM + 19,
                text);
    }
    fprintf(f, "<path class=\"axis\" fill=\"none\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, BOTTOM,
            RIGHT);
    fprintf(f, "<text class=\"label\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">",
            (LEFT + RIGHT) / 2, BOTTOM + 42);
    put_axis_label(f, &p->x);
    fprintf(f,
            "</text>\n<text class=\"label\" transform=\"translate(14 %d) rotate(-90)\" "
            "text-anchor=\"middle\">",
            (TOP + BOTTOM) / 2);
    put_axis_label(f, &p->y);
    fputs("</text>\n", f);
}

/* ---- curves ---- */

static void color_text(int color, char out[24]) {
    if (color < 0)
        snprintf(out, 24, "var(--gray)");
    else
        snprintf(out, 24, "var(--c%d)", color % HTML_COLORS);
}

/* Around 0 0, one a color, for readers who do not tell the colors apart. */
static const char *const markers[HTML_COLORS] = {"M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
                                                 "M-3-3h6v6h-6z",
                                                 "M0-4L4 3H-4z",
                                                 "M0-4.5L4.5 0L0 4.5L-4.5 0z",
                                                 "M0 4L4-3H-4z",
                                                 "M-1-4h2v3h3v2h-3v3h-2v-3h-3v-2h3z",
                                                 "M-4-1.5h8v3h-8z",
                                                 "M-1.5-4h3v8h-3z"};

/* A tag that stays open. */
static void open_marker(FILE *f, const plot_series *s, double x, double y) {
    char color[24];
    color_text(s->color, color);
    fprintf(f,
            "<path class=\"dot%s\" transform=\"translate(%.1f %.1f)\" style=\"stroke:%s%s%s\" "
            "d=\"%s\">",
            s->dashed ? " dash" : "", x, y, color,
            s->dashed ? "" : ";fill:", s->dashed ? "" : color,
            markers[s->color < 0 ? 0 : s->color % HTML_COLORS]);
}

static void draw_dots(FILE *f, const plot *p, const plot_series *s) {
    char x_text[32], y_text[32];
    for (int i = 0; i < s->n; i++) {
        if (!drawable(p, s, i)) continue;
        snprintf(x_text, sizeof x_text, "%.15g", s->x[i]);
        tick_text(&p->y, s->y[i], 2, y_text);
        open_marker(f, s, x_of(p, s->x[i]), y_of(p, s->y[i]));
        fputs("<title>", f);
        if (s->label) sl_html_text(f, s->label), fputs(": ", f);
        fprintf(f, "%s at %s</title></path>\n", y_text, x_text);
    }
}

static void draw_series(FILE *f, const plot *p, const plot_series *s) {
    char color[24];
    bool pen_down = false;
    color_text(s->color, color);
    fprintf(f, "<path class=\"curve%s%s\" style=\"stroke:%s\" d=\"", s->dashed ? " dash" : "",
            s->color < 0 ? " thin" : "", color);
    for (int i = 0; i < s->n; i++) {
        if (!drawable(p, s, i)) continue;
        fprintf(f, "%c%.1f %.1f", pen_down ? 'L' : 'M', x_of(p, s->x[i]), y_of(p, s->y[i]));
        pen_down = true;
    }
    fputs("\"/>\n", f);
    if (s->dots) draw_dots(f, p, s);
}

static void draw_marks(FILE *f, const plot *p) {
    for (int i = 0; i < p->n_marks; i++) {
        double x = x_of(p, p->marks[i].x);
        bool left = x > (LEFT + RIGHT) / 2.0;
        if (!(x >= LEFT && x <= RIGHT)) continue;
        fprintf(f, "<path class=\"rule\" d=\"M%.1f %dV%d\"/>", x, TOP, BOTTOM);
        fprintf(f, "<text class=\"mark\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">",
                left ? x - 6 : x + 6, BOTTOM - 10 - 16 * i, left ? "end" : "start");
        sl_html_text(f, p->marks[i].label);
        fputs("</text>\n", f);
    }
}

/* ---- names where curves end ---- */

enum { LINE_HEIGHT = 14 };

typedef struct curve_end {
    const plot_series *s;
    double x, y, at; /* at: the name's height */
} curve_end;

static int by_height(const void *left, const void *right) {
    const curve_end *a = (const curve_end *)left, *b = (const curve_end *)right;
    int order = (a->y > b->y) - (a->y < b->y);
    return order ? order : (a->x < b->x) - (a->x > b->x);
}

/* @return how many series have a name and a point */
static int find_ends(const plot *p, curve_end *ends) {
    int n = 0;
    for (int k = 0; k < p->n_series; k++) {
        const plot_series *s = &p->series[k];
        int i = s->n - 1;
        while (i >= 0 && !drawable(p, s, i)) i--;
        if (s->label && i >= 0) ends[n++] = (curve_end){s, x_of(p, s->x[i]), y_of(p, s->y[i]), 0};
    }
    return n;
}

/* A line of text apart, from the top; what would leave the plot below goes up again. */
static void spread_names(curve_end *ends, int n) {
    double least = TOP, most = BOTTOM - 6;
    qsort(ends, (size_t)n, sizeof *ends, by_height);
    for (int i = 0; i < n; i++, least += LINE_HEIGHT) least = ends[i].at = fmax(ends[i].y, least);
    for (int i = n - 1; i >= 0; i--, most -= LINE_HEIGHT)
        most = ends[i].at = fmin(ends[i].at, most);
}

/* Of a curve without dots, from its end on. */
static void draw_markers(FILE *f, const plot *p, const plot_series *s) {
    int step = s->n / 5 > 0 ? s->n / 5 : 1;
    for (int i = s->n - 1; i >= 0; i -= step) {
        if (!drawable(p, s, i)) continue;
        open_marker(f, s, x_of(p, s->x[i]), y_of(p, s->y[i]));
        fputs("</path>", f);
    }
}

static void draw_name(FILE *f, const plot *p, const curve_end *e) {
    bool left = e->x > (LEFT + RIGHT) / 2.0;
    double x = left ? e->x - 14 : e->x + 14, gap = e->s->n > 1 ? 8 : 3;
    char color[24];
    color_text(e->s->color, color);
    fprintf(f, "<path class=\"lead\" style=\"stroke:%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>", color, e->x,
            e->y, x, e->at);
    if (!e->s->dots) draw_markers(f, p, e->s);
    if (e->s->n > 1) open_marker(f, e->s, x, e->at), fputs("</path>", f); /* ends may coincide */
    fprintf(f, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" style=\"fill:%s\">",
            left ? x - gap : x + gap, e->at + 4, left ? "end" : "start", color);
    sl_html_text(f, e->s->label);
    fputs("</text>\n", f);
}

/* Of one curve the title says what it is. */
static void draw_names(FILE *f, const plot *p) {
    curve_end *ends = NULL;
    if (p->n_series > 1) ends = (curve_end *)calloc((size_t)p->n_series, sizeof *ends);
    if (!ends) return;
    int n = find_ends(p, ends);
    spread_names(ends, n);
    for (int i = 0; i < n; i++) draw_name(f, p, &ends[i]);
    free(ends);
}

void sl_html_plot(FILE *f, const plot *given) {
    plot p = *given;
    fit_axis(&p, &p.x, true);
    fit_axis(&p, &p.y, false);
    fputs("<figure><h3>", f);
    sl_html_text(f, p.title);
    fputs("</h3>", f);
    if (p.caption) fputs("<p>", f), sl_html_text(f, p.caption), fputs("</p>", f);
    fprintf(f, "\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    sl_html_text(f, p.title);
    fputs("\">\n", f);
    draw_axes(f, &p);
    for (int i = 0; i < p.n_series; i++) draw_series(f, &p, &p.series[i]);
    draw_marks(f, &p);
    draw_names(f, &p);
    fputs("</svg>\n</figure>\n", f);
}

/* ---- bars ---- */

enum { BAR_STEP = 22, BAR_HEIGHT = 14 };

/* Room for the longest label, about 7 units a character. */
static double bar_left(const bars *b) {
    size_t most = 0;
    for (int i = 0; i < b->n_bars; i++)
        if (strlen(b->labels[i]) > most) most = strlen(b->labels[i]);
    return fmin(20 + 7.0 * (double)most, 0.5 * WIDTH);
}

static double bar_total(const bars *b, int i) {
    double sum = 0;
    for (int k = 0; k < b->n_parts; k++) {
        double value = b->values[i * b->n_parts + k];
        if (value > 0) sum += value;
    }
    return sum;
}

static void draw_bar(FILE *f, const bars *b, int i, double scale) {
    double x = bar_left(b), y = TOP + i * BAR_STEP;
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", x - 8, y + BAR_HEIGHT - 3);
    sl_html_text(f, b->labels[i]);
    fputs("</text>", f);
    for (int k = 0; k < b->n_parts; k++) {
        double value = b->values[i * b->n_parts + k];
        if (!(value > 0)) continue;
        fprintf(f,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" "
                "style=\"fill:var(--c%d)\"><title>",
                x, y, value * scale, BAR_HEIGHT, k % HTML_COLORS);
        sl_html_text(f, b->parts[k]);
        fprintf(f, ": %.3g %s</title></rect>", value, b->unit);
        x += value * scale;
    }
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">%.3g</text>\n", x + 6, y + BAR_HEIGHT - 3,
            bar_total(b, i));
}

void sl_html_bars(FILE *f, const bars *b) {
    double most = 0;
    for (int i = 0; i < b->n_bars; i++) most = fmax(most, bar_total(b, i));
    fputs("<figure><h3>", f);
    sl_html_text(f, b->title);
    fputs("</h3>", f);
    if (b->caption) fputs("<p>", f), sl_html_text(f, b->caption), fputs("</p>", f);
    fprintf(f, "\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH,
            TOP + b->n_bars * BAR_STEP + 8);
    sl_html_text(f, b->title);
    fputs("\">\n", f);
    for (int i = 0; i < b->n_bars; i++)
        draw_bar(f, b, i, most > 0 ? (RIGHT - 40 - bar_left(b)) / most : 0);
    fputs("</svg>\n<ul class=\"legend\">", f);
    for (int k = 0; k < b->n_parts; k++) {
        fprintf(f,
                "<li><svg viewBox=\"0 0 26 8\" aria-hidden=\"true\"><rect width=\"26\" "
                "height=\"8\" style=\"fill:var(--c%d)\"/></svg>",
                k % HTML_COLORS);
        sl_html_text(f, b->parts[k]);
        fputs("</li>\n", f);
    }
    fputs("</ul></figure>\n", f);
}
