/* progress.c : see progress.h. */
#include "base/progress.h"

#include <stdio.h>
#include <unistd.h>
#include "base/measure.h"
#include "base/text.h"

static const char *scaled(double value, const char *unit, char out[32]) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    int p = 0;
    while (value >= 1000 && p < 4) value /= 1000, p++;
    snprintf(out, 32, "%.*f %s%s", p ? 1 : 0, value, prefixes[p], unit);
    return out;
}

static void draw(progress *p, uint64_t done, double now) {
    char rate[32], amount[32];
    double elapsed = now - p->started, speed = elapsed > 0 ? (double)done / elapsed : 0;
    fprintf(stderr, "\r\033[K%s  ", sl_text_name(p->phase));
    if (p->total)
        fprintf(stderr, "%3.0f%%  ", 100.0 * (double)done / (double)p->total);
    else
        fprintf(stderr, "%s  ", scaled((double)done, p->unit, amount));
    fprintf(stderr, "%s/s", scaled(speed, p->unit, rate));
    if (p->total > done && speed > 0) {
        int64_t left = (int64_t)((double)(p->total - done) / speed);
        fprintf(stderr, "  ETA %d:%02d", (int)(left / 60), (int)(left % 60));
    }
    fflush(stderr);
    p->drawn = now;
}

void sl_progress_begin(progress *p, int mode, const char *phase, const char *unit, uint64_t total) {
    double now = sl_measure_seconds();
    *p = (progress){phase, unit, total, now, now, mode < 0 ? isatty(STDERR_FILENO) : mode > 0};
    if (p->on) draw(p, 0, now);
}

void sl_progress_update(progress *p, uint64_t done) {
    if (!p->on) return;
    double now = sl_measure_seconds();
    if (now - p->drawn >= 0.1) draw(p, done, now);
}

void sl_progress_end(progress *p) {
    if (p->on) fputs("\r\033[K", stderr);
    p->on = false;
}
