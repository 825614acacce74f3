/* retained.c : see retained.h. */
#include "retained.h"
#include <stdio.h>

void retained_add_task(retained *r, const char *task, double share) {
    if (r->n_tasks++ && share >= r->worst) return;
    r->worst = share;
    snprintf(r->task, sizeof r->task, "%s", task);
}

bool retained_by_task(const retained *r) {
    return r->n_tasks > 1;
}

double retained_factor(const retained *r) {
    return retained_by_task(r) ? r->worst / r->mean : 1;
}
