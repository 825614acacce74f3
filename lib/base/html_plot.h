/* sl_html_plot.h : self-contained HTML pages with line plots as inline SVG. No script, no external
 * file; light or dark by the reader's preference. Write errors stay in the FILE: check ferror at
 * the end. */
#ifndef BASE_HTML_PLOT_H
#define BASE_HTML_PLOT_H

#include <stdbool.h>
#include <stdio.h>

enum { HTML_COLORS = 8 }; /* of the palette, by number in CSS: --c0 ... */

/* sl_html_begin() : everything up to the content; `subtitle` stands small under the title. */
void sl_html_begin(FILE *f, const char *title, const char *subtitle);
void sl_html_end(FILE *f);

/* sl_html_text() : text as sl_text_clean() shows it, with the characters that mean something to HTML
 * replaced. */
void sl_html_text(FILE *f, const char *text);

/* sl_html_code() : the same as <code>, whose lines may break before + and @, between a policy's sources. */
void sl_html_code(FILE *f, const char *text);

/* sl_html_lines() : each line of a text as a paragraph. The text is cut where lines end. */
void sl_html_lines(FILE *f, char *text);

typedef enum plot_scale {
    PLOT_LINEAR,
    PLOT_LOG2,  /* ticks at powers of two: 1k is 1024 */
    PLOT_LOG10, /* ticks at powers of ten: 1k is 1000 */
    PLOT_WHOLE, /* linear, ticks at whole numbers */
} plot_scale;

typedef struct plot_axis {
    const char *label;
    plot_scale scale;
    bool percent;    /* values are shares: 0.5 reads 50% */
    double min, max; /* both 0: from the data */
} plot_axis;

typedef struct plot_series {
    const char *label;   /* where it ends; NULL: none */
    const double *x, *y; /* [n] borrowed; points with NaN are left out */
    int n;
    int color;   /* of the palette; -1: grey */
    bool dashed; /* a second reading of the color before it */
    bool dots;   /* a marker with a tooltip at each point */
} plot_series;

typedef struct plot_mark { /* a vertical line */
    double x;
    const char *label;
} plot_mark;

typedef struct plot {
    const char *title, *caption; /* caption may be NULL */
    plot_axis x, y;
    const plot_series *series; /* [n_series] */
    int n_series;
    const plot_mark *marks; /* [n_marks] */
    int n_marks;
} plot;

/* sl_html_plot() : one <figure>. */
void sl_html_plot(FILE *f, const plot *p);

typedef struct bars {
    const char *title, *caption, *unit; /* caption may be NULL */
    const char *const *labels;          /* [n_bars] */
    const char *const *parts;           /* [n_parts] in the palette's order */
    const double *values;               /* [n_bars, n_parts]; NaN and less than 0 draw nothing */
    int n_bars, n_parts;
} bars;

/* sl_html_bars() : one <figure> of horizontal bars, each its parts one after another. */
void sl_html_bars(FILE *f, const bars *b);

#endif
