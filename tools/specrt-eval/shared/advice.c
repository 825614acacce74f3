/* advice.c : which policy to recommend, and whether drafting is faster. */
#include "advice.h"
#include <stdio.h>

static const double slack = 0.05;

void advice_add_task(retained *r, const char *task, double share) {
    if (r->n_tasks++ && share >= r->worst) return;
    r->worst = share;
    snprintf(r->task, sizeof r->task, "%s", task);
}

bool advice_by_task(const retained *r) {
    return r->n_tasks > 1;
}

double advice_factor(const retained *r) {
    return advice_by_task(r) ? r->worst / r->mean : 1;
}

bool advice_ties(const candidate *c, const candidate *fastest) {
    return c->pays == 0 && c->speed >= (1 - slack) * fastest->speed;
}

bool advice_prefers(const candidate *c, const candidate *chosen, const candidate *fastest) {
    if (!advice_ties(c, fastest)) return false;
    return c->rows < chosen->rows || (c->rows == chosen->rows && c->speed > chosen->speed);
}

const char *advice_verdict(double ratio, int pays) {
    if (ratio <= 1) return "is slower";
    return pays > 0 ? "is faster" : "may be faster, but these prompts are too few to say";
}
