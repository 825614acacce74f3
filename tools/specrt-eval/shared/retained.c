/* retained.c : see retained.h. */
#include "retained.h"
#include <math.h>
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

void retained_put_speed(FILE *f, const specrt_ratio *r) {
    if (isnan(r->value)) return;
    fprintf(f, "Beside drafts from all rows %s%s: %.2f times their speed",
            isnan(r->low) ? "" : "it is ",
            isnan(r->low) ? "these requests are too few to tell"
                          : specrt_outcome_name(specrt_ratio_outcome(r)),
            r->value);
    if (!isnan(r->low)) fprintf(f, " (95%%: %.2f to %.2f)", r->low, r->high);
    fputs(" over whole requests.\n", f);
}
